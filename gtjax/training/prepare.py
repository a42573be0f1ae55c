"""From a graph on the host to the arrays that a training step reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import SPLITS, Graph, locality_order, log_gap
from gtjax.graph.positional import encode
from gtjax.nn import Inputs, ModelConfig
from gtjax.strategies import single
from gtjax.training.config import PrepareConfig

CACHE_BYTES = 16e6  # what a processor's cache holds of keys and values: less need not be reordered
WORTH_REORDERING = 0.5  # by how much the mean log2 of the distance between neighbours has to fall


class Batch(NamedTuple):
    """The whole graph on the device: what goes into the model, and what is asked of it.

    Nodes may stand in another order than in the user's graph: `inputs.node_ids_n` has their numbers
    there, and `in_graph_order` goes back.
    """

    inputs: Inputs
    layout: single.Layout
    labels_n: jax.Array
    split_n: dict[str, jax.Array]


def prepare_graph(graph: Graph, config: PrepareConfig) -> Graph:
    """The edges that messages flow along."""
    if config.symmetrise:
        graph = graph.symmetrised()
    return graph.with_self_loops() if config.self_loops else graph


def make_batch(
    graph: Graph,
    prepare: PrepareConfig,
    model: ModelConfig,
    kernel: str = "auto",
    progress: Callable[[float, str], None] | None = None,
) -> Batch:
    """Scale the features, encode positions, lay out the edges, and put all of it on the device."""
    positional_np = None
    if model.positional != "none":
        positional_np = encode(graph, model.positional, model.positional_size, progress=progress)
    x_nf = scale_features(graph.x_nf, prepare.features)
    node_ids_n = np.arange(graph.num_nodes, dtype=np.uint32)
    edges = prepare_graph(graph, prepare)
    order_n = node_order(edges, prepare, model)
    if order_n is not None:
        edges, graph = edges.reordered(order_n), graph.reordered(order_n)
        x_nf, node_ids_n = x_nf[order_n], node_ids_n[order_n]
        positional_np = None if positional_np is None else positional_np[order_n]
    layout = jax.device_put(single.layout(edges, kernel))
    inputs = Inputs(
        x_nf=jnp.asarray(x_nf),
        positional_np=None if positional_np is None else jnp.asarray(positional_np),
        edge_x_ef=layout.edge_x_ef,
        degree_n=jnp.asarray(edges.by_receiver.degrees_n, jnp.float32),
        node_ids_n=jnp.asarray(node_ids_n),
    )
    nobody_n = np.zeros(graph.num_nodes, bool)
    split_n = {name: jnp.asarray(graph.split_n.get(name, nobody_n)) for name in SPLITS}
    return Batch(inputs, layout, jnp.asarray(graph.labels_n), split_n)


def node_order(edges: Graph, prepare: PrepareConfig, model: ModelConfig) -> np.ndarray | None:
    """Which node stands at each position of the batch; None keeps the graph's own order."""
    gathered = 2 * 4 * edges.num_nodes * model.hidden  # keys and values, in bytes
    if prepare.reorder == "never" or (prepare.reorder == "auto" and gathered < CACHE_BYTES):
        return None
    order_n = locality_order(edges)
    gain = log_gap(edges) - log_gap(edges, order_n)
    return None if prepare.reorder == "auto" and gain < WORTH_REORDERING else order_n


def in_graph_order(batch: Batch, rows_n: np.ndarray) -> np.ndarray:
    """Rows that stand in the batch's order, put back in the order of the user's graph."""
    result = np.empty_like(rows_n)
    result[np.asarray(batch.inputs.node_ids_n)] = rows_n
    return result


def scale_features(x_nf: np.ndarray, how: str) -> np.ndarray:
    """Scale rows to sum 1, or columns to zero mean and unit variance; see PrepareConfig."""
    if how == "auto":
        sparse = x_nf.size and np.count_nonzero(x_nf) < 0.5 * x_nf.size and x_nf.min() >= 0
        how = "row" if sparse else "standard"
    if how == "none" or not x_nf.size:
        return x_nf
    x_nf = x_nf.astype(np.float32)
    if how == "row":
        total_n = np.abs(x_nf).sum(axis=1, keepdims=True)
        return x_nf / np.where(total_n > 0, total_n, 1)
    mean_f = x_nf.mean(axis=0, dtype=np.float64)
    std_f = x_nf.std(axis=0, dtype=np.float64)
    return ((x_nf - mean_f) / np.where(std_f > 0, std_f, 1)).astype(np.float32)
