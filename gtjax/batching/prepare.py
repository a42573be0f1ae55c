"""From a graph on the host to the sharded arrays that a training step reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gtjax.batching.config import BatchingSettings, PrepareConfig
from gtjax.batching.features import Scaling
from gtjax.batching.sparse import keeps_sparse
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import Graph, StoredGraph, Table, locality_order, log_gap, required_graph
from gtjax.graph.positional import encode
from gtjax.nn import Inputs
from gtjax.partition import Partition, partition_graph
from gtjax.sharding.abstract import abstract_everywhere, abstract_parts, abstract_rows
from gtjax.sharding.hops import Hops
from gtjax.sharding.mesh import Spread
from gtjax.sharding.place import place_everywhere, place_parts, place_rows
from gtjax.sharding.sparse import spread_rows
from gtjax.sharding.stored import StoreWriter, open_store, write_store
from gtjax.strategies import PADDING, Layout, number_nodes

CACHE_BYTES = 16e6  # what a processor's cache holds of keys and values: less need not be reordered
WORTH_REORDERING = 0.5  # by how much the mean log2 of the distance between neighbours has to fall


class Batch(NamedTuple):
    """The whole graph on the devices: what goes into the model, and what is asked of it.

    Nodes may stand in another order than in the user's graph, with padding between them:
    `inputs.node_ids_n` has their numbers there, and `in_graph_order` goes back.
    """

    inputs: Inputs
    layout: Any  # `Layout.arrays` of the strategy; None: in no layout, but in the graph's order
    targets: dict[str, jax.Array]  # of the task; a row a node, zeros for padding, or a `Table`
    weight_n: jax.Array | None = None  # of each node in the training loss; None: all are 1
    sum_scale_n: jax.Array | None = None  # of sampled nodes: in-edges over how many were drawn
    hops: Hops | None = None  # of a sampled batch, where targets and weights are of the seeds alone


def prepare_graph(graph: Graph | StoredGraph, config: PrepareConfig) -> Graph:
    """The edges that messages flow along; a stored graph is read into memory."""
    if isinstance(graph, StoredGraph):
        check_stored(graph, config)
        graph = required_graph(graph, "prepare_graph")
    if config.symmetrise:
        graph = graph.symmetrised(opposite=config.reverse == "opposite")
    return graph.with_self_loops() if config.self_loops else graph


def check_stored(graph: StoredGraph, config: PrepareConfig, *, in_place: bool = False) -> None:
    """Refuse a stored graph with edges that this config does not want.

    Nor, if it is to be read in place, may edges be missing.
    """
    wanted = {"symmetrise": config.symmetrise, "self_loops": config.self_loops}
    graph.check_prepared(**wanted, opposite=config.reverse == "opposite", adds=not in_place)


class MessageEdges(NamedTuple):
    """The edges that messages flow along, and the order that nodes stand in."""

    edges: Graph
    order_n: np.ndarray | None
    graph: str  # fingerprint of the graph that they were made from, and how they were
    config: PrepareConfig
    hidden: int


def message_edges(graph: Graph, config: PrepareConfig, hidden: int) -> MessageEdges:
    """Add edges and order the nodes; `hidden` is how wide the rows are that edges gather."""
    edges = prepare_graph(graph, config)
    order_n = node_order(edges, config, hidden)
    return MessageEdges(edges, order_n, graph.fingerprint, config, hidden)


class Prepared(NamedTuple):
    """A graph on the host, and what all batches of it share."""

    graph: Graph
    edges: Graph  # that messages flow along
    scale: Callable[[np.ndarray], np.ndarray]  # of rows of the features
    positional_np: np.ndarray | None
    order_n: np.ndarray | None
    targets: dict[str, np.ndarray | Table]  # of the task
    sparse_forms: tuple[Any, ...] | None = None  # of the features; None: they are dense


def prepare(
    graph: Graph | StoredGraph,
    settings: BatchingSettings,
    progress: Progress | None = None,
    known: MessageEdges | None = None,
) -> Prepared:
    """Add edges, look at the features, encode positions, and order the nodes.

    `known` is what `message_edges` has given already; taken if it was for the same. A stored graph
    stays where it is, with the edges that it has, in its own order.
    """
    if isinstance(graph, StoredGraph):
        return _prepared_in_place(graph, settings)
    positional_np, kind = None, settings.positional
    if kind != "none":
        positional_np = encode(graph, kind, settings.positional_size, progress=progress)
    wanted = (graph.fingerprint, settings.prepare, settings.hidden)
    if known is None or (known.graph, known.config, known.hidden) != wanted:
        known = message_edges(graph, settings.prepare, settings.hidden)
    scale = settings.scaling or Scaling.of(graph.x_nf, settings.prepare.features)
    targets, forms = settings.targets(graph), settings.sparse_forms
    if forms is not None and not keeps_sparse(graph.x_nf, settings.prepare, scale):
        forms = None
    return Prepared(graph, known.edges, scale, positional_np, known.order_n, targets, forms)


def _prepared_in_place(graph: StoredGraph, settings: BatchingSettings) -> Prepared:
    if settings.positional != "none":
        raise UserError(
            f"positional encodings are computed in memory, and {graph.name} is read from its "
            f"folder: use --model.positional none, or --batching full"
        )
    scale = settings.scaling or Scaling.of(graph.x_nf, settings.prepare.features)
    edges: Any = graph  # it has the surface that sampling and chunks read
    return Prepared(edges, edges, scale, None, None, settings.targets(edges))


def make_batch(
    graph: Graph, settings: BatchingSettings, spread: Spread, progress: Progress | None = None
) -> Batch:
    """Prepare the graph, share out the nodes, lay out the edges, and place everything."""
    host = prepare(graph, settings, progress)
    layout, _ = whole_layout(host, settings, spread, progress)
    return place_batch(host, layout, spread)


def whole_layout(
    host: Prepared,
    settings: BatchingSettings,
    spread: Spread,
    progress: Progress | None = None,
    partition: Partition | None = None,
) -> tuple[Layout, Partition]:
    """Share out the nodes and lay out the edges, as the strategy of `spread` does.

    `partition` is what the config's partitioner makes of the graph, where that is known already.
    """
    partition = partition or partition_graph(
        host.edges,
        spread.shape.node,
        settings.parallel.partitioner,
        seed=settings.seed,
        progress=progress,
    )
    numbering = number_nodes(partition, host.order_n, spread.shape.feature)
    layout = spread.strategy.layout(
        host.edges, numbering, numbering, spread.shape, forms=settings.forms
    )
    return layout, partition


def place_batch(
    host: Prepared, layout: Layout, spread: Spread, weight_n: np.ndarray | None = None
) -> Batch:
    """Put a graph that is laid out on the devices, shard by shard."""
    return _batch(host, layout, spread, weight_n, PLACED)


def abstract_batch(
    host: Prepared, layout: Layout, spread: Spread, weight_n: np.ndarray | None = None
) -> Batch:
    """The shapes of what `place_batch` gives, to compile for devices that need not be there.

    Of the tables of the graph only shapes and types matter.
    """
    return _batch(host, layout, spread, weight_n, ABSTRACT)


def store_batch(
    folder: str | Path,
    host: Prepared,
    layout: Layout,
    spread: Spread,
    weight_n: np.ndarray | None = None,
    *,
    about: Mapping[str, Any],
) -> None:
    """Write what `place_batch` would place to a new folder, for `open_batch` of every process.

    `about` says what it was made from, in JSON; `open_store(folder).about` gives it back.
    """
    write_store(
        folder,
        spread.mesh,
        lambda to: batch_for_store(host, layout, spread, to, weight_n),
        holds=holds(spread),
        about=about,
    )


def batch_for_store(
    host: Prepared,
    layout: Layout,
    spread: Spread,
    to: StoreWriter,
    weight_n: np.ndarray | None = None,
) -> Any:
    """What `place_batch` would place, written instead; gives the tree of what is stored."""
    placing = _Placing(to.rows, to.parts, to.everywhere)
    return _batch(host, layout, spread, weight_n, placing)


def open_batch(folder: str | Path, spread: Spread) -> Batch:
    """Place what `store_batch` wrote; of the shards, only those of this process's devices are read.

    The graph need not be known, and the result is that of `place_batch`.
    """
    store = open_store(folder)
    if store.holds != holds(spread):
        raise UserError(
            f"{folder} holds a {store.holds}; this is to be a {holds(spread)}. Remove {folder}: "
            "it is made again."
        )
    return store.place(spread.mesh)


def holds(spread: Spread) -> str:
    """What a store of a batch says that it holds."""
    return f"batch for {spread.strategy.name}"


class _Placing(NamedTuple):
    rows: Callable[..., Any]
    parts: Callable[..., Any]
    everywhere: Callable[..., Any]


PLACED = _Placing(place_rows, place_parts, place_everywhere)
ABSTRACT = _Placing(abstract_rows, abstract_parts, abstract_everywhere)


def _batch(
    host: Prepared,
    layout: Layout,
    spread: Spread,
    weight_n: np.ndarray | None,
    placing: _Placing,
) -> Batch:
    graph, edges = host.graph, host.edges
    node_pr, count = layout.receivers.node_pr, graph.num_nodes

    def nodes(source: np.ndarray, fill: Any = 0, **options: Any) -> Any:
        return placing.rows(spread.mesh, node_pr, source, fill, **options)

    def features() -> Any:
        if host.sparse_forms is None:
            return nodes(graph.x_nf, change=host.scale)
        devices = np.arange(spread.shape.devices)
        rows = spread_rows(node_pr, graph.x_nf, host.scale, len(devices), host.sparse_forms)
        return jax.tree.map(lambda x: placing.rows(spread.mesh, devices, x), rows)

    inputs = Inputs(
        x_nf=features(),
        positional_np=None if host.positional_np is None else nodes(host.positional_np),
        edge_x_ef=(
            None
            if edges.edge_x_ef is None
            else placing.rows(spread.mesh, layout.edge_pe, edges.edge_x_ef)
        ),
        valid_n=(nodes(np.ones(count, bool), False) if (node_pr == PADDING).any() else None),
        degree_n=nodes(edges.by_receiver.degrees_n.astype(np.float32)),
        node_ids_n=nodes(np.arange(count, dtype=np.uint32), count),
    )

    def target(known: np.ndarray | Table) -> Any:
        if not isinstance(known, Table):
            return nodes(known)
        values = layout.receivers.position_n[known.values] if known.nodes else known.values
        if not known.spread:
            return placing.everywhere(spread.mesh, values)
        count, devices = len(values), spread.shape.devices
        number_pr = np.full((devices, -(-count // devices)), PADDING)
        number_pr.reshape(-1)[:count] = np.arange(count)
        return placing.rows(spread.mesh, number_pr, values, -1)

    targets = {name: target(known) for name, known in host.targets.items()}
    arrays = placing.parts(spread.mesh, layout.arrays)
    weights = None if weight_n is None else nodes(weight_n)
    return Batch(inputs, arrays, targets, weights)


def node_order(edges: Graph, prepare: PrepareConfig, hidden: int) -> np.ndarray | None:
    """Which node stands at each position of the batch; None keeps the graph's own order."""
    gathered = 2 * 4 * edges.num_nodes * hidden  # keys and values, in bytes
    if prepare.reorder == "never" or (prepare.reorder == "auto" and gathered < CACHE_BYTES):
        return None
    order_n = locality_order(edges)
    gain = log_gap(edges) - log_gap(edges, order_n)
    return None if prepare.reorder == "auto" and gain < WORTH_REORDERING else order_n


def in_graph_order(batch: Batch, rows_n: np.ndarray) -> np.ndarray:
    """Rows that stand in the batch's order, put back in the order of the user's graph."""
    node_ids_n, valid_n = batch.inputs.node_ids_n, batch.inputs.valid_n
    if batch.layout is None:  # read in chunks: they stand in that order, and may be mapped
        return rows_n
    there_n = np.ones(len(rows_n), bool) if valid_n is None else np.asarray(valid_n)
    result = np.empty((there_n.sum(), *rows_n.shape[1:]), rows_n.dtype)
    result[np.asarray(node_ids_n)[there_n]] = rows_n[there_n]
    return result
