"""The turns of a run: some steps at a time, agreed on by all its processes.

Each turn is a dispatch of about a second. Before it the first process decides how many steps it
has, whether to stop instead, and whether to go on under another strategy; after it metrics are
written and, when it is time, a checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.batching.base import Batches
from gtjax.core.errors import UserError
from gtjax.core.progress import Pace, progress, say
from gtjax.distributed.exits import ToldError
from gtjax.distributed.sampling import MOST_STEPS, Sampler
from gtjax.distributed.watchdog import Watchdog
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot, copied
from gtjax.runs.config import TrainConfig, from_mapping, to_mapping
from gtjax.runs.events import EventWriter
from gtjax.runs.phases import (
    begins_phase,
    entered,
    last_phase_begins,
    phase_after,
    steps_left_in_phase,
)
from gtjax.runs.planning import with_option
from gtjax.runs.profiling import Profiling
from gtjax.runs.program import Program, State
from gtjax.runs.several_seeds import chosen, still_choosing
from gtjax.runs.stepper import evaluator, trainer
from gtjax.sharding.instructions import instruction_kinds
from gtjax.sharding.place import place_everywhere

if TYPE_CHECKING:
    from gtjax.runs.loop import Run

DISPATCH_SECONDS = 1.0
PROCESSES_A_TURN = 512  # of more, turns are longer: what the first takes to tell all is linear


class NotFiniteError(UserError):
    """Training met a NaN or an infinity, and stopped without keeping it."""


class Turns:
    """The steps of a run."""

    def __init__(
        self,
        run: Run,
        checkpoints: Checkpoints,
        events: EventWriter,
        watchdog: Watchdog,
        batches: Batches,
    ):
        self._run, self.team, self.config = run, run.team, run.config
        self.checkpoints, self.events, self.watchdog = checkpoints, events, watchdog
        self.batches = batches
        self.sampler = Sampler(run.team)
        self.profiling = Profiling(
            run.folder.path, run.team.index, wanted=run.config.runtime.profile
        )
        self.stopped = False
        self._steps_per_turn = 1
        self._saved_at = time.monotonic()

    def run(self, snapshot: Snapshot) -> Snapshot:
        """Take turns until all steps are taken, or somebody asked to stop."""
        run, config = self._run, self.config
        if run.asked_to_stop():  # compiling may take minutes
            self.stopped = True
            return snapshot
        if run.show:
            say("compiling")
        run.status.doing("compiling")
        phase = phase_after(config.model, min(int(snapshot.state.step), config.steps - 1))
        run.program = run.program.in_phase(phase)
        with run.clock.on("compiling"), run.stop.during("compiling"):
            self._compile(snapshot)
            # Where hosts first meet gloo gives up after half a minute; this waits for who compiles.
            self.team.gathered(None, lambda found: None)
        pace = Pace(run.facts.num_nodes)
        run.status.doing("training")
        with (
            progress("training", config.steps, show=run.show) as update,
            self.profiling,
            run.stop.during(""),
        ):
            while not self._is_done(snapshot):
                step = int(snapshot.state.step)
                if begins_phase(config.model, step):
                    snapshot = self._enter(snapshot)
                turn = self._agree(step)
                if turn["stop"]:
                    self.stopped = True
                    break
                if turn["config"] is not None:
                    snapshot = self._change_to(turn["config"], snapshot)
                    continue
                self.watchdog.next_turn(turn["count"])
                snapshot, rows = self._take(snapshot, turn, update)
                run.fence.check()
                run.rows += rows
                run.folder.append_metrics(rows)
                self.events.write(rows)
                self._save_if_due(snapshot)
                pace.saw(rows[-1]["seconds_per_step"])
                text = self._summary(rows[-1], snapshot.best, pace)
                update(int(snapshot.state.step), text)
                self._report_status(rows[-1], snapshot)
        return snapshot

    def _compile(self, snapshot: Snapshot) -> None:
        run = self._run
        # The step after the last one is seen by none, but a finished run may be resumed.
        first = min(int(snapshot.state.step), self.config.steps - 1)
        self.evaluator = evaluator(run.program, self.batches.whole)
        self._has_evaluated = False
        self._compile_step(snapshot, first)

    def _compile_step(self, snapshot: Snapshot, step: int) -> None:
        """The program of the steps from this one on: for the shapes of its batch."""
        run, most = self._run, self.config.eval_every
        batch = self.batches.at(step)
        self._shapes = _shapes(batch)
        self._trainer = trainer(run.program, batch, snapshot.state, most, self.evaluator)
        run.peak_bytes = self._trainer.peak_bytes
        if self._trainer.compiled is not None:
            self.sampler.watch(instruction_kinds(self._trainer.compiled.as_text()))

    def _agree(self, step: int) -> dict[str, Any]:
        """What all processes do next, as the first decides."""
        run = self._run
        asked = run.stop.asked
        if asked:
            self.team.ask("stop")

        def decide() -> dict[str, Any]:
            config, sample = self.config, self.sampler.is_due()
            count = min(
                self._steps_per_turn,
                MOST_STEPS if sample else config.steps,
                config.eval_every - step % config.eval_every,
                config.steps - step,
                self.batches.span(step) or config.steps,
                steps_left_in_phase(config.model, step) or config.steps,
            )
            if every := config.runtime.checkpoint_steps:
                count = min(count, every - step % every)
            other = run.watch.better() if run.watch is not None else None
            changed = None if other is None else with_option(config, other.option)
            if other is not None and run.show:
                say(f"slower than planned; going on with {other.option.name}")
            return {
                "count": count,
                "stop": bool(asked or self.team.asked("stop")),
                "sample": sample,
                "config": None if changed is None else to_mapping(changed),
            }

        return self.team.turn(decide)

    def _take(
        self, snapshot: Snapshot, turn: dict[str, Any], update: Any
    ) -> tuple[Snapshot, list[dict[str, Any]]]:
        """The steps of one turn, and their rows of metrics."""
        run, (state, best) = self._run, snapshot
        step, count = int(state.step), turn["count"]
        started, changes = time.monotonic(), self.batches.changes(step)
        if changes:
            if self.batches.span(step) != 1:
                update(step, "drawing new parts")
            with self.watchdog.paused(), run.clock.on("drawing parts"):
                self.batches.at(step)
        batch = self.batches.at(step)
        if _shapes(batch) != self._shapes:  # a batch that was larger than all before
            with self.watchdog.paused(), run.clock.on("compiling"):
                self._compile_step(snapshot, step)
        drawing = {"draw_seconds": time.monotonic() - started} if changes else {}
        started = time.monotonic()

        def advance() -> tuple[State, np.ndarray, bool]:
            self.watchdog.mark()
            with run.clock.on("training steps"):
                after, losses = self._trainer.advance(
                    state, batch, count, lambda text: update(step, text)
                )
                return after, losses, bool(after.healthy)

        self.profiling.next_turn()
        if turn["sample"] and not self.profiling.active:
            with run.clock.on("tracing a few of them"):
                (state, losses, healthy), took = self.sampler.sample(advance)
        else:
            state, losses, healthy = advance()
            took = time.monotonic() - started
        taken = int(state.step) - step  # fewer than `count` if one was not finite
        rows = _rows(step, losses[:taken], took)
        if drawing and self.batches.span(step) == 1:  # the share of the time that devices waited
            waited = drawing["draw_seconds"]
            drawing["waiting"] = waited / (waited + took)
        rows[:1] = [row | self.batches.facts(step) | drawing for row in rows[:1]]
        if not healthy:
            run.folder.append_metrics(rows)
            self._stop_not_finite(Snapshot(state, best), batch)
        seconds = rows[-1]["seconds_per_step"]
        self.watchdog.took(seconds)
        self._steps_per_turn = max(1, int(turn_seconds(self.team.count) / seconds))
        if run.watch is not None:
            run.watch.saw(seconds)
        step = int(state.step)
        due = step % self.config.eval_every == 0 or step == self.config.steps
        if due or begins_phase(self.config.model, step):
            best = self._validated(state, best, rows[-1])
        return Snapshot(state, best), rows

    def _enter(self, snapshot: Snapshot) -> Snapshot:
        """Go on in the phase that begins here."""
        run = self._run
        snapshot = place_everywhere(run.program.spread.mesh, entered(snapshot))
        program = run.program.in_phase(phase_after(self.config.model, int(snapshot.state.step)))
        if program is not run.program:
            run.program = program
            with self.watchdog.paused(), run.clock.on("compiling"):
                self._compile(snapshot)
            self._steps_per_turn = 1
        return snapshot

    def _change_to(self, mapping: dict[str, Any], snapshot: Snapshot) -> Snapshot:
        """Go on under another strategy: the same state, moved as it is."""
        run = self._run
        with self.watchdog.paused(), run.stop.during("changing to another strategy"):
            self.config = run.config = from_mapping(TrainConfig, mapping, "config")
            phase = run.program.phase
            run.program = Program(run.config, run.facts, run.task).in_phase(phase)
            run.folder.write_json("config.json", to_mapping(run.config))
            self.batches = run.batches()
            self.checkpoints.about = run.about(self.batches)
            snapshot = place_everywhere(run.program.spread.mesh, snapshot)
            with run.clock.on("compiling"):
                self._compile(snapshot)
        self._steps_per_turn = 1
        return snapshot

    def _save_if_due(self, snapshot: Snapshot) -> None:
        runtime, step = self.config.runtime, int(snapshot.state.step)
        self.checkpoints.check()
        by_step = runtime.checkpoint_steps and step % runtime.checkpoint_steps == 0
        by_time = time.monotonic() - self._saved_at >= runtime.checkpoint_seconds
        if by_step or (by_time and not self.checkpoints.is_writing):
            with self._run.clock.on("waiting for checkpoints"):
                self.checkpoints.save(snapshot)
            self._saved_at = time.monotonic()

    def _is_done(self, snapshot: Snapshot) -> bool:
        step, config = int(snapshot.state.step), self.config
        if step >= config.steps:
            return True
        # Only right after an evaluation: how steps are grouped between two of them depends on
        # the speed of the machine, and where a run ends must not.
        evaluated = step > 0 and step % config.eval_every == 0
        since = max(_last(snapshot.best), last_phase_begins(config.model))
        return evaluated and 0 < config.patience <= step - since

    def _validated(self, state: State, best: Best, row: dict[str, Any]) -> Best:
        """Add the metrics to the row; the parameters are the best if they validate better."""
        params = state.params if state.average is None else state.average
        # The first time it is compiled, which takes as long as it takes.
        first = self.watchdog.paused() if not self._has_evaluated else contextlib.nullcontext()
        self.watchdog.mark()
        what = "evaluating" if self._has_evaluated else "first evaluation, compilation included"
        with first, self._run.clock.on(what):
            metrics = self.evaluator.evaluate(params)
            found = {name: np.asarray(value) for name, value in metrics.items()}
        self._has_evaluated = True
        _tell(row, found)
        task, step = self._run.task, int(state.step)
        metric = jnp.float32(task.goodness(found[f"val_{task.metric}"]))
        if metric.ndim:
            since_s = jnp.maximum(best.step, last_phase_begins(self.config.model))
            able = still_choosing(since_s, step, self.config.eval_every, self.config.patience)
            new = Best(params, metric, jnp.full_like(best.step, step))
            return chosen((metric > best.metric) & able, new, best)
        if not metric > best.metric:
            return best
        return Best(copied(params), metric, jnp.int32(step))

    def _stop_not_finite(self, snapshot: Snapshot, batch: Any) -> None:
        step = int(snapshot.state.step)
        healthy = snapshot.state._replace(healthy=jnp.array(True))
        self.checkpoints.save(snapshot._replace(state=healthy))
        with self.watchdog.paused():
            what = self._trainer.find_not_finite(snapshot.state, batch)
        said = (
            f"step {step + 1}: {what} is not finite. The state after step {step} is saved in "
            f"{self.checkpoints.shown}. Try a smaller --optim.learning-rate, or --optim.clip 1."
        )
        raise NotFiniteError(said) if self.team.is_first else ToldError(said)

    def _report_status(self, row: dict[str, Any], snapshot: Snapshot) -> None:
        """For who watches the run from elsewhere."""
        run, best = self._run, snapshot.best
        facts: dict[str, Any] = {"metric": run.task.metric}
        if _last(best):
            facts["best"] = run.task.goodness(float(np.mean(best.metric)))
            facts["best_step"] = _last(best)
        seconds = row["seconds_per_step"]
        run.status.reached(
            row["step"],
            loss=row["loss"],
            seconds_per_step=seconds,
            nodes_per_second=run.facts.num_nodes / max(seconds, 1e-9),
            communication=self.sampler.communication,
            slow=self.sampler.slow,
            **facts,
        )

    def _summary(self, row: dict[str, Any], best: Best, pace: Pace) -> str:
        """What matters most comes first."""
        words = [f"loss {row['loss']:.4f}"]
        if _last(best):
            task = self._run.task
            best_metric = task.goodness(float(np.mean(best.metric)))
            words.append(f"best val {task.metric} {best_metric:.4f} at step {_last(best)}")
            words += [f"mean of {np.size(best.metric)} seeds"] * (np.ndim(best.metric) > 0)
        words.append(f"{row['seconds_per_step']:.3g} s/step")
        if "waiting" in row:
            words.append(f"devices waited {100 * row['waiting']:.0f} %")
        if self.sampler.text:
            words.append(self.sampler.text)
        durable = self.checkpoints.durable
        words.append("no checkpoint yet" if durable is None else f"checkpoint of step {durable}")
        return ", ".join([*words, pace.text])


def turn_seconds(processes: int) -> float:
    """How long the steps between two agreements of so many processes should take."""
    return DISPATCH_SECONDS * max(1.0, processes / PROCESSES_A_TURN)


def _shapes(batch: Any) -> Any:
    return jax.tree.map(lambda x: (getattr(x, "shape", x), getattr(x, "dtype", None)), batch)


def _last(best: Best) -> int:
    """The step of the best parameters, of several seeds of the last that found some."""
    return int(np.max(best.step))


def _tell(row: dict[str, Any], values: dict[str, np.ndarray]) -> None:
    """Add numbers to a row: of several seeds the mean, and each under "seeds"."""
    row.update({name: float(np.mean(value)) for name, value in values.items()})
    if each := {name: value.tolist() for name, value in values.items() if np.ndim(value)}:
        row["seeds"] = row.get("seeds", {}) | each


def _rows(step: int, losses: np.ndarray, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, loss in enumerate(losses, start=1):
        rows.append({"step": step + number})
        _tell(rows[-1], {"loss": loss})
    if rows:
        rows[-1]["seconds_per_step"] = seconds / len(rows)
    return rows
