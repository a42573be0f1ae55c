"""Clusters of the graph for each device, without the edges between devices: only gradients travel.

Each device's part is its induced subgraph: edges between parts are left out, so no op needs another
device, whatever the number of layers. A step moves the gradients of the parameters, `2 (P-1)/P`
times their bytes, and nothing that grows with the graph. Choose it where the network is so slow
that even the halo (`node_halo`) takes longer than the rest of the step. It is *approximate*:
gradients are not those of the whole graph, and by how much less of it nodes see is their coverage
(`coverage.py`). Clusters that are dealt out anew in the course of training
(`gtjax.partition.regroup`) and weights by coverage make up for most of it. Evaluation sees the
whole graph, laid out for a strategy on the same devices, which then hold the features twice.

After Grappa (Xu, Siebenbrunner and Bindschaedler 2026, "Gradient-Only Communication for Scalable
Graph Neural Network Training").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax
import numpy as np

from gtjax.batching.base import Batches, Whole
from gtjax.batching.config import BatchingSettings
from gtjax.batching.coverage import WEIGHTS, Coverage
from gtjax.batching.induced import ClusterSeeds, Induced
from gtjax.batching.prepare import Batch, place_batch
from gtjax.batching.sampled import SampledBatches
from gtjax.core.progress import Progress
from gtjax.partition import Partition, Regrouping, partition_graph
from gtjax.partition.partition import MAX_PARTS
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Layout, Refusal, number_nodes
from gtjax.strategies.single import Single
from pallas_kernels.edges import Edges, TooLargeError

ROOM = 1.1  # for what kernels derive from the edges of the first draw
LOCAL = Single()


@dataclass(frozen=True)
class Shapes:
    """Shapes that several layouts have in common.

    rows, edges: at least so many of each in the arrays of a part.
    room:        by how much the arrays that a kernel derives from the edges exceed their need.
    like:        the arrays of a layout whose shapes others get (`TooLargeError` if they cannot).
    """

    rows: int = 1
    edges: int = 0
    room: float = 1.0
    like: Edges | None = None


class ClusterBatches:
    """Parts without the edges between them, drawn anew every so many steps.

    On the host a draw takes a sort of the edges; the devices receive their part of the graph anew.
    """

    def __init__(
        self,
        whole: Whole,
        settings: BatchingSettings,
        spread: Spread,
        progress: Progress | None = None,
    ):
        self.whole, self.partition_id = whole.batch, whole.partition.fingerprint
        self._host, self._settings, self._spread = whole.host, settings, spread
        self._partition, self._shapes = whole.partition, Shapes()
        self._every, self._regrouping = settings.batches.repartition, None
        host = whole.host
        if self._every:
            count = min(spread.shape.node * settings.batches.clusters, MAX_PARTS)
            how = settings.parallel.partitioner
            clusters = partition_graph(
                host.edges, count, how, seed=settings.seed, progress=progress
            )
            self._regrouping = Regrouping(host.edges, clusters, spread.shape.node, settings.seed)
            self._shapes = self._fixed_shapes(self._regrouping)
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

    def span(self, step: int) -> int | None:
        """Until the next draw."""
        return self._every - step % self._every if self._every else None

    def facts(self, step: int) -> dict[str, float]:
        """What training nodes see of their neighbourhoods, if a draw begins here."""
        begins = step % self._every == 0 if self._every else step == 0
        if not begins:
            return {}
        self.at(step)
        mean, least, most = (self._seen[name] for name in ("mean", "min", "max"))
        return {"coverage": mean, "coverage_min": least, "coverage_max": most}

    def _number_of(self, step: int) -> int:
        return step // self._every if self._every else 0

    def _fixed_shapes(self, regrouping: Regrouping) -> Shapes:
        """Shapes that every draw gets: those of the first, which every run can lay out again."""
        bounds = regrouping.bounds
        roomy = Shapes(rows=bounds.nodes, edges=bounds.edges, room=ROOM)
        first = self._layout(roomy, next(regrouping.partitions(0))).arrays
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first)
        return replace(roomy, room=1.0, like=like)

    def _placed(self, number: int) -> Batch:
        layout, partition = self._drawn(number)
        coverage = Coverage.of(self._host.edges, partition, self._counted_n())
        self._seen = coverage.summary
        weight_p = WEIGHTS[self._settings.batches.coverage](coverage)
        weight_n = weight_p[partition.owner_n].astype(np.float32)
        return place_batch(self._host, layout, self._spread, weight_n)

    def _counted_n(self) -> np.ndarray:
        """The nodes that the training loss counts; all, if it counts something else."""
        asked = self._host.targets.get("train")
        if isinstance(asked, np.ndarray) and asked.dtype == np.bool_:
            return asked
        return np.ones(self._host.graph.num_nodes, bool)

    def _drawn(self, number: int) -> tuple[Layout, Partition]:
        """The first layout of this draw that fits the shapes of all."""
        for partition in self._partitions(number):
            try:
                return self._layout(self._shapes, partition), partition
            except TooLargeError:
                continue
        raise AssertionError("the last draw that is offered is the one the shapes are made for")

    def _partitions(self, number: int) -> Iterator[Partition]:
        if self._regrouping is None:
            return iter([self._partition])
        return self._regrouping.partitions(number)

    def _layout(self, shapes: Shapes, partition: Partition) -> Layout:
        shape = self._spread.shape
        order_n, least = self._host.order_n, shapes.rows
        numbering = number_nodes(partition, order_n, shape.feature, at_least=least)
        return LOCAL.layout(
            self._host.edges,
            numbering,
            numbering,
            shape,
            forms=self._settings.forms,
            at_least=shapes.edges,
            room=shapes.room,
            like=shapes.like,
        )


@dataclass(frozen=True)
class Clusters:
    """Each device trains on clusters of its own, without the edges between devices."""

    name: str = "clusters"
    sees_all: bool = False
    reads_stored: bool = False

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """Parts lie along the node axis, and nothing in the model mixes nodes of all of them."""
        if spread.shape.feature > 1:
            return Refusal(
                f"clusters are spread over the node axis alone; the mesh is {spread.shape}",
                "Use --mesh with feature=1",
            )
        if couples_nodes is not None:
            return Refusal(
                f"clusters exchange nothing but gradients; {couples_nodes} mixes all nodes of the "
                f"graph in every layer",
                "Change that setting, or use --batching full",
            )
        return None

    def training(self, evaluation: Spread) -> Spread:
        """Without transport."""
        return replace(evaluation, strategy=LOCAL)

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """Cut the graph into clusters, and deal them out; some a step, if a size is given."""
        asked = settings.batches
        if asked.batch_size is not None:
            host, how = whole.host, settings.parallel.partitioner
            count = min(training.shape.node * asked.clusters, MAX_PARTS, host.graph.num_nodes)
            clusters = partition_graph(
                host.edges, count, how, seed=settings.seed, progress=progress
            )
            seeds = ClusterSeeds.of(host, clusters)
            drawing = Induced(host.edges.by_receiver)
            return SampledBatches(whole, settings, training, drawing, seeds, asked.batch_size)
        return ClusterBatches(whole, settings, training, progress)
