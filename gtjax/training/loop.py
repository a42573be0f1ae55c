"""`fit`: trains on the whole graph, shows progress, keeps the best, survives being stopped.

Full-batch: every step sees every node. Steps are grouped into dispatches of about a second, which
is often enough to show progress and seldom enough that Python does not count.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import Graph, UserError
from gtjax.nn import ModelConfig
from gtjax.planner import Candidate
from gtjax.sharding.place import place_everywhere
from gtjax.strategies.kernels import kernel_name, missing_kernels
from gtjax.training.batches import Batches, make_batches
from gtjax.training.checkpoint import Best, Checkpoints, Snapshot
from gtjax.training.config import TrainConfig, to_mapping
from gtjax.training.events import EventWriter
from gtjax.training.interrupt import StopRequest
from gtjax.training.planning import decided, is_planned, with_option
from gtjax.training.prepare import Batch
from gtjax.training.progress import progress, say
from gtjax.training.replan import Watch, kept_promise
from gtjax.training.report import write_report
from gtjax.training.run_folder import RunFolder, versions
from gtjax.training.step import Program, State, find_not_finite
from gtjax.training.step_cost import peak_bytes
from gtjax.training.task import Task

DISPATCH_SECONDS = 1.0


class NotFiniteError(UserError):
    """Training met a NaN or an infinity, and stopped without keeping it."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was asked to stop, and has saved where it was."""


@dataclass(frozen=True)
class Result:
    """What came of a run: the folder it left, and what its `result.json` holds."""

    folder: Path
    values: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def fit(
    graph: Graph,
    model: ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    show_progress: bool = True,
) -> Result:
    """Train a graph transformer on a graph; `model` takes the place of `config.model`.

    Deterministic by `config.seed`. The result holds the metrics of the parameters that were best
    on the validation nodes. `config.data` is only a name here: the graph is the one given.
    """
    config = config or TrainConfig(data=graph.name)
    if model is not None:
        config = dataclasses.replace(config, model=model)
    run = _Run(graph, config, show_progress)  # refuses what cannot run before making a folder
    return run.from_the_start(RunFolder.create(run.config))


def resume(
    folder: RunFolder, config: TrainConfig, graph: Graph, *, show_progress: bool = True
) -> Result:
    """Continue a run from its newest checkpoint, as if it had not stopped."""
    known = folder.read_json("data.json") or {}
    if known and known.get("fingerprint") != graph.fingerprint:
        raise UserError(f"{config.data} has changed since {folder.path} began; start a new run")
    return _Run(graph, config, show_progress).from_checkpoint(folder)


class _Run:
    """One run, from its first step or its checkpoint to its result."""

    folder: RunFolder

    def __init__(self, graph: Graph, config: TrainConfig, show: bool):
        with progress("planning", 1.0, show=show and is_planned(config)) as update:
            config, self.plan = decided(config, graph, update)
        self.watch = self.plan and Watch(self.plan, may_change=config.parallel.replan)
        self.graph, self.config, self.show = graph, config, show
        self.task = Task.of(graph, config.metric, config.optim.label_smoothing)
        self.kernel = kernel_name(config.kernel)
        self.program = Program(config, graph, self.task)
        self.rows: list[dict[str, Any]] = []  # of metrics.jsonl, one per step
        self.peak_bytes = 0

    def from_the_start(self, folder: RunFolder) -> Result:
        self.folder = folder
        self._describe_data()
        if self.show:
            say(f"{self.graph}\nrun folder: {self.folder.path}")
            if self.plan is not None:
                say(f"plan: {self.plan.flip}")
            for name, reason in missing_kernels().items():
                say(f"using kernel {self.kernel}; {name} would be faster, but {reason}")
        if self.plan is not None:
            self.folder.write_json("plan.json", self.plan.to_json())
        return self._run(lambda checkpoints, start: start)

    def from_checkpoint(self, folder: RunFolder) -> Result:
        self.folder = folder

        def restore(checkpoints: Checkpoints, start: Snapshot) -> Snapshot:
            # A run that was killed before its first checkpoint begins again.
            snapshot = checkpoints.restore(start) if checkpoints.any else start
            self.rows = self.folder.metrics(up_to_step=int(snapshot.state.step))
            self.folder.rewrite_metrics(self.rows)
            if self.show:
                say(f"{self.graph}\nresuming {self.folder.path} at step {snapshot.state.step}")
            return snapshot

        self._describe_data()
        return self._run(restore)

    def _describe_data(self) -> None:
        """What the run was trained on, for those who resume it or predict with it."""
        self.folder.write_json(
            "data.json",
            {
                "fingerprint": self.graph.fingerprint,
                "features": self.graph.num_features,
                "edge_features": self.graph.num_edge_features,
                "classes": self.graph.num_classes,
                "multilabel": self.graph.is_multilabel,
            },
        )

    def _run(self, begin: Any) -> Result:
        state = self.program.initial_state()
        with (
            StopRequest() as stop,
            Checkpoints(self.folder.path) as checkpoints,
            EventWriter(self.folder.path, self.config.tensorboard) as events,
        ):
            snapshot = begin(checkpoints, Snapshot(state, Best.none_yet(state.params)))
            batches = self._batches()
            snapshot, batches = self._train(snapshot, batches, checkpoints, events, stop)
            checkpoints.save(snapshot)
        if stop.asked and snapshot.state.step < self.config.steps:
            raise Interrupted(
                f"stopped at step {snapshot.state.step}; continue with: "
                f"gtjax resume {self.folder.path}"
            )
        return self._result(snapshot, batches.whole)

    def _batches(self) -> Batches:
        spreads = (self.program.spread, self.program.exact)
        with progress("preparing", 1.0, show=self.show) as update:
            partition = None
            if self.watch is not None and self.watch.running.parts is not None:
                partition = self.watch.running.parts.partition
            return make_batches(
                self.graph, self.config, *spreads, progress=update, partition=partition
            )

    def _change_to(self, candidate: Candidate, snapshot: Snapshot) -> tuple[Snapshot, Batches, Any]:
        """Go on under another strategy: the same state, moved as it is."""
        if self.show:
            say(f"slower than planned; going on with {candidate.option.name}")
        self.config = with_option(self.config, candidate.option)
        self.program = Program(self.config, self.graph, self.task)
        self.folder.write_json("config.json", to_mapping(self.config))
        batches = self._batches()
        snapshot = place_everywhere(self.program.spread.mesh, snapshot)
        step = min(int(snapshot.state.step), self.config.steps - 1)
        return snapshot, batches, self._compiled(snapshot.state, batches.at(step))

    def _train(
        self,
        snapshot: Snapshot,
        batches: Batches,
        checkpoints: Checkpoints,
        events: EventWriter,
        stop: StopRequest,
    ) -> tuple[Snapshot, Batches]:
        config = self.config
        if self.show:
            say("compiling")
        # The step after the last one is seen by none, but a finished run may be resumed.
        first = min(int(snapshot.state.step), config.steps - 1)
        advance = self._compiled(snapshot.state, batches.at(first))
        evaluate = jax.jit(self.program.evaluate)
        pace, saved_at = 1, time.monotonic()
        with progress("training", config.steps, show=self.show) as update:
            while not (stop.asked or self._is_done(snapshot)):
                state, best = snapshot
                step = int(state.step)
                count = min(pace, config.eval_every - step % config.eval_every, config.steps - step)
                count = min(count, batches.steps_left(step) or count)
                started, changes = time.monotonic(), batches.changes(step)
                if changes:
                    update(step, "drawing new parts")
                batch = batches.at(step)
                drawing = {"draw_seconds": time.monotonic() - started} if changes else {}
                started = time.monotonic()
                state, losses = advance(state, batch, np.int32(count))
                taken = int(state.step) - step  # fewer than `count` if one was not finite
                rows = _rows(step, np.asarray(losses)[:taken], time.monotonic() - started)
                rows[:1] = [row | batches.coverage(step) | drawing for row in rows[:1]]
                if not state.healthy:
                    self.folder.append_metrics(rows)
                    self._stop_not_finite(Snapshot(state, best), batch, checkpoints)
                pace = max(1, int(DISPATCH_SECONDS / rows[-1]["seconds_per_step"]))
                if state.step % config.eval_every == 0 or state.step == config.steps:
                    best = self._validated(state, best, evaluate, batches.whole, rows[-1])
                del batch  # so that the next one finds its place free
                snapshot = Snapshot(state, best)
                self.rows += rows
                self.folder.append_metrics(rows)
                events.write(rows)
                update(int(state.step), _summary(rows[-1], best, self.task.metric))
                if time.monotonic() - saved_at >= config.checkpoint_seconds:
                    checkpoints.save(snapshot)
                    saved_at = time.monotonic()
                if self.watch is not None and rows:
                    self.watch.saw(rows[-1]["seconds_per_step"])
                    if other := self.watch.better():
                        snapshot, batches, advance = self._change_to(other, snapshot)
                        evaluate, pace = jax.jit(self.program.evaluate), 1
        return snapshot, batches

    def _compiled(self, state: State, batch: Batch) -> Any:
        compiled = self.program.compiled(state, batch, self.config.eval_every)
        self.peak_bytes = peak_bytes(compiled)
        return compiled

    def _is_done(self, snapshot: Snapshot) -> bool:
        step, config = int(snapshot.state.step), self.config
        if step >= config.steps:
            return True
        # Only right after an evaluation: how steps are grouped between two of them depends on
        # the speed of the machine, and where a run ends must not.
        evaluated = step > 0 and step % config.eval_every == 0
        return evaluated and 0 < config.patience <= step - int(snapshot.best.step)

    def _validated(
        self, state: State, best: Best, evaluate: Any, batch: Batch, row: dict[str, Any]
    ) -> Best:
        """Add the metrics to the row; the parameters are the best if they validate better."""
        params = state.params if state.average is None else state.average
        row.update({name: float(value) for name, value in evaluate(params, batch).items()})
        metric = jnp.float32(row[f"val_{self.task.metric}"])
        if not metric > best.metric:
            return best
        return Best(jax.tree.map(jnp.copy, params), metric, jnp.copy(state.step))

    def _stop_not_finite(self, snapshot: Snapshot, batch: Batch, checkpoints: Checkpoints) -> None:
        step = int(snapshot.state.step)
        healthy = snapshot.state._replace(healthy=jnp.array(True))
        checkpoints.save(snapshot._replace(state=healthy))
        what = find_not_finite(self.program, snapshot.state, batch)
        raise NotFiniteError(
            f"step {step + 1}: {what} is not finite. The state after step {step} is saved in "
            f"{checkpoints.folder}. Try a smaller --optim.learning-rate, or --optim.clip 1."
        )

    def _result(self, snapshot: Snapshot, batch: Batch) -> Result:
        best = snapshot.chosen
        _, metrics = jax.jit(self.program.predict)(best.params, batch)
        # The first dispatch is the slowest and not typical.
        seconds = [r["seconds_per_step"] for r in self.rows if "seconds_per_step" in r]
        values = {
            "losses": [row["loss"] for row in self.rows],
            **{name: float(value) for name, value in metrics.items()},
            "metric": self.task.metric,
            "best_step": int(best.step),
            "steps": int(snapshot.state.step),
            "seconds_per_step": statistics.median(seconds[1:] or seconds),
            "peak_bytes_per_device": self.peak_bytes,
            "strategy": self.program.spread.strategy.name,
            "mesh": dataclasses.asdict(self.program.spread.shape),
            **self._exactness(),
            **self._promise(statistics.median(seconds[1:] or seconds)),
            "kernel": self.kernel,
            "device": jax.devices()[0].device_kind,
            "data": {"name": self.graph.name, "fingerprint": self.graph.fingerprint},
            "config": to_mapping(self.config),
            "versions": versions(),
        }
        self.folder.write_json("result.json", values)
        write_report(self.folder, self.graph, values, self.rows)
        return Result(self.folder.path, values)

    def _promise(self, seconds: float) -> dict[str, Any]:
        """What the plan predicted against what was measured, also by a run that was resumed."""
        if self.watch is not None:
            return {"plan": self.watch.result()}
        stored = self.folder.read_json("plan.json")
        return {} if stored is None else {"plan": kept_promise(stored, seconds)}

    def _exactness(self) -> dict[str, Any]:
        """Whether steps saw the whole graph, and if not how much: over all draws of parts."""
        if self.program.spread.strategy.exact:
            return {"approximate": False}
        seen = [row for row in self.rows if "coverage" in row]
        coverage = {
            "mean": statistics.fmean(row["coverage"] for row in seen),
            "min": min(row["coverage_min"] for row in seen),
            "max": max(row["coverage_max"] for row in seen),
        }
        draws = [row["draw_seconds"] for row in self.rows if "draw_seconds" in row]
        seconds = statistics.median(draws) if draws else None
        return {"approximate": True, "coverage": coverage, "seconds_per_draw": seconds}


def _rows(step: int, losses: np.ndarray, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"step": step + number, "loss": float(loss)} for number, loss in enumerate(losses, start=1)
    ]
    if rows:
        rows[-1]["seconds_per_step"] = seconds / len(rows)
    return rows


def _summary(row: dict[str, Any], best: Best, metric: str) -> str:
    text = f"loss {row['loss']:.4f}, {row['seconds_per_step']:.3g} s/step"
    if best.step:
        text += f", best val {metric} {best.metric:.4f} at step {best.step}"
    return text
