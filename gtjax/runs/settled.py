"""What is settled before a run places anything: the graph and its task are known, a plan is made.

The first process reads the graph and decides; the others are told. Links are measured by all.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gtjax.batching.features import Scaling
from gtjax.batching.prepare import check_stored
from gtjax.core.progress import say
from gtjax.runs.config import TrainConfig, from_mapping, to_mapping
from gtjax.runs.facts import GraphFacts
from gtjax.runs.planning import (
    chunks_notice,
    decided,
    hardware_of,
    is_planned,
    notice_of_measuring,
)
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.run_graph import check_same_graph
from gtjax.runs.trust import trust_measured
from gtjax.tasks.base import Task, name_of, task_from_json, task_to_json

if TYPE_CHECKING:
    from gtjax.runs.loop import Run

MANY_EDGES = 10_000_000  # from which on their figures take seconds


@dataclass(frozen=True)
class Settled:
    """What is settled before anything is placed, the same in every process."""

    config: TrainConfig
    facts: GraphFacts
    task: Task
    plan: dict[str, Any] | None

    @staticmethod
    def from_json(known: dict[str, Any]) -> Settled:
        """As another process has told it."""
        return Settled(
            from_mapping(TrainConfig, known["config"], "config"),
            GraphFacts.from_json(known["facts"]),
            task_from_json(known["task"]),
            known["plan"],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "config": to_mapping(self.config),
            "facts": self.facts.to_json(),
            "task": task_to_json(self.task),
            "plan": self.plan,
        }


def settled(run: Run, config: TrainConfig, update: Any, folder: RunFolder | None) -> Settled:
    """Plan in the first process; links are measured by all."""
    planned = run.plan is None and is_planned(config)
    hardware = None
    if planned:
        if notice := notice_of_measuring(config.parallel):
            trust_measured(config.kernel, run.team, show=run.show)
            if run.show:
                say(notice)
        hardware = hardware_of(config.parallel, lambda done, text: update(0.6 * done, text))

    def settle() -> dict[str, Any]:
        if not planned and folder is not None and not run.team.is_alone:
            known = folder.read_json("data.json")
            if known:  # parts that are written need no graph
                facts = GraphFacts.from_json(known["facts"])
                task = task_from_json(known["task"])
                return Settled(config, facts, task, None).to_json()
        run.team.doing("reading the graph")
        with run.clock.on("reading the graph"):
            if run.source.stored is not None:
                place = run.source.in_place
                check_stored(run.source.stored, config.preparation, in_place=place)
            whole = run.source.graph
        run.team.doing("planning")
        if folder is not None:
            check_same_graph(folder, whole)
        graph = config.prepared(whole)
        task = config.task_of(graph)
        chosen, run.plan = decided(config, graph, update, hardware, run.plan)
        chosen = dataclasses.replace(chosen, task=name_of(task))
        chunks = config.batches.batching != "chunks" and chosen.batches.batching == "chunks"
        if chunks and run.show:
            say(chunks_notice(chosen, graph))
        plan = run.plan and run.plan.to_json()
        run.source.known = run.plan and run.plan.prepared
        if graph.num_edges > MANY_EDGES:
            update(0.95, "looking at the graph, for the report")
        scaling = Scaling.of(graph.x_nf, config.prepare.features).to_json()
        facts = dataclasses.replace(GraphFacts.of(whole), scaling=scaling)
        return Settled(chosen, facts, task, plan).to_json()

    return Settled.from_json(run.team.from_first(settle))
