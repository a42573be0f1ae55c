"""The processes that a supervisor has started: what became of them, signals, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from gtjax.distributed.exits import FINISHED, SUPERVISED

ENTRY = (sys.executable, "-c", "import sys; from gtjax.cli.main import main; sys.exit(main())")
POLL_SECONDS = 0.1


class Workers:
    """Processes of one attempt, started together; `signals` counts those that came for us."""

    def __init__(self, entry: tuple[str, ...] = ENTRY):
        self._entry = entry
        self._all: list[subprocess.Popen] = []
        self.signals = 0

    def start(
        self, commands: Iterable[tuple[str, ...]], count: int, more: Mapping[str, str] | None = None
    ) -> list[int]:
        """Start commands of gtjax, all for the `count`-th time; returns their process ids.

        `more` is added to their environment.
        """
        environment = os.environ | {SUPERVISED: str(count)} | dict(more or {})
        self._all = [
            subprocess.Popen(
                # A session of its own: Ctrl-C reaches the supervisor, which passes it on once.
                [*self._entry, *command],
                env=environment,
                start_new_session=True,
            )
            for command in commands
        ]
        if self.signals:  # that came while there was nobody to pass it to
            self.pass_on(signal.SIGTERM)
        return [worker.pid for worker in self._all]

    @property
    def codes(self) -> list[int | None]:
        """Exit codes; None of who is still there."""
        return [worker.poll() for worker in self._all]

    @property
    def alive(self) -> list[subprocess.Popen]:
        """Who is still there."""
        return [worker for worker in self._all if worker.poll() is None]

    @property
    def failed(self) -> list[int]:
        """Who has ended, and not well."""
        return [index for index, code in enumerate(self.codes) if code not in (None, FINISHED)]

    def what_became_of(self, index: int, name: str) -> str:
        """In words."""
        worker = self._all[index]
        code = worker.returncode
        end = f"ended with code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                end = f"was ended by {signal.Signals(-code).name}"
        return f"{name} (pid {worker.pid}) {end}"

    def wait(self, seconds: float) -> None:
        """Until none is left, or the time is over."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """End who is left."""
        for worker in self.alive:
            worker.kill()
        for worker in self._all:
            worker.wait()

    def pass_on(self, number: int) -> None:
        """Signal who is left."""
        for worker in self.alive:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(number)

    def asked_to_stop(self) -> None:
        """The first time asks all to save and end; the second ends them."""
        self.signals += 1
        self.pass_on(signal.SIGTERM if self.signals == 1 else signal.SIGKILL)

    @contextlib.contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """Meanwhile SIGINT and SIGTERM are requests to stop."""

        def heard(number: int, frame: FrameType | None) -> None:
            self.asked_to_stop()

        before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, heard)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def sleep(self, seconds: float) -> None:
        """Unless a signal comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.signals:
            time.sleep(POLL_SECONDS)
