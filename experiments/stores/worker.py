"""`Worker`: a process that does things with a store, and may be killed."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 600.0


class Worker:
    """Does one order after the other in a process, which is started again when it is killed."""

    def __init__(self, port: int):
        self._port = port
        self._folder = Path(tempfile.mkdtemp(prefix="gtjax-store-"))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["stores.client"])  # so that starting one is quick
        self._process: Any = None
        self._orders: Any = None
        self._number = 0

    @property
    def pid(self) -> int:
        """Of the process, which is started if there is none."""
        if self._process is None or not self._process.is_alive():
            self._orders, theirs = self._context.Pipe()
            args = (self._port, str(self._folder / "cache"), theirs)
            self._process = self._context.Process(target=_serve, args=args, daemon=True)
            self._process.start()
            theirs.close()
        return self._process.pid

    def do(self, work: str, *args: Any) -> dict[str, Any]:
        """What came of a function of `client`, and what it reported as durable."""
        self._number += 1
        report = self._folder / f"{self._number}.jsonl"
        report.touch()
        found: dict[str, Any] = {"durable": 0, "ended": False}
        assert self.pid
        try:
            self._orders.send((work, str(report), *args))
            if not self._orders.poll(LIMIT_SECONDS):
                self._process.kill()
            self._orders.recv()
        except (EOFError, OSError):
            self._process.join()
        for line in report.read_text(encoding="utf-8").splitlines():
            found |= json.loads(line)
        return found


def _serve(port: int, cache: str, orders: Connection) -> None:
    from stores import client  # there already, in a process that was forked from one that has it

    client.serve(port, cache, orders)
