"""The batches of a run: what its steps train on, and what it is evaluated on.

Exact strategies have one batch for both. Under `isolated` training sees parts without the edges
between them, and new parts every so many steps; evaluation sees the whole graph, laid out for an
exact strategy on the same devices, which then hold the features twice. Which parts a step sees is
a function of the seed and its number, so a run that is resumed goes on as if it had not stopped;
and all have the same shapes, so a step is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import jax
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Partition, Regrouping, partition_graph
from gtjax.partition.partition import MAX_PARTS
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Isolated, Layout, TooLargeError
from gtjax.strategies.coverage import WEIGHTS, Coverage
from gtjax.training.config import TrainConfig
from gtjax.training.prepare import Batch, Prepared, Progress, place_batch, prepare, whole_layout

ROOM = 1.1  # for what kernels derive from the edges of the first draw


class Batches(Protocol):
    """What the steps of a run see."""

    whole: Batch  # all of the graph, for evaluation
    partition_id: str  # hash of which part owns each node

    def at(self, step: int) -> Batch:
        """What step number `step` trains on, counted from 0."""
        ...

    def changes(self, step: int) -> bool:
        """Whether a new batch has to be placed for this step."""
        ...

    def steps_left(self, step: int) -> int | None:
        """How many steps from this one on see the same; None if all."""
        ...

    def coverage(self, step: int) -> dict[str, float]:
        """If parts begin with this step that leave out edges: how much of the graph they see.

        On average over labelled training nodes (`coverage`), and in the parts that see the least
        and the most (`coverage_min`, `coverage_max`).
        """
        ...


def make_batches(
    graph: Graph,
    config: TrainConfig,
    training: Spread,
    exact: Spread,
    progress: Progress | None = None,
    partition: Partition | None = None,
) -> Batches:
    """The batches of a run, of which the first are placed; see `whole_layout`."""
    host = prepare(graph, config, progress)
    layout, partition = whole_layout(host, config, exact, progress, partition)
    whole = place_batch(host, layout, exact)
    if training.strategy.exact:
        return OneBatch(whole, partition.fingerprint)
    return IsolatedBatches(whole, host, config, training, partition, progress)


class OneBatch:
    """The whole graph in every step."""

    def __init__(self, whole: Batch, partition_id: str):
        self.whole, self.partition_id = whole, partition_id

    def at(self, step: int) -> Batch:
        """The one batch."""
        return self.whole

    def changes(self, step: int) -> bool:
        """Never."""
        return False

    def steps_left(self, step: int) -> int | None:
        """All."""
        return None

    def coverage(self, step: int) -> dict[str, float]:
        """Nothing is left out."""
        return {}


class IsolatedBatches:
    """Parts without the edges between them, drawn anew every so many steps.

    On the host a draw takes a sort of the edges; the devices receive their part of the graph anew.
    """

    def __init__(
        self,
        whole: Batch,
        host: Prepared,
        config: TrainConfig,
        spread: Spread,
        partition: Partition,
        progress: Progress | None = None,
    ):
        self.whole, self.partition_id = whole, partition.fingerprint
        self._host, self._config, self._spread = host, config, spread
        self._partition, self._strategy = partition, Isolated()
        self._every, self._regrouping = config.parallel.repartition, None
        if self._every:
            count = min(spread.shape.node * config.parallel.clusters, MAX_PARTS)
            how = config.parallel.partitioner
            clusters = partition_graph(host.edges, count, how, seed=config.seed, progress=progress)
            self._regrouping = Regrouping(host.edges, clusters, spread.shape.node, config.seed)
            self._strategy = self._fixed_shapes(self._regrouping)
        self._number, self._batch = -1, None
        self._seen: dict[str, float] = {}

    def at(self, step: int) -> Batch:
        """The parts of this step, placed when it is the first that sees them."""
        if self._batch is None or self.changes(step):
            self._batch = None  # before the next one is placed, so that there is room for it
            self._number = self._number_of(step)
            self._batch = self._placed(self._number)
        return self._batch

    def changes(self, step: int) -> bool:
        """Whether the parts of this step are others than those on the devices."""
        return self._number_of(step) != self._number

    def steps_left(self, step: int) -> int | None:
        """Until the next draw."""
        return self._every - step % self._every if self._every else None

    def coverage(self, step: int) -> dict[str, float]:
        """What labelled training nodes see of their neighbourhoods, if a draw begins here."""
        begins = step % self._every == 0 if self._every else step == 0
        if not begins:
            return {}
        self.at(step)
        mean, least, most = (self._seen[name] for name in ("mean", "min", "max"))
        return {"coverage": mean, "coverage_min": least, "coverage_max": most}

    def _number_of(self, step: int) -> int:
        return step // self._every if self._every else 0

    def _fixed_shapes(self, regrouping: Regrouping) -> Isolated:
        """Shapes that every draw gets: those of the first, which every run can lay out again."""
        bounds = regrouping.bounds
        strategy = Isolated(rows=bounds.nodes, edges=bounds.edges, room=ROOM)
        first = self._layout(strategy, next(regrouping.partitions(0))).arrays
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first)
        return replace(strategy, room=1.0, like=shapes)

    def _placed(self, number: int) -> Batch:
        layout, partition = self._drawn(number)
        graph = self._host.graph
        labelled_n = graph.labels_n >= 0
        labelled_n = labelled_n.any(axis=1) if labelled_n.ndim > 1 else labelled_n
        counted_n = labelled_n & graph.split_n["train"]
        coverage = Coverage.of(self._host.edges, partition, counted_n)
        self._seen = coverage.summary
        weight_p = WEIGHTS[self._config.parallel.coverage](coverage)
        weight_n = weight_p[partition.owner_n].astype(np.float32)
        return place_batch(self._host, layout, self._spread, weight_n)

    def _drawn(self, number: int) -> tuple[Layout, Partition]:
        """The first layout of this draw that fits the shapes of all."""
        for partition in self._partitions(number):
            try:
                return self._layout(self._strategy, partition), partition
            except TooLargeError:
                continue
        raise AssertionError("the last draw that is offered is the one the shapes are made for")

    def _partitions(self, number: int) -> Iterator[Partition]:
        if self._regrouping is None:
            return iter([self._partition])
        return self._regrouping.partitions(number)

    def _layout(self, strategy: Isolated, partition: Partition) -> Layout:
        return strategy.layout(
            self._host.edges,
            partition,
            self._spread.shape,
            kernel=self._spread.backend(self._config.kernel),
            propagates=self._config.model.architecture == "decoupled",
            order_n=self._host.order_n,
        )
