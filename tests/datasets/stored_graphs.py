"""Stored graphs against graphs in memory: what has to be equal, and awkward edge lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gtjax
from gtjax.batching.config import PrepareConfig
from gtjax.batching.prepare import prepare_graph
from gtjax.datasets.conversion import ConvertOptions, convert
from gtjax.graph import Graph, StoredGraph

LITTLE = 1e-4  # GiB, so that even small graphs take several runs and stretches


def awkward_edges(nodes: int = 211, count: int = 4001, seed: int = 0) -> np.ndarray:
    """Edges [count, 2] with hubs, self-loops, edges of both directions and several of the same.

    Enough for several runs and stretches.
    """
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, nodes, (count, 2))
    edges[:900, 1] = 7
    edges[900:1500, 0] = 11
    edges[1500:1520, 1] = edges[1500:1520, 0]
    edges[1520:1600] = edges[1600:1680, ::-1]
    edges[1680:1700] = edges[1700]
    edges[-1] = (nodes - 1, 0)
    return edges


def write_csv(path: Path, edges: np.ndarray, header: str = "source,target") -> Path:
    lines = [header] * bool(header) + [",".join(map(str, row)) for row in edges.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(graph: Graph) -> np.ndarray:
    """Receivers, senders and features of all edges, in ascending order."""
    columns = [graph.receivers_e.astype(np.float64), graph.senders_e.astype(np.float64)]
    if graph.edge_x_ef is not None:
        columns += list(graph.edge_x_ef.T)
    table = np.stack(columns, axis=1)
    return table[np.lexsort(table.T[::-1])]


def assert_same_graph(found: Graph, wanted: Graph) -> None:
    """Equal up to the order of the edges within a receiver."""
    np.testing.assert_array_equal(rows_of(found), rows_of(wanted))
    for name in ("x_nf", "labels_n"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    assert set(found.split_n) == set(wanted.split_n)
    for name, mask_n in wanted.split_n.items():
        np.testing.assert_array_equal(found.split_n[name], mask_n)
    assert (found.names.nodes is None) == (wanted.names.nodes is None)
    if wanted.names.nodes is not None:
        np.testing.assert_array_equal(found.names.nodes, wanted.names.nodes)
    assert found.names.classes == wanted.names.classes
    assert found.names.features == wanted.names.features
    assert found.num_classes == wanted.num_classes


def assert_orders_agree(stored: StoredGraph) -> None:
    """Both orders hold the same edges, sorted as they should be."""
    own, out = stored.by_receiver, stored.by_sender
    receivers_e = np.repeat(np.arange(stored.num_nodes), np.diff(own.offsets))
    senders_e = np.asarray(own.neighbours_e)
    pairs = receivers_e * stored.num_nodes + senders_e
    assert (np.diff(pairs) >= 0).all()
    ids_e = np.asarray(out.edge_ids_e)
    np.testing.assert_array_equal(np.sort(ids_e), np.arange(stored.num_edges))
    np.testing.assert_array_equal(receivers_e[ids_e], out.neighbours_e)
    by_sender = np.repeat(np.arange(stored.num_nodes), np.diff(out.offsets))
    np.testing.assert_array_equal(senders_e[ids_e], by_sender)
    assert (np.diff(by_sender * stored.num_edges + ids_e) > 0).all()


def converted(data, folder: Path, **options) -> StoredGraph:
    """Convert with little memory, and hold the result to what `load` and `prepare_graph` give."""
    chosen = ConvertOptions(**({"memory": LITTLE} | options))
    convert(data, folder, chosen)
    stored = gtjax.load(folder)
    assert isinstance(stored, StoredGraph)
    stored.verify()
    assert_orders_agree(stored)
    wanted = data if isinstance(data, Graph) else gtjax.load(data)
    wanted = wanted.without_duplicate_edges() if chosen.distinct else wanted
    prepare = PrepareConfig(symmetrise=chosen.symmetrise, self_loops=chosen.self_loops)
    assert_same_graph(stored.in_memory(), prepare_graph(wanted, prepare))
    return stored
