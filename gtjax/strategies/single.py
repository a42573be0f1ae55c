"""The whole graph on one device: nothing is exchanged. The yardstick for every other strategy."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from gtjax.graph import Graph, UserError
from pallas_kernels.segment_attention import (
    BACKENDS,
    Dropout,
    Edges,
    backend_name,
    build_edges,
    choose_backend,
    segment_attention,
)


class Layout(NamedTuple):
    """The graph's edges, sorted by receiver, and their features."""

    edges: Edges
    edge_x_ef: Any


def kernel_name(kernel: str) -> str:
    """The attention back end that `kernel` stands for here; one that cannot run is an error."""
    try:
        return backend_name(kernel)
    except ValueError as error:
        raise UserError(f"--kernel {kernel}: {error}") from error


def missing_kernels() -> dict[str, str]:
    """Back ends that are made for this platform and cannot run on it, and why."""
    platform = jax.default_backend()
    reasons = {n: b.why_not() for n, b in BACKENDS.items() if platform in b.platforms}
    return {name: reason for name, reason in reasons.items() if reason}


def layout(graph: Graph, kernel: str = "auto") -> Layout:
    """Sort the edges by receiver, as the kernel needs them (host side, numpy)."""
    rows = graph.by_receiver
    edges = build_edges(
        rows.neighbours_e,
        graph.receivers_e[rows.edge_ids_e],
        num_senders=graph.num_nodes,
        num_receivers=graph.num_nodes,
        edge_ids_e=rows.edge_ids_e,
        layouts=choose_backend(kernel).layouts,
    )
    edge_x_ef = None if graph.edge_x_ef is None else graph.edge_x_ef[rows.edge_ids_e]
    return Layout(edges, edge_x_ef)


def attend(
    layout: Layout,
    q_nhd: jax.Array,
    k_nhd: jax.Array,
    v_nhd: jax.Array,
    bias_eh: jax.Array | None,
    *,
    dropout: tuple[float, jax.Array] | None = None,
    kernel: str = "auto",
) -> jax.Array:
    """Attention over all the edges of the graph."""
    drop = None if dropout is None else Dropout(*dropout)
    return segment_attention(
        q_nhd, k_nhd, v_nhd, layout.edges, bias_eh, dropout=drop, kernel=kernel
    )
