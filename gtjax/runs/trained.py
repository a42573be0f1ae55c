"""A finished run brought back: its model, its predictions, its metrics.

run = gtjax.load_run("runs/...")
run.predict().answers_nc            # of the graph that it was trained on
run.predict(other_graph)            # of another one: models are inductive
run.embed(nodes=["a", "b"])
run.model.encoder                   # a Flax module with its weights
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from gtjax.batching.chunked_graph import chunked_graph
from gtjax.batching.prepare import check_stored, in_graph_order, make_batch
from gtjax.batching.table import BATCHINGS
from gtjax.core.compiled_programs import keep_compiled
from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.distributed.team import this_team
from gtjax.graph import Graph, StoredGraph, required_graph
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import TrainConfig
from gtjax.runs.ensemble import measured
from gtjax.runs.facts import GraphFacts
from gtjax.runs.phases import phase_until
from gtjax.runs.predictions import Predictions, node_numbers
from gtjax.runs.program import Outputs, Params, Program
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.run_graph import graph_of
from gtjax.runs.same_names import with_classes, with_features
from gtjax.runs.several_seeds import member
from gtjax.runs.stepper import Evaluator, evaluator
from gtjax.runs.trust import trust
from gtjax.runs.weights import named, save_weights
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import simulate_devices
from gtjax.sharding.recording import single_calls
from gtjax.tasks.base import task_from_json


def load_run(
    path: str | Path,
    *,
    model: type | None = None,
    parallel: ParallelConfig | None = None,
    memory: float | None = None,
) -> TrainedRun:
    """The run in a folder, or at an address such as s3://bucket/run, to be used.

    `model` is the class of a model of one's own, where it cannot be imported by its name;
    `parallel` are other devices than those that it was trained on. With `memory`, in GiB, a graph
    is gone through chunk by chunk, with what does not fit in files (see `gtjax/chunks`).
    """
    folder, config = RunFolder.open(path, model)
    if parallel is not None:
        config = dataclasses.replace(config, parallel=parallel)
    simulate_devices(config.parallel)
    return TrainedRun(folder, config, memory)


class TrainedRun:
    """The best parameters of a run, and what they say of graphs."""

    def __init__(self, folder: RunFolder, config: TrainConfig, memory: float | None = None):
        if config.runtime.keep_compiled:
            keep_compiled()
        known = folder.read_json("data.json")
        if known is None:
            raise UserError(
                f"{folder.shown} does not say what it was trained on: data.json is missing"
            )
        self.folder, self.config, self._memory = folder, config, memory
        self.facts = GraphFacts.from_json(known["facts"])
        self.task = task_from_json(known["task"])
        self._whole = Program(config, self.facts, self.task)
        spread = self._whole.spread
        calls = single_calls(self._whole.calls, (spread.strategy,))
        trust(config.kernel, calls, spread.platform, this_team())

    @cached_property
    def _chosen(self) -> Best:
        with Checkpoints(self.folder.path, store=self.folder.store) as checkpoints:
            return checkpoints.restore(Snapshot.shapes(self._whole)).chosen

    @cached_property
    def _program(self) -> Program:
        """In the phase that the parameters are of."""
        if not self._whole.phases:
            return self._whole
        return self._whole.in_phase(phase_until(self.config.model, int(np.max(self._chosen.step))))

    @property
    def params(self) -> Params:
        """The parameters that validated best, on the devices; of several seeds, a row each."""
        return self._chosen.params

    @property
    def model(self) -> Any:
        """The model with its weights: `model.encoder` and `model.head`, Flax modules.

        Of several seeds that of the first.
        """
        several = self.config.seeds > 1
        return self._program.model(member(self.params, 0) if several else self.params)

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """The parameters as arrays by name."""
        return named(self.params)

    def save_weights(self, path: str | Path) -> None:
        """Write the parameters to a safetensors file, which `TrainConfig.weights` starts from."""
        save_weights(self.weights, path)

    @cached_property
    def graph(self) -> Graph:
        """The graph that it was trained on: kept with the run, or loaded and checked."""
        return self._required(graph_of(self.folder, self.config), "predict")

    def predict(
        self,
        graph: Graph | None = None,
        *,
        nodes: Sequence[Any] | np.ndarray | None = None,
        pairs: Any = None,
    ) -> Predictions:
        """What the model says of its own graph, or of one like it.

        The graph may lack labels and splits; a metric over no labelled node is NaN. `nodes` chooses
        some, by number or name. `pairs` [k, 2] are the pairs that a model of links is asked for: by
        default those that were held out for test, then the pairs that no edge joins.
        """
        graph = self._fitted(self.graph if graph is None else self._required(graph, "predict"))
        names, count = graph.names.nodes, graph.num_nodes
        if pairs is not None:
            graph = self._asked(graph, node_numbers(pairs, names, count))
        measure = self._evaluator(graph)
        outputs, metrics = measured(self._program, measure, self.params)
        answers_nc, pairs_k2 = self._answers(outputs, graph, measure.batch)
        classes = self.facts.class_names
        one_of_several = self.task.ANSWERS[0] == "probability" and not self.facts.is_multilabel
        found = Predictions(
            answers_nc,
            in_graph_order(measure.batch, np.asarray(outputs.embeddings_nf)),
            {n: v for n, v in metrics.items() if n != "seeds"} if pairs is None else {},
            self.task.ANSWERS,
            None if self.task.OF == "graph" else names,
            classes if len(classes) == answers_nc.shape[1] else (),
            answers_nc.argmax(axis=1) if one_of_several and answers_nc.shape[1] > 1 else None,
            self.task.OF,
            pairs_k2,
        )
        return found if nodes is None else found.only(nodes, count)

    def embed(
        self, graph: Graph | None = None, *, nodes: Sequence[Any] | np.ndarray | None = None
    ) -> np.ndarray:
        """Embeddings of all nodes, or of some, [nodes, width]."""
        graph = self.graph if graph is None else self._required(graph, "embed")
        rows_nf = self.predict(graph).embeddings_nf
        if nodes is None:
            return rows_nf
        return rows_nf[node_numbers(nodes, graph.names.nodes, graph.num_nodes)]

    def evaluate(self, graph: Graph | None = None) -> dict[str, float]:
        """The metrics of train, val and test."""
        return self.predict(graph).metrics

    def _required(self, graph: Any, function: str) -> Graph:
        """The graph in memory; a stored one stays where it is if it was trained so."""
        in_place = BATCHINGS[self.config.batches.batching].reads_stored or self._memory is not None
        if in_place and isinstance(graph, StoredGraph):
            check_stored(graph, self.config.preparation, in_place=True)
            return cast("Graph", graph)  # it has the surface that is read here
        return required_graph(graph, function)

    def _evaluator(self, graph: Graph) -> Evaluator:
        """On the devices, or chunk by chunk: where memory is given, or it was trained so."""
        program, settings = self._program, self._program.settings
        chunks = self.config.batches.batching == "chunks" or not isinstance(graph, Graph)
        if self._memory is None and not chunks:
            return evaluator(program, make_batch(graph, settings, program.spread))
        if self._memory is not None:
            parallel = dataclasses.replace(settings.parallel, memory=self._memory)
            settings = dataclasses.replace(settings, parallel=parallel)
        return evaluator(program, chunked_graph(graph, settings))

    def _answers(
        self, outputs: Outputs, graph: Graph, batch: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """A row each of what has answers, and the pairs, if those have."""
        answers = self.task.answers(outputs.answers)
        if self.task.OF != "pair":
            rows = np.asarray(answers)
            return (in_graph_order(batch, rows) if self.task.OF == "node" else rows), None
        links = graph.links
        assert links is not None
        asked = {"test": links.test, "test_negative": links.test_negative}
        found = [np.asarray(answers[name])[: len(pairs)] for name, pairs in asked.items()]
        return np.concatenate(found)[:, None], np.concatenate(list(asked.values()))

    def _asked(self, graph: Graph, pairs_k2: np.ndarray) -> Graph:
        """The graph with these pairs in the place of those that were held out."""
        if self.task.OF != "pair" or graph.links is None:
            raise UserError(
                f"pairs= is for models of links; this one was asked for a {self.task.OF}"
            )
        if pairs_k2.ndim != 2 or pairs_k2.shape[1] != 2 or not len(pairs_k2):
            raise UserError(f"pairs are [k, 2], at least one; found shape {list(pairs_k2.shape)}")
        none = np.zeros((0, 2), np.int64)
        given = {"test": pairs_k2, "test_negative": none}
        links = graph.links.changed(lambda name, pairs: given.get(name, pairs))
        return dataclasses.replace(graph, links=links)

    def _fitted(self, graph: Graph) -> Graph:
        """The graph as the task wants it; refuses what differs from what was trained on."""
        for name in ("num_features", "num_edge_features"):
            if getattr(self.facts, name) != getattr(graph, name):
                raise UserError(
                    f"{self.folder.shown} was trained on {getattr(self.facts, name)} "
                    f"{name.removeprefix('num_').replace('_', ' ')}; {graph.name} has "
                    f"{getattr(graph, name)}"
                )
        graph = with_classes(graph, self.facts.class_names)
        fitted = self.task.fitted(with_features(graph, self.facts.feature_names))
        if getattr(self.task, "label_input", False) and "train" not in fitted.split_n:
            say(
                f"the model reads training labels, of which {graph.name} has none (no train mask): "
                f"it will do worse than in training"
            )
        return fitted
