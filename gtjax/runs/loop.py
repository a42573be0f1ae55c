"""`fit`: trains on the whole graph, shows progress, keeps the best, survives being stopped.

Full-batch: every step sees every node. Steps are grouped into dispatches of about a second, which
is often enough to show progress and seldom enough that Python does not count (`turns`). In a run of
several processes every process does all of this; the first decides and writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtjax.batching.base import Batches
from gtjax.batching.source import Source
from gtjax.batching.store import batches_of
from gtjax.batching.table import BATCHINGS
from gtjax.core.compiled_programs import keep_compiled
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress, progress, say
from gtjax.distributed.exits import is_supervised
from gtjax.distributed.failures import note_failure
from gtjax.distributed.fence import Fence
from gtjax.distributed.join import hosts_of, topology
from gtjax.distributed.shared_folder import check_seen_by_all
from gtjax.distributed.team import LostError, Team, this_team
from gtjax.distributed.watchdog import Watchdog
from gtjax.graph import Graph, Names, StoredGraph, required_graph
from gtjax.partition import is_stored_partition
from gtjax.planner import Plan, slower_than_one
from gtjax.remote.address import address_of
from gtjax.runs.asked import note_resumption, note_start
from gtjax.runs.checkpoint import Checkpoints, DamagedCheckpointError, Snapshot, copied
from gtjax.runs.config import TrainConfig, checked_config, to_mapping, with_model
from gtjax.runs.ensemble import measured
from gtjax.runs.events import EventWriter
from gtjax.runs.interrupt import StopRequest
from gtjax.runs.memory import memory_seen
from gtjax.runs.program import Program
from gtjax.runs.replan import Watch, kept_promise
from gtjax.runs.report.seen import Seen
from gtjax.runs.report.story import write_report
from gtjax.runs.result import Result, result_values
from gtjax.runs.run_folder import RunFolder, new_run_path
from gtjax.runs.run_graph import keep_graph, to_load
from gtjax.runs.running import noted_as_running
from gtjax.runs.seeds_in_turn import train_in_turn, why_in_turn
from gtjax.runs.settled import settled
from gtjax.runs.several_seeds import initial_state
from gtjax.runs.status import Status
from gtjax.runs.stepper import Evaluator, evaluator
from gtjax.runs.stopwatch import Stopwatch
from gtjax.runs.trust import trust
from gtjax.runs.turns import Turns
from gtjax.runs.weights import load_weights, started_from
from gtjax.sharding.kernels import kernels_in_use, missing_kernels
from gtjax.sharding.place import place_everywhere
from gtjax.sharding.recording import single_calls
from gtjax.tasks.base import (
    TASKS,
    Task,
    register_task,
    task_to_json,
)
from gtjax.tasks.own import own_name


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was asked to stop, and has saved where it was."""


class _Asked(Exception):  # noqa: N818 - nothing went wrong
    """It was asked to stop, and can: what is under way is needed by nobody else."""


def fit(
    graph: Graph | StoredGraph | str | Path | Callable[[], Graph | StoredGraph],
    model: Any = None,
    config: TrainConfig | None = None,
    *,
    task: str | type[Task] | None = None,
    loss: Callable[..., Any] | str | None = None,
    metric: Callable[..., Any] | str | None = None,
    plan: Plan | None = None,
    show_progress: bool = True,
    stop: StopRequest | None = None,
    command: str | None = None,
) -> Result:
    """Train a model on a graph, or on the data set of that name or path (`gtjax.load`).

    `model` takes the place of `config.model`: the name of one ("gat"), its settings
    (`GATConfig(hidden=64)`), or a class of one's own (see `gtjax.nn.models`), with the settings of
    `config.model` if they are of its kind. `task` takes the place of `config.task`; `loss` and
    `metric` may be functions of one's own (see `gtjax.tasks.own`). `plan`, from `gtjax.plan` of the
    same graph, model and config, is followed and not made again.

    Deterministic by `config.seed`. The result holds the metrics of the parameters that were best
    on the validation nodes. The run has the name of the graph, and keeps it if it is small, so that
    `gtjax evaluate` and the like find it (see `run_graph`). In a run of several processes every
    process calls this; give a function that loads the graph, and only the first calls it.
    `command` is the command line that asked for this, for the report.
    """
    config = checked_config(config)
    if isinstance(graph, str | Path):
        config, graph = to_load(config, graph)
    elif isinstance(graph, StoredGraph):
        config = dataclasses.replace(config, data=graph.address)
    elif not callable(graph):
        graph = required_graph(graph, "fit")
        config = dataclasses.replace(config, data=graph.name or "graph")
    config = _with_task(config, task, loss, metric)
    if model is not None:
        config = with_model(config, model)
    if plan is not None and not isinstance(plan, Plan):
        found = type(plan).__name__
        raise UserError(f"plan is what gtjax.plan(graph, model, config) gives; found {found}")
    # Refuses what cannot run before making a folder.
    run = Run(this_team(), Source(graph), config, show_progress, stop, plan=plan)
    return run.from_the_start(keep=graph if isinstance(graph, Graph) else None, command=command)


def resume(
    folder: RunFolder,
    config: TrainConfig,
    graph: Graph | Callable[[], Graph],
    *,
    show_progress: bool = True,
    stop: StopRequest | None = None,
    command: str | None = None,
) -> Result:
    """Continue a run from its newest good checkpoint, as if it had not stopped.

    Devices, mesh and strategy may be others than those it began with.
    """
    run = Run(this_team(), Source(graph), config, show_progress, stop, folder)
    return run.from_checkpoint(command)


def _with_task(config: TrainConfig, task: Any, loss: Any, metric: Any) -> TrainConfig:
    """The config with what is given of these: names, a class, functions."""
    if task is not None and not isinstance(task, str | type):
        raise UserError(f"task is a name or a class; found {task!r}. Known: {', '.join(TASKS)}.")
    if isinstance(task, type):
        name = f"{task.__module__}:{task.__qualname__}"
        register_task(name, task)
        task = name
    try:
        if loss is not None:
            asked = dataclasses.replace(config.asked, loss=own_name(loss))
            config = dataclasses.replace(config, asked=asked)
        given = {"task": task, "metric": None if metric is None else own_name(metric)}
        given = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(config, **given)
    except ValueError as error:
        raise UserError(str(error)) from error


def _may_read_parts(team: Team, config: TrainConfig) -> bool:
    """Whether each process may read its own parts of a graph, and nobody all of it."""
    parallel = config.parallel
    known = not team.is_alone and parallel.strategy != "auto" and config.batches.batching == "full"
    return known and is_stored_partition(parallel.partitioner)


class Run:
    """One run, from its first step or its checkpoint to its result."""

    def __init__(
        self,
        team: Team,
        source: Source,
        config: TrainConfig,
        show: bool,
        stop: StopRequest | None,
        folder: RunFolder | None = None,
        plan: Plan | None = None,
    ):
        if config.runtime.keep_compiled:
            keep_compiled()
        self.team, self.source, self.asked = team, source, config
        batching = BATCHINGS.get(config.batches.batching)  # an unknown one is refused later
        source.in_place = batching is not None and (
            batching.reads_stored or _may_read_parts(team, config)
        )
        team.pulse.limit = config.runtime.watchdog_seconds
        self.clock = Stopwatch()
        self.fence = Fence()
        self.show = show and team.is_first
        self.stop = stop or StopRequest()
        self.plan = plan
        if folder is not None:
            self.folder = dataclasses.replace(folder, writes=team.is_first)

            def take() -> None:
                self.folder = folder.to_train()

            team.from_first(take)
        elif address_of(new := config.out or new_run_path(config)) is None:
            check_seen_by_all(team, new.parent)  # before planning, which may take minutes
        # Of processes that a supervisor asks all at once, one answers.
        self.stop.speaks = team.is_first or not is_supervised()
        try:
            with (
                self._lost_is_known(),
                self.clock.on("planning"),
                self._phase("planning") as update,
            ):
                found = settled(self, config, update, folder)
        except _Asked:
            where = "nothing is saved yet" if folder is None else f"{folder.shown} is as it was"
            raise Interrupted(f"stopped while planning; {where}") from None
        self.config, self.facts, self.task = found.config, found.facts, found.task
        self.stored_plan = found.plan
        self.watch = self.plan and Watch(self.plan, may_change=self.config.parallel.replan)
        self.source.change = self.config.prepared
        with self.clock.on("tracing the model"):
            self.program = Program(self.config, self.facts, self.task)
        self._trust_kernels()
        self.kernels = kernels_in_use(self.config.kernel, [call.op for call in self.program.calls])
        self.rows: list[dict[str, Any]] = []  # of metrics.jsonl, one per step
        self.peak_bytes = 0
        self._remarked = False

    def _trust_kernels(self) -> None:
        """Try the kernels on the device itself, where they were not tried before."""
        spread = self.program.spread
        strategies = (spread.strategy, self.program.training.strategy)
        calls = single_calls(self.program.calls, strategies)
        trust(self.config.kernel, calls, spread.platform, self.team, show=self.show)

    @contextlib.contextmanager
    def _phase(self, name: str, *, heeds: bool = True) -> Iterator[Progress]:
        """What is done in pieces, between which a run that has taken no step yet may stop.

        Only where nobody else waits for what is done here.
        """
        with self.stop.during(name), progress(name, 1.0, show=self.show) as update:

            def heeding(done: float, text: str) -> None:
                if heeds and self.stop.asked and self.team.is_alone:
                    raise _Asked
                self.team.doing(f"{name}: {text}" if text else name)
                update(done, text)

            self.team.doing(name)
            yield heeding
            self.team.doing("")

    def from_the_start(self, keep: Graph | None = None, command: str | None = None) -> Result:
        """In a new folder, with the graph that is to be kept there."""

        def create() -> str:
            self.folder = RunFolder.create(self.config)
            return self.folder.shown

        path = self.team.from_first(create)
        with self.team.mistakes_shared():
            if not self.team.is_first:
                self.folder = RunFolder.at(path, writes=False)
        note_start(self.folder, self.asked, command)
        self._describe_data()
        kept = self.config.runtime.keep_graph
        if kept == "always" and self.show and self.source.stored is not None:
            say(f"a stored graph is not copied: the run reads {self.config.data}")
        elif self.team.is_first and (kept == "always" or (keep is not None and kept == "auto")):
            keep_graph(self.folder, self.source.graph, always=kept == "always", show=self.show)
        if self.show:
            say(f"{self.facts.text}\nrun folder: {self.folder.shown}")
            if self.plan is not None:
                say(f"plan: {self.plan.flip}")
            self._remark_on_one()
        self._remark_on_kernels()
        if self.stored_plan is not None:
            self.folder.write_json("plan.json", self.stored_plan)
        return self._run(lambda checkpoints: self._first())

    def _remark_on_kernels(self) -> None:
        """Also to a script that wants no progress: the difference may be eightfold."""
        for name, reason in missing_kernels(call.op for call in self.program.calls).items():
            text = f"kernel {name} would be faster than what is used, but {reason}"
            if self.show:
                say(text)
            elif self.team.is_first:
                warnings.warn(text, stacklevel=2)

    def from_checkpoint(self, command: str | None = None) -> Result:
        """In the folder of the run."""
        if self.folder.store is None:
            check_seen_by_all(self.team, self.folder.path)
        if self.team.is_first:
            note_resumption(self.folder, self.asked, command)
        self.folder.write_json("config.json", to_mapping(self.config))
        self._describe_data()
        return self._run(self._restored)

    def _describe_data(self) -> None:
        """What the run was trained on, for those who resume it or predict with it."""
        known = {"facts": self.facts.to_json(), "task": task_to_json(self.task)}
        self.folder.write_json("data.json", known)

    def _first(self) -> Snapshot:
        seeds = self.config.seeds
        state = self.program.initial_state() if seeds == 1 else initial_state(self.program)
        if self.config.weights is not None:
            weights = load_weights(self.config.weights)
            if seeds > 1:
                weights = {name: np.stack([each] * seeds) for name, each in weights.items()}
            params = started_from(state.params, weights, show=self.show)
            params = place_everywhere(self.program.spread.mesh, params)
            average = None if state.average is None else copied(params)
            state = state._replace(params=params, average=average)
        return Snapshot.first(state, seeds)

    def _restored(self, checkpoints: Checkpoints) -> Snapshot:
        """The newest checkpoint that is good in all processes; the start if there is none yet."""
        shapes, snapshot, damaged = Snapshot.shapes(self.program), None, []
        for step in self.team.from_first(checkpoints.steps):
            try:
                snapshot, problem = checkpoints.read(step, shapes), None
            except DamagedCheckpointError as error:
                problem = str(error)
            found = self.team.first_found(problem)
            if found is None:
                break
            damaged.append(found[1])
            snapshot = None
            if self.show:
                say(f"skipping a checkpoint: {found[1]}")
        if snapshot is None and damaged:
            raise UserError(f"no checkpoint of {self.folder.shown} is good: {'; '.join(damaged)}")
        if snapshot is None:
            snapshot = self._first()
        else:
            snapshot = place_everywhere(self.program.spread.mesh, snapshot)
        step = int(snapshot.state.step)
        self.rows = self.folder.metrics(up_to_step=step)
        self.folder.rewrite_metrics(self.rows)
        if self.show:
            say(f"{self.facts.text}\nresuming {self.folder.shown} at step {step}")
        return snapshot

    def _in_turn(self, reason: str) -> Result:
        """Seeds one after the other, each a run of its own."""
        if self.show:
            say(f"{self.config.seeds} seeds one after the other: {reason}")
        graph = self.source.stored or self.source.graph

        def train(config: TrainConfig, begun: RunFolder | None) -> Result:
            run = Run(self.team, Source(graph), config, self.show, self.stop, begun)
            try:
                return run.from_the_start() if begun is None else run.from_checkpoint()
            except Interrupted as stopped:
                said = (
                    f"stopped in seed {config.seed}; continue with: gtjax resume "
                    f"{self.folder.shown}"
                )
                raise Interrupted(said) from stopped

        with noted_as_running(self.folder), self.clock.on("training one seed after the other"):
            return train_in_turn(self, train)

    def result_of(self, snapshot: Snapshot) -> Result:
        """Measure what was trained elsewhere, and write the result and the report of this run."""
        self.began_at = 0
        with self.stop.during("the report"):
            measure = evaluator(self.program, self.batches().whole)
            return self._result(snapshot, measure, None)

    def _run(self, begin: Callable[[Checkpoints], Snapshot]) -> Result:
        if self.config.seeds > 1 and (reason := why_in_turn(self)):
            return self._in_turn(reason)
        hosts = hosts_of(self.team)
        self.status = Status(self.folder, self.config.steps, hosts)
        self.status.doing("starting")
        if self.team.count > 1:
            mesh = self.program.spread.shape
            if self.show:
                say(f"{topology(hosts)}; mesh node={mesh.node}, feature={mesh.feature}")
        with (
            self.stop,
            self._lost_is_known(),
            noted_as_running(self.folder),
            Checkpoints(
                self.folder.path,
                keep=self.config.runtime.checkpoint_keep,
                store=self.folder.store,
                allowed=self.fence.check,
            ) as checkpoints,
            EventWriter(
                self.folder.path, self.config.runtime.tensorboard and self.team.is_first
            ) as events,
        ):
            with self.clock.on("first parameters"):
                snapshot = begin(checkpoints)
            self.status.doing("preparing")
            self.began_at = int(snapshot.state.step)
            turns = None
            batches = None if self.asked_to_stop() else self._batches_unless_asked()
            if batches is not None:
                checkpoints.about = self.about(batches)
                with self._watchdog() as watchdog:
                    turns = Turns(self, checkpoints, events, watchdog, batches)
                    snapshot = turns.run(snapshot)
            with self.clock.on("waiting for checkpoints"):
                checkpoints.save(snapshot)
        step = int(snapshot.state.step)
        if turns is None or (turns.stopped and step < self.config.steps):
            self.status.doing(f"stopped at step {step}")
            raise Interrupted(
                f"stopped at step {step}; continue with: gtjax resume {self.folder.shown}"
            )
        self.status.doing("report")
        with self._lost_is_known(), self.stop.during("the report"):
            result = self._result(snapshot, turns.evaluator, turns.sampler.shares)
        self.status.doing("finished")
        return result

    def asked_to_stop(self) -> bool:
        """Whether any process was, as far as the first knows: the same answer in all."""
        asked = self.stop.asked
        if asked:
            self.team.ask("stop")
        return self.team.from_first(lambda: bool(asked or self.team.asked("stop")))

    def _watchdog(self) -> Watchdog:
        """Alone and on nobody's behalf, a process that waits harms nobody."""
        return Watchdog(
            self.team,
            self.folder.path,
            least=self.config.runtime.watchdog_seconds,
            active=not self.team.is_alone or is_supervised(),
            orphaned=self.stop.ask,
        )

    def about(self, batches: Batches) -> dict[str, Any]:
        """What a checkpoint says of the run that it belongs to."""
        return {
            "seed": self.config.seed,  # with the step, all that randomness comes from
            "data": self.facts.fingerprint,
            "partition": batches.partition_id,
            "plan": self.program.spread.strategy.name,
            "mesh": dataclasses.asdict(self.program.spread.shape),
            "processes": self.team.count,
            "config": to_mapping(self.config),
        }

    def _batches_unless_asked(self) -> Batches | None:
        try:
            return self.batches(heeds=True)
        except _Asked:
            return None

    def batches(self, *, heeds: bool = False) -> Batches:
        """The graph on the devices, as the program wants it."""
        with self.clock.on("preparing"), self._phase("preparing", heeds=heeds) as update:
            partition = None
            if self.watch is not None and self.watch.running.parts is not None:
                partition = self.watch.running.parts.partition
            return batches_of(
                self.team,
                self.source,
                self.facts.fingerprint,
                self.program.settings,
                self.program.spread,
                self.folder.shown,
                partition=partition,
                progress=update,
            )

    @contextlib.contextmanager
    def _lost_is_known(self) -> Iterator[None]:
        """A collective that fails in a run of several processes: one of them is gone."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if self.team.is_alone or "RESOURCE_EXHAUSTED" in str(error):
                raise
            said = str(error).splitlines()[0]
            lost = LostError(f"another process of this run is gone: {said}")
            self._note_lost(lost)
            raise lost from error
        except LostError as lost:
            self._note_lost(lost)
            raise

    def _note_lost(self, lost: LostError) -> None:
        """In the folder; a supervisor notes it by itself."""
        if not is_supervised():
            why = f"process {self.team.index}: {lost}"
            note_failure(getattr(self, "folder", None) and self.folder.path, why, "it ended")

    def _result(
        self, snapshot: Snapshot, measure: Evaluator, shares: dict[str, float] | None
    ) -> Result:
        best = snapshot.chosen
        with self.clock.on("measuring the best parameters, compilation included"):
            outputs, found = measured(self.program, measure, best.params, best.step)
        values = result_values(
            self.rows,
            found,
            best_step=int(np.max(best.step)),
            steps=int(snapshot.state.step),
            peak_bytes_per_device=self.peak_bytes,
            memory=memory_seen(list(self.program.spread.mesh.devices.flat)),
            began_at=self.began_at,
            seconds=self.clock.seconds,
            step_shares=shares,
            kernels=self.kernels,
            processes=self.team.count,
            program=self.program,
            facts=self.facts,
            config=self.config,
        )
        values |= self._promise(values["seconds_per_step"])
        self._remark_on_one(values["seconds_per_step"])
        self.fence.check()
        self.folder.write_json("result.json", values)
        if self.team.is_first:
            names = Names(self.source.node_names, self.facts.class_names)
            seen = Seen(self.task, outputs, measure.batch, names)
            write_report(self.folder, self.facts, values, self.rows, seen)
            self.folder.flush()
        return Result(self.folder.path, values, self.folder.shown)

    def _remark_on_one(self, measured: float | None = None) -> None:
        """Say once that one device would be faster, as far as a plan knows."""
        plan = self.stored_plan or self.folder.read_json("plan.json")
        devices = self.program.spread.shape.devices
        remark = slower_than_one(plan, devices, self.team.count, measured)
        if remark is not None and self.show and not self._remarked:
            self._remarked = True
            say(remark)

    def _promise(self, seconds: float) -> dict[str, Any]:
        """What the plan predicted against what was measured, also by a run that was resumed."""
        if self.watch is not None:
            return {"plan": self.watch.result()}
        stored = self.folder.read_json("plan.json")
        return {} if stored is None else {"plan": kept_promise(stored, seconds)}
