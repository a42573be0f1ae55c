"""Figures of a run for Prometheus: its text format, on a port of the loopback address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gtjax.core.errors import UserError
from gtjax.runs.watching import Sight

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
GAUGES = {
    "step": "steps taken",
    "steps": "steps wanted",
    "loss": "loss of the last step",
    "best": "best validated metric so far",
    "best_step": "step of the best validated metric",
    "seconds_per_step": "duration of a step",
    "nodes_per_second": "nodes that steps see a second",
    "communication": "share of a step in communication, as last sampled",
}


def exposition(sight: Sight) -> str:
    """All figures, as Prometheus reads them."""
    known, run = sight.status, _label(sight.run)
    lines: list[str] = []

    def gauge(name: str, what: str, value: Any, labels: str = "", kind: str = "gauge") -> None:
        lines.append(f"# HELP gtjax_{name} {what}\n# TYPE gtjax_{name} {kind}")
        lines.append(f'gtjax_{name}{{run="{run}"{labels}}} {float(value):.17g}')

    gauge("running", "whether the run is under way", sight.state == "running")
    gauge("finished", "whether the run has taken all steps", sight.state == "finished")
    for name, what in GAUGES.items():
        if isinstance(known.get(name), int | float):
            gauge(name, what, known[name])
    if sight.checkpoint is not None:
        gauge("checkpoint_step", "step of the newest checkpoint", sight.checkpoint)
    if sight.silent is not None:
        gauge("silent_seconds", "since the run has last said something", sight.silent)
    hosts = known.get("hosts") or []
    gauge("hosts", "hosts of the run", len(hosts))
    gauge("processes", "processes of the run", sum(one["processes"] for one in hosts))
    gauge("devices", "devices of the run", sum(one["devices"] for one in hosts))
    gauge("failures_total", "failures noted", len(sight.failures), kind="counter")
    slow = known.get("slow") or {}
    if slow:
        lines.append("# HELP gtjax_straggler computing of a slow process, of the median\n")
        lines[-1] += "# TYPE gtjax_straggler gauge"
        lines += [
            f'gtjax_straggler{{run="{run}",process="{_label(index)}"}} {float(ratio):.17g}'
            for index, ratio in slow.items()
        ]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def served(port: int, render: Callable[[], str]) -> Iterator[int]:
    """Answer GET /metrics on this port of 127.0.0.1, any free one if it is 0; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(404)
                return
            body = render().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing of every look."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UserError(
            f"--metrics-port {port} of 127.0.0.1 cannot be had: {error.strerror}. Choose another, "
            "or 0 for one that is free."
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
