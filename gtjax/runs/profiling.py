"""`--profile`: a trace of what the devices do in a few turns, for TensorBoard or Perfetto."""

from __future__ import annotations

from pathlib import Path

import jax

from gtjax.core.progress import say

SKIPPED = 2  # turns before the trace, which are not like the others
TRACED = 3


class Profiling:
    """Traces some turns, if wanted; every process writes a folder of its own."""

    def __init__(self, run: Path, process: int, *, wanted: bool):
        self._folder = run.resolve() / "profile" / f"process-{process}"
        self._process, self._wanted = process, wanted
        self._turns, self.active = 0, False

    def __enter__(self) -> Profiling:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def next_turn(self) -> None:
        """A turn begins."""
        if not self._wanted:
            return
        self._turns += 1
        if self._turns == SKIPPED + 1:
            jax.profiler.start_trace(self._folder)
            self.active = True
        elif self._turns > SKIPPED + TRACED:
            self._stop()

    def _stop(self) -> None:
        if self.active:
            jax.profiler.stop_trace()
            self.active = False
            if self._process == 0:
                say(f"wrote a trace: {self._folder.parent} (tensorboard --logdir, with xprof)")
