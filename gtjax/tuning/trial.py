"""One trial: a config trained on some seeds at once, as long as it promises something.

Trials run in one process one after the other, without folders, checkpoints and reports: on a small
graph those take longer than the steps. The graph that they see has no test labels.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from gtjax.batching.prepare import Batch, make_batch
from gtjax.graph import Graph
from gtjax.runs import several_seeds
from gtjax.runs.config import TrainConfig
from gtjax.runs.planning import fits_side_by_side
from gtjax.runs.program import Program
from gtjax.tasks.base import Task

EVALUATIONS = 150  # of a trial that takes all of its steps
UNITS = 27  # in which the share of a trial that is done is told: two rungs, at a ninth and a third
Report = Callable[[float, int], bool]  # goodness, and units done -> whether to stop


class DoesNotFitError(Exception):
    """So many models of this size do not fit in memory side by side."""


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    goodness: float  # mean over seeds of the best validation metric, the more the better
    metric: float  # the same as people know it
    deviation: float | None
    each: tuple[float, ...]  # metric of every seed
    steps: int  # that it took
    best_steps: tuple[int, ...]
    seconds: float
    compile_seconds: float
    stopped: bool  # because others promised more


class Trials:
    """Runs trials on a graph, and keeps what several of them need."""

    def __init__(self, graph: Graph, share_of_memory: float = 1.0):
        self._graph, self._share = graph, share_of_memory
        self._batches: dict[str, Batch] = {}

    def run(
        self,
        config: TrainConfig,
        *,
        seconds: float,
        compared: str | None = None,
        report: Report = lambda goodness, units: False,
    ) -> Outcome:
        """Train for the steps of the config, or for so many seconds if those are over before.

        The metric of the config chooses the step, and what validation says at that step is what
        trials are `compared` by: the same metric, unless another is named.
        """
        started = time.monotonic()
        graph = self._graph
        if not fits_side_by_side(config, graph, self._share):
            raise DoesNotFitError
        task = config.task_of(graph)
        judge = task
        if compared is not None:
            judge = dataclasses.replace(config, metric=compared).task_of(graph)
        program = Program(config, graph, task)
        batch = self._batch(program)
        state = several_seeds.initial_state(program)
        every = config.eval_every
        advance = program.compiled_as(partial(several_seeds.advance, program), state, batch, every)
        evaluate = jax.jit(partial(several_seeds.evaluate, program))
        best_s, at_s = np.full(config.seeds, -np.inf), np.zeros(config.seeds, int)
        told_s = best_s  # what validation says of the best so far, as trials are compared
        step = told = 0
        compiled, stopped = time.monotonic(), False
        while step < config.steps and not stopped:
            state, _ = advance(state, batch, np.int32(min(every, config.steps - step)))
            if not bool(state.healthy):
                break
            step = int(state.step)
            values = evaluate(state.params if state.average is None else state.average, batch)
            good_s = _goodness(task, values)
            able = np.asarray(several_seeds.still_choosing(at_s, step, every, config.patience))
            better = (good_s > best_s) & able
            best_s, at_s = np.where(better, good_s, best_s), np.where(better, step, at_s)
            told_s = np.where(better, _goodness(judge, values), told_s)
            if told == 0 and step == every:
                compiled = time.monotonic()  # the first evaluation compiled too
            took = time.monotonic() - compiled
            done = max(step / config.steps, took / seconds)
            if int(done * UNITS) > told:
                told = min(UNITS, int(done * UNITS))
                stopped = report(float(told_s.mean()), told)
            if took >= seconds or (config.patience and (step - at_s >= config.patience).all()):
                break
        metric_s = np.array([judge.goodness(float(each)) for each in told_s])
        return Outcome(
            goodness=float(told_s.mean()),
            metric=float(metric_s.mean()),
            deviation=float(metric_s.std(ddof=1)) if len(metric_s) > 1 else None,
            each=tuple(metric_s.tolist()),
            steps=step,
            best_steps=tuple(at_s.tolist()),
            seconds=time.monotonic() - started,
            compile_seconds=compiled - started,
            stopped=stopped,
        )

    def _batch(self, program: Program) -> Batch:
        """The graph on the device, once for all programs that want it the same way."""
        settings = program.settings
        # `task` tells the targets apart, and only samples depend on the layers.
        key = repr(dataclasses.replace(settings, targets=_no_targets, layers=None))
        if key not in self._batches:
            while len(self._batches) >= 4:
                self._batches.pop(next(iter(self._batches)))
            self._batches[key] = make_batch(self._graph, settings, program.spread)
        return self._batches[key]


def _no_targets(graph: Graph) -> dict[str, Any]:
    del graph
    return {}


def _goodness(task: Task, values: dict[str, Any]) -> np.ndarray:
    """Of the validation metric of every seed; -inf where it is not a number."""
    good_s = np.asarray(task.goodness(np.asarray(values[f"val_{task.metric}"], np.float64)))
    return np.where(np.isfinite(good_s), good_s, -np.inf)
