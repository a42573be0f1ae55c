"""`FaultyProxy`: stands between a client and an S3 server, and does one thing wrong when asked.

| kind | what |
|---|---|
| error500, busy503 | the store says so, and does nothing |
| reset, reset_after | the connection is reset; before the store hears of it, or after it did it |
| slow, stall | the answer takes half a second, or longer than the client waits |
| truncated | half of an object arrives, then the connection is closed |
| flip_down, flip_up | a byte of an object is changed, on the way from the store or to it |
| kill, kill_after | kill -9 of the client; before the store hears of it, or after it did it |
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = (
    *("error500", "busy503", "reset", "reset_after", "slow", "stall", "truncated"),
    *("flip_down", "flip_up", "kill", "kill_after"),
)
SLOW_SECONDS, STALL_SECONDS = 0.5, 2.5
FOREVER = 10**9


@dataclass
class Fault:
    """What to do wrong: at the `first` request that it can be done to, and `count` - 1 more."""

    kind: str
    first: int
    count: int
    pid: int = 0  # of the client
    done: int = 0

    def strikes(self, number: int) -> bool:
        """Whether this request is one of them."""
        struck = self.first <= number < self.first + self.count
        self.done += struck
        return struck


class FaultyProxy:
    """Forwards to a port; `fault` may be set at any time."""

    def __init__(self, port: int):
        self.fault: Fault | None = None
        self.seen: dict[str, int] = {}
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner, target = proxy, port

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def arm(self, fault: Fault | None) -> None:
        """From now on, do this; requests are counted from here."""
        with self._lock:
            self.fault, self.seen = fault, {}

    def struck(self, kind: str) -> Fault | None:
        """Count a request that this kind can be done to; the fault, if it is to be done now."""
        with self._lock:
            number = self.seen.get(kind, 0)
            self.seen[kind] = number + 1
            fault = self.fault
            return fault if fault and fault.kind == kind and fault.strikes(number) else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultyProxy
    target: int

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        struck = self.owner.struck
        for code, kind in ((500, "error500"), (503, "busy503")):
            if struck(kind):
                return self._say(code, "InternalError" if code == 500 else "SlowDown")
        if struck("reset"):
            return self._reset()
        if fault := struck("kill"):
            return self._kill(fault)
        if struck("stall"):
            time.sleep(STALL_SECONDS)
        if struck("slow"):
            time.sleep(SLOW_SECONDS)
        if self.command == "PUT" and body and struck("flip_up"):
            body = _flipped(body)
        status, headers, answer = self._forward(body)
        if struck("reset_after"):
            return self._reset()
        if fault := struck("kill_after"):
            return self._kill(fault)
        length = len(answer)
        if self.command == "GET" and status in (200, 206) and answer:
            if struck("flip_down"):
                answer = _flipped(answer)
            if struck("truncated"):
                answer, self.close_connection = answer[: length // 2], True
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        known = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(length)
        self.send_header("Content-Length", known)
        self.end_headers()
        self.wfile.write(answer)
        return None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - as http.server asks

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "host")}
        headers["Host"] = f"127.0.0.1:{self.target}"
        try:
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()

    def _say(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)  # so that closing resets
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.shutdown(socket.SHUT_RD)
        self.close_connection = True

    def _kill(self, fault: Fault) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(fault.pid, signal.SIGKILL)
        self.close_connection = True

    def handle(self) -> None:
        """A client that is gone is no error of this."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) * 2 // 3] ^= 0x10
    return bytes(changed)
