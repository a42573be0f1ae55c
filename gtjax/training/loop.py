"""`fit`: trains on the whole graph, shows progress, keeps the best, survives being stopped.

Full-batch: every step sees every node. Steps are grouped into dispatches of about a second, which
is often enough to show progress and seldom enough that Python does not count (`turns`). In a run of
several processes every process does all of this; the first decides and writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from gtjax.distributed.join import topology
from gtjax.distributed.team import LostError, Team, this_team
from gtjax.distributed.watchdog import Watchdog, is_supervised
from gtjax.graph import Graph, UserError
from gtjax.nn import ModelConfig
from gtjax.planner import Plan
from gtjax.sharding.place import place_everywhere
from gtjax.strategies.kernels import kernel_name, missing_kernels
from gtjax.training.batches import Batches
from gtjax.training.checkpoint import Checkpoints, DamagedCheckpointError, Snapshot
from gtjax.training.config import TrainConfig, from_mapping, to_mapping
from gtjax.training.events import EventWriter
from gtjax.training.facts import GraphFacts
from gtjax.training.interrupt import StopRequest
from gtjax.training.planning import decided, hardware_of, is_planned
from gtjax.training.prepare import Batch
from gtjax.training.progress import progress, say
from gtjax.training.replan import Watch, kept_promise
from gtjax.training.report import write_report
from gtjax.training.result import Result, result_values
from gtjax.training.run_folder import RunFolder
from gtjax.training.shares import batches_of
from gtjax.training.source import Source
from gtjax.training.step import Program
from gtjax.training.task import Task
from gtjax.training.turns import Turns

MANY_EDGES = 10_000_000  # from which on their figures take seconds


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was asked to stop, and has saved where it was."""


def fit(
    graph: Graph | Callable[[], Graph],
    model: ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    show_progress: bool = True,
    stop: StopRequest | None = None,
) -> Result:
    """Train a graph transformer on a graph; `model` takes the place of `config.model`.

    Deterministic by `config.seed`. The result holds the metrics of the parameters that were best
    on the validation nodes. `config.data` is only a name here: the graph is the one given. In a run
    of several processes every process calls this; give a function that loads the graph, and only
    the first calls it.
    """
    config = config or TrainConfig(data=graph.name if isinstance(graph, Graph) else "graph")
    if model is not None:
        config = dataclasses.replace(config, model=model)
    # Refuses what cannot run before making a folder.
    run = Run(this_team(), Source(graph), config, show_progress, stop)
    return run.from_the_start()


def resume(
    folder: RunFolder,
    config: TrainConfig,
    graph: Graph | Callable[[], Graph],
    *,
    show_progress: bool = True,
    stop: StopRequest | None = None,
) -> Result:
    """Continue a run from its newest good checkpoint, as if it had not stopped.

    Devices, mesh and strategy may be others than those it began with.
    """
    run = Run(this_team(), Source(graph), config, show_progress, stop, folder)
    return run.from_checkpoint()


@dataclass(frozen=True)
class _Decided:
    """What is settled before anything is placed, the same in every process."""

    config: TrainConfig
    facts: GraphFacts
    task: Task
    plan: dict[str, Any] | None

    @staticmethod
    def from_json(known: dict[str, Any]) -> _Decided:
        return _Decided(
            from_mapping(TrainConfig, known["config"], "config"),
            GraphFacts.from_json(known["facts"]),
            Task(**known["task"]),
            known["plan"],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "config": to_mapping(self.config),
            "facts": self.facts.to_json(),
            "task": dataclasses.asdict(self.task),
            "plan": self.plan,
        }


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
    ):
        self.team, self.source = team, source
        self.show = show and team.is_first
        self.stop = stop or StopRequest()
        self.plan: Plan | None = None
        if folder is not None:
            self.folder = dataclasses.replace(folder, writes=team.is_first)
        with self._lost_is_known(), progress("planning", 1.0, show=self.show) as update:
            settled = self._settled(config, update, folder)
        self.config, self.facts, self.task = settled.config, settled.facts, settled.task
        self.stored_plan = settled.plan
        self.watch = self.plan and Watch(self.plan, may_change=self.config.parallel.replan)
        self.kernel = kernel_name(self.config.kernel)
        self.program = Program(self.config, self.facts, self.task)
        self.rows: list[dict[str, Any]] = []  # of metrics.jsonl, one per step
        self.peak_bytes = 0

    def _settled(self, config: TrainConfig, update: Any, folder: RunFolder | None) -> _Decided:
        """Plan in the first process; links are measured by all."""
        planned = is_planned(config)
        hardware = hardware_of(config.parallel, update) if planned else None

        def settle() -> dict[str, Any]:
            if not planned and folder is not None and not self.team.is_alone:
                known = folder.read_json("data.json")
                if known:  # parts that are written need no graph
                    facts, task = GraphFacts.from_json(known["facts"]), Task(**known["task"])
                    return _Decided(config, facts, task, None).to_json()
            graph = self.source.graph
            if folder is not None:
                _check_same_data(folder, config, graph)
            task = Task.of(graph, config.metric, config.optim.label_smoothing)
            settled, self.plan = decided(config, graph, update, hardware)
            plan = self.plan and self.plan.to_json()
            if graph.num_edges > MANY_EDGES:
                update(0.95, "looking at the graph, for the report")
            return _Decided(settled, GraphFacts.of(graph), task, plan).to_json()

        return _Decided.from_json(self.team.from_first(settle))

    def from_the_start(self) -> Result:
        """In a new folder."""

        def create() -> str:
            return str(RunFolder.create(self.config).path)

        path = Path(self.team.from_first(create))
        self.folder = RunFolder(path, writes=self.team.is_first)
        self._describe_data()
        if self.show:
            say(f"{self.facts.text}\nrun folder: {self.folder.path}")
            if self.plan is not None:
                say(f"plan: {self.plan.flip}")
            for name, reason in missing_kernels().items():
                say(f"using kernel {self.kernel}; {name} would be faster, but {reason}")
        if self.stored_plan is not None:
            self.folder.write_json("plan.json", self.stored_plan)
        return self._run(lambda checkpoints: self._first())

    def from_checkpoint(self) -> Result:
        """In the folder of the run."""
        self.folder.write_json("config.json", to_mapping(self.config))
        self._describe_data()
        return self._run(self._restored)

    def _describe_data(self) -> None:
        """What the run was trained on, for those who resume it or predict with it."""
        known = {"facts": self.facts.to_json(), "task": dataclasses.asdict(self.task)}
        self.folder.write_json("data.json", known)

    def _first(self) -> Snapshot:
        return Snapshot.first(self.program.initial_state())

    def _restored(self, checkpoints: Checkpoints) -> Snapshot:
        """The newest checkpoint that is good in all processes; the start if there is none yet."""
        shapes, snapshot, damaged = Snapshot.shapes(self.program), None, []
        for step in self.team.from_first(checkpoints.steps):
            try:
                snapshot, problem = checkpoints.read(step, shapes), None
            except DamagedCheckpointError as error:
                problem = str(error)
            problems = [each for each in self.team.from_all(problem) if each is not None]
            if not problems:
                break
            damaged.append(problems[0])
            snapshot = None
            if self.show:
                say(f"skipping a checkpoint: {problems[0]}")
        if snapshot is None and damaged:
            raise UserError(f"no checkpoint of {self.folder.path} is good: {'; '.join(damaged)}")
        if snapshot is None:
            snapshot = self._first()
        else:
            snapshot = place_everywhere(self.program.spread.mesh, snapshot)
        step = int(snapshot.state.step)
        self.rows = self.folder.metrics(up_to_step=step)
        self.folder.rewrite_metrics(self.rows)
        if self.show:
            say(f"{self.facts.text}\nresuming {self.folder.path} at step {step}")
        return snapshot

    def _run(self, begin: Callable[[Checkpoints], Snapshot]) -> Result:
        if self.team.count > 1:
            where = topology(self.team)
            mesh = self.program.spread.shape
            if self.show:
                say(f"{where}; mesh node={mesh.node}, feature={mesh.feature}")
        with (
            self.stop,
            self._lost_is_known(),
            Checkpoints(self.folder.path, keep=self.config.runtime.checkpoint_keep) as checkpoints,
            EventWriter(
                self.folder.path, self.config.runtime.tensorboard and self.team.is_first
            ) as events,
        ):
            snapshot = begin(checkpoints)
            turns = None
            if not self.asked_to_stop():
                batches = self.batches()
                checkpoints.about = self.about(batches)
                with self._watchdog() as watchdog:
                    turns = Turns(self, checkpoints, events, watchdog, batches)
                    snapshot = turns.run(snapshot)
            checkpoints.save(snapshot)
        if turns is None or (turns.stopped and int(snapshot.state.step) < self.config.steps):
            raise Interrupted(
                f"stopped at step {int(snapshot.state.step)}; continue with: "
                f"gtjax resume {self.folder.path}"
            )
        with self._lost_is_known():
            return self._result(snapshot, turns.batches.whole)

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

    def batches(self) -> Batches:
        """The graph on the devices, as the program wants it."""
        with progress("preparing", 1.0, show=self.show) as update:
            partition = None
            if self.watch is not None and self.watch.running.parts is not None:
                partition = self.watch.running.parts.partition
            return batches_of(
                self.team,
                self.source,
                self.facts,
                self.config,
                self.program,
                self.folder.path,
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
            raise LostError(f"another process of this run is gone: {said}") from error

    def _result(self, snapshot: Snapshot, batch: Batch) -> Result:
        best = snapshot.chosen
        _, metrics = jax.jit(self.program.predict)(best.params, batch)
        values = result_values(
            self.rows,
            {name: float(value) for name, value in metrics.items()},
            best_step=int(best.step),
            steps=int(snapshot.state.step),
            peak_bytes_per_device=self.peak_bytes,
            kernel=self.kernel,
            processes=self.team.count,
            program=self.program,
            facts=self.facts,
            config=self.config,
        )
        values |= self._promise(values["seconds_per_step"])
        self.folder.write_json("result.json", values)
        if self.team.is_first:
            write_report(self.folder, self.facts, values, self.rows)
        return Result(self.folder.path, values)

    def _promise(self, seconds: float) -> dict[str, Any]:
        """What the plan predicted against what was measured, also by a run that was resumed."""
        if self.watch is not None:
            return {"plan": self.watch.result()}
        stored = self.folder.read_json("plan.json")
        return {} if stored is None else {"plan": kept_promise(stored, seconds)}


def _check_same_data(folder: RunFolder, config: TrainConfig, graph: Graph) -> None:
    known = folder.read_json("data.json")
    if known and known["facts"]["fingerprint"] != graph.fingerprint:
        raise UserError(f"{config.data} has changed since {folder.path} began; start a new run")
