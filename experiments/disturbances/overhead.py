"""What surviving costs."""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any

from disturbances.runs import Chaos, Row


def overhead(chaos: Chaos) -> dict[str, Any]:
    """Whole turns, with checkpoints, watchdog and metrics, against the bare compiled step."""
    os.environ["GTJAX_SUPERVISED"] = "1"  # so that a process that is alone is watched as well
    import numpy as np

    from gtjax import RuntimeConfig, TrainConfig, load
    from gtjax.batching.source import Source
    from gtjax.batching.store import make_batches
    from gtjax.runs.interrupt import StopRequest
    from gtjax.runs.loop import fit
    from gtjax.runs.program import Program

    class Clock(StopRequest):
        """Is looked at once before each turn."""

        def __init__(self) -> None:
            super().__init__()
            self.looks: list[float] = []

        @property
        def asked(self) -> bool:
            self.looks.append(time.perf_counter())
            return False

        @asked.setter
        def asked(self, value: bool) -> None:
            pass

    graph, steps = load(chaos.arxiv), chaos.times(21, 11)
    runtime = RuntimeConfig(checkpoint_steps=10, checkpoint_seconds=1e9)
    seconds: dict[str, list[float]] = {"bare": [], "whole": []}
    outside = []
    with chaos.new_folder() as folder:
        for turn in range(chaos.times(2, 1)):
            config = TrainConfig(
                steps=steps, eval_every=1000, runtime=runtime, out=folder / str(turn)
            )
            program = Program(config, graph, config.task_of(graph))
            batches = make_batches(Source(graph), program.settings, program.spread)
            state, batch = program.initial_state(), batches.at(0)
            advance = program.compiled(state, batch, 1)
            times = []
            for _ in range(steps):
                started = time.perf_counter()
                state, losses_ = advance(state, batch, np.int32(1))
                np.asarray(losses_)
                times.append(time.perf_counter() - started)
            seconds["bare"] += times[1:]
            del state, batch, batches, advance
            clock = Clock()
            made = fit(graph, config=config, stop=clock, show_progress=False)
            # Before placing, before compiling, and then before every turn of one or more steps.
            rows = [json.loads(x) for x in (made.folder / "metrics.jsonl").read_text().splitlines()]
            turns = [row for row in rows if "seconds_per_step" in row]
            starts = clock.looks[-len(turns) :]
            counts = np.diff([0, *(row["step"] for row in turns)])
            walls = np.diff(starts)
            seconds["whole"] += list(walls[1:] / counts[1:-1])
            within = np.array([row["seconds_per_step"] for row in turns]) * counts
            outside.append(float(walls[1:].sum() / within[1:-1].sum() - 1))
            print(
                {name: round(float(np.mean(v)), 4) for name, v in seconds.items()},
                outside,
                flush=True,
            )
    del os.environ["GTJAX_SUPERVISED"]
    means = {name: statistics.fmean(each) for name, each in seconds.items()}
    ratio = means["whole"] / means["bare"] - 1
    return {
        "seconds_per_step": means,
        "overhead": ratio,
        "outside_of_steps": statistics.fmean(outside),
        "held": ratio <= 0.05,
    }


ROW = Row(
    "checkpoint every 10 steps and watchdog, arxiv topology",
    "at most 5 % of step time",
    overhead,
    lambda r: f"{100 * r['overhead']:.1f} % (outside of steps {100 * r['outside_of_steps']:.1f})",
)
