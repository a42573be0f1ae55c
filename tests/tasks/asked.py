"""Small graphs for every task, and a few steps on them without a run around."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from gtjax.batching.prepare import make_batch
from gtjax.datasets import load
from gtjax.graph import Graph, from_edges
from gtjax.graph import many_graphs as joined
from gtjax.nn import SAGEConfig
from gtjax.runs.config import OptimConfig, TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from gtjax.tasks.config import TaskConfig

MODEL = SAGEConfig(hidden=8, layers=2, dropout=0.2)


def one_graph() -> Graph:
    """151 nodes with classes; a prime, so that no number of devices divides it."""
    return load("synthetic-citation:nodes=151,classes=3,signal=3,seed=2")


def with_targets(graph: Graph | None = None, targets: int = 1) -> Graph:
    """Real numbers that neighbours tell, some of them unknown."""
    graph = one_graph() if graph is None else graph
    rng = np.random.default_rng(0)
    mean_n = np.zeros(graph.num_nodes)
    np.add.at(mean_n, graph.receivers_e, graph.x_nf[graph.senders_e, 0])
    values = mean_n[:, None] * np.arange(1, targets + 1) + 5 + rng.normal(0, 0.1, (len(mean_n), 1))
    values[::10] = np.nan
    known_n = ~np.isnan(values[:, 0])
    third_n = np.arange(len(mean_n)) % 3
    masks = {name: known_n & (third_n == i) for i, name in enumerate(("train", "val", "test"))}
    labels = values[:, 0] if targets == 1 else values
    return dataclasses.replace(graph, labels_n=labels, split_n=masks)


def many_graphs(count: int = 30, real: bool = False) -> Graph:
    """Rings with and without chords, which a feature tells apart; one is a single node."""
    rng = np.random.default_rng(1)
    graphs, labels_g = [], []
    for number in range(count):
        nodes = 1 if number == 4 else int(rng.integers(3, 9))
        ring = [(i, (i + 1) % nodes) for i in range(nodes)]
        chords = [(0, i) for i in range(nodes)] if number % 2 else []
        x_nf = rng.normal(size=(nodes, 3)).astype(np.float32)
        x_nf[:, 0] += 3 * (number % 2)
        graphs.append(from_edges(ring + chords, x_nf=x_nf))
        labels_g.append(float(nodes) if real else number % 2)
    third_g = np.arange(count) % 3
    masks = {name: third_g == i for i, name in enumerate(("train", "val", "test"))}
    return joined(graphs, np.array(labels_g), split_g=masks)


def config_of(task: str, devices: int = 1, strategy: str = "auto", **asked) -> TrainConfig:
    """Four steps of a small model."""
    return TrainConfig(
        steps=4,
        eval_every=4,
        task=task,
        model=MODEL,
        optim=OptimConfig(learning_rate=0.02, warmup=0),
        asked=TaskConfig(**asked),
        parallel=ParallelConfig(devices=devices, strategy=strategy, partitioner="contiguous"),
    )


class Steps:
    """The losses of a few steps, and the metrics after them."""

    def __init__(self, graph: Graph, config: TrainConfig):
        graph = config.prepared(graph)
        self.task = config.task_of(graph)
        self.program = Program(config, graph, self.task)
        self.batch = make_batch(graph, self.program.settings, self.program.spread)
        state = self.program.initial_state()
        step = self.program.compiled(state, self.batch, config.steps)
        state, losses = step(state, self.batch, np.int32(config.steps))
        self.losses = np.asarray(losses)
        self.outputs, metrics = jax.jit(self.program.predict)(state.params, self.batch)
        self.metrics = {name: float(value) for name, value in metrics.items()}
