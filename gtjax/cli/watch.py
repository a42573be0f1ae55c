"""`gtjax watch RUN`: follow a run from another terminal, or another host that sees its folder."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from gtjax.cli.arguments import parse

if TYPE_CHECKING:
    from gtjax.runs.watching import Sight


@dataclass(frozen=True)
class Watch:
    """Follow a run: how far it is, its hosts, who is slow, the last checkpoint, what failed.

    Reads the run's folder and disturbs nothing; ends with the run."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    every: float = 2.0
    """Seconds between looks."""
    once: bool = False
    """Look once."""
    json: bool = False
    """Print JSON, a line a look."""
    metrics_port: int | None = None
    """Also answer Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port."""

    def __post_init__(self) -> None:
        if self.every <= 0:
            raise ValueError(f"--every is positive; found {self.every:g}")
        if self.metrics_port is not None and not 0 <= self.metrics_port < 2**16:
            raise ValueError(f"--metrics-port is in 0..65535; found {self.metrics_port}")


def run(argv: list[str]) -> int:
    """Look until the run is over."""
    arguments = parse(Watch, "watch", argv)

    from gtjax.core.progress import say
    from gtjax.runs.prometheus import exposition, served
    from gtjax.runs.watching import look

    sight = look(arguments.run)
    with contextlib.ExitStack() as stack:
        if arguments.metrics_port is not None:
            metrics = served(arguments.metrics_port, lambda: exposition(look(arguments.run)))
            port = stack.enter_context(metrics)
            say(f"metrics: http://127.0.0.1:{port}/metrics")
        show = stack.enter_context(_shown(json_lines=arguments.json))
        show(sight)
        while not arguments.once and not sight.is_over:
            time.sleep(arguments.every)
            sight = look(arguments.run)
            show(sight)
    return 0


@contextlib.contextmanager
def _shown(*, json_lines: bool) -> Iterator[Callable[[Sight], None]]:
    """How to show a look: in place on a terminal, else what is new."""
    from gtjax.runs.watching import described

    if json_lines:
        yield lambda sight: print(json.dumps(sight.to_json()), flush=True)
    elif sys.stdout.isatty():
        from rich.live import Live
        from rich.text import Text

        with Live(auto_refresh=False) as live:
            yield lambda sight: live.update(Text("\n".join(described(sight))), refresh=True)
    else:
        before: list[str] = []

        def show(sight: Sight) -> None:
            lines = described(sight)
            for line in lines:
                if line not in before:
                    print(line, flush=True)
            before[:] = lines

        yield show
