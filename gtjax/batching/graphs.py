"""Some of many graphs in each step, whole, dealt out over the devices: only gradients travel.

Choose it for tasks of whole graphs where thousands of small steps learn better than hundreds of
large ones. An epoch is a random order of the training graphs; the few that do not fill a batch are
left out of it, others in each epoch. All batches have the same shapes: what the fullest of the
first epochs needs and a little more; a batch that exceeds them is replaced by another draw.
Evaluation sees all graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from gtjax.batching.base import Batches, Whole
from gtjax.batching.clusters import LOCAL, ROOM
from gtjax.batching.config import BatchingSettings
from gtjax.batching.prefetch import Prefetch
from gtjax.batching.prepare import Batch, Prepared, place_batch
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import Graph, ManyGraphs
from gtjax.graph.csr import build_csr
from gtjax.partition.whole_graphs import dealt, whole_graphs
from gtjax.sharding.mesh import Spread
from gtjax.strategies import NODE, Layout, Refusal, number_nodes
from gtjax.strategies.fitting import only_axes
from pallas_kernels.edges import TooLargeError

FIRST_EPOCHS, MOST_STEPS = 20, 2000  # that shapes are measured on
ATTEMPTS = 20
BATCH_SIZE = 128


class Subsets:
    """Any of many graphs as a graph of their own, without a look at the others."""

    def __init__(self, host: Prepared):
        many = host.edges.graphs
        assert many is not None
        self._host, self._many = host, many
        self._nodes = build_csr(many.ids_n, np.arange(len(many.ids_n)), many.count)
        edge_graph_e = many.ids_n[host.edges.receivers_e]
        self._edges = build_csr(edge_graph_e, np.arange(len(edge_graph_e)), many.count)

    @property
    def nodes_g(self) -> np.ndarray:
        """Nodes of each graph."""
        return self._nodes.degrees_n

    @property
    def edges_g(self) -> np.ndarray:
        """Edges of each graph."""
        return self._edges.degrees_n

    def take(self, chosen: np.ndarray, settings: BatchingSettings) -> Prepared:
        """These graphs, numbered in the order given."""
        nodes, ids = _members(self._nodes.offsets, self._nodes.neighbours_e, chosen)
        edges, _ = _members(self._edges.offsets, self._edges.neighbours_e, chosen)
        number_n = np.empty(self._host.graph.num_nodes, np.int32)
        number_n[nodes] = np.arange(len(nodes))
        graph, whole = self._host.graph, self._host.edges
        edge_x = None if whole.edge_x_ef is None else whole.edge_x_ef[edges]
        train_g = np.ones(len(chosen), bool)
        small = Graph(
            number_n[whole.senders_e[edges]],
            number_n[whole.receivers_e[edges]],
            graph.x_nf[nodes],
            graph.labels_n[nodes],
            edge_x_ef=edge_x,
            name=graph.name,
            graphs=ManyGraphs(ids, self._many.labels_g[chosen], {"train": train_g}),
        )
        positional_np = self._host.positional_np
        return self._host._replace(
            graph=small,
            edges=small,
            positional_np=None if positional_np is None else positional_np[nodes],
            order_n=None,
            targets=settings.targets(small),
        )


class GraphBatches:
    """A batch a step, as a function of the seed and the step's number."""

    def __init__(self, whole: Whole, settings: BatchingSettings, spread: Spread):
        many = whole.host.graph.graphs
        if many is None:
            raise UserError(
                f"--batching graphs takes some of many graphs in each step; "
                f"{whole.host.graph.name} is one graph. Use --batching full."
            )
        self.whole, self.partition_id = whole.batch, whole.partition.fingerprint
        self._settings, self._spread = settings, spread
        self._subsets = Subsets(whole.host)
        self._train = np.flatnonzero(many.split_g["train"])
        self._size = min(settings.batches.batch_size or BATCH_SIZE, len(self._train))
        self._at, self._batch = -1, None
        self._prefetch = Prefetch(self._placed, ahead=settings.batches.prefetch, threads=1)
        self._rows, self._edges = self._bounds()
        first = self._layout(self._subsets.take(self._draw(0), settings), room=ROOM).arrays
        self._like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first)

    def at(self, step: int) -> Batch:
        """The graphs of this step, placed when it is first asked for."""
        if self._batch is None or self.changes(step):
            self._batch, self._at = None, step
            self._batch = self._prefetch(step)
        return self._batch

    def changes(self, step: int) -> bool:
        """In every step."""
        return step != self._at

    def span(self, step: int) -> int | None:
        """One."""
        return 1

    def facts(self, step: int) -> dict[str, float]:
        """Nothing but which epoch it is."""
        return {"epoch": step * self._size / len(self._train)}

    def _draw(self, step: int, attempt: int = 0) -> np.ndarray:
        """Numbers of the graphs of a step."""
        epoch, number = divmod(step, len(self._train) // self._size)
        order = np.random.default_rng([self._settings.seed, epoch, attempt])
        mixed = order.permutation(self._train)
        return mixed[number * self._size : (number + 1) * self._size]

    def _bounds(self) -> tuple[int, int]:
        """Rows and edges that no part has in the first epochs: some is always padding."""
        parts, subsets = self._spread.shape.node, self._subsets
        steps = min(MOST_STEPS, FIRST_EPOCHS * (len(self._train) // self._size))
        rows = edges = 1
        for step in range(steps):
            chosen = self._draw(step)
            part_g = dealt((subsets.nodes_g + subsets.edges_g)[chosen], parts)
            rows = max(rows, int(np.bincount(part_g, subsets.nodes_g[chosen]).max()))
            edges = max(edges, int(np.bincount(part_g, subsets.edges_g[chosen]).max()))
        return rows + 1, edges + 1

    def _placed(self, step: int) -> Batch:
        """The first draw for this step that fits the shapes of all; draw 0 does."""
        for attempt in range(ATTEMPTS + 1):
            last = attempt == ATTEMPTS
            chosen = self._draw(0) if last else self._draw(step, attempt)
            host = self._subsets.take(chosen, self._settings)
            try:
                layout = self._layout(host, room=1.0, like=self._like)
            except TooLargeError:
                continue
            return place_batch(host, layout, self._spread)
        raise AssertionError("the shapes were made for draw 0")

    def _layout(self, host: Prepared, **fit: Any) -> Layout:
        shape = self._spread.shape
        partition = whole_graphs(host.edges, shape.node)
        if partition.sizes_p.max() >= self._rows:
            raise TooLargeError(f"a part has {partition.sizes_p.max()} nodes, of {self._rows}")
        numbering = number_nodes(partition, None, shape.feature, at_least=self._rows)
        forms, ends = self._settings.forms, (numbering, numbering)
        return LOCAL.layout(host.edges, *ends, shape, forms=forms, at_least=self._edges, **fit)


def _members(
    offsets: np.ndarray, items: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The items of the chosen rows one after the other, and which of the chosen each is of."""
    counts = np.diff(offsets)[chosen]
    of = np.repeat(np.arange(len(chosen)), counts)
    within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return items[offsets[chosen][of] + within], of


@dataclass(frozen=True)
class Graphs:
    """Each step trains on some of many graphs."""

    name: str = "graphs"
    sees_all: bool = False
    reads_stored: bool = False

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """Graphs lie along the node axis; what mixes nodes of a batch mixes what it may."""
        del couples_nodes
        return only_axes("--batching graphs", (NODE,), spread.shape)

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
        """Draw the first batch, for its shapes."""
        del progress
        return GraphBatches(whole, settings, training)
