"""Neighbours on one device, without mesh or strategy: the ops of pallas_kernels, no more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels import (
    Dropout,
    build_edges,
    segment_attention,
    segment_custom,
    segment_extreme,
    segment_gat,
    segment_gatv2,
    segment_sum,
)

NODES = 23


def drawn_edges() -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, in receiver order: multi-edges, self-loops, nodes without edges."""
    rng = np.random.default_rng(0)
    receivers_e = np.sort(rng.integers(0, NODES - 2, 90))
    return rng.integers(0, NODES, 90), receivers_e


class LocalNeighbours:
    """`gtjax.nn.Neighbours` over edges in receiver order; rows of edges go in that order."""

    def __init__(self, senders_e: np.ndarray, receivers_e: np.ndarray, nodes: int):
        self.edges = jax.tree.map(
            jnp.asarray,
            build_edges(senders_e, receivers_e, num_senders=nodes, num_receivers=nodes),
        )
        self.degree_n = jnp.asarray(np.bincount(receivers_e, minlength=nodes), jnp.float32)

    @staticmethod
    def of(graph: Any) -> tuple[jax.Array | None, LocalNeighbours]:
        """The edge features of a graph in the right order, and its neighbours."""
        order_e = graph.by_receiver.edge_ids_e
        edge_x_ef = None if graph.edge_x_ef is None else jnp.asarray(graph.edge_x_ef[order_e])
        ends = graph.senders_e[order_e], graph.receivers_e[order_e]
        return edge_x_ef, LocalNeighbours(*ends, graph.num_nodes)

    def last(self, ops):
        return self

    def own(self, x):
        return x

    def attend(self, q_nhd, k_nhd, v_nhd, bias_eh=None, *, dropout=None):
        return segment_attention(
            q_nhd, k_nhd, v_nhd, self.edges, bias_eh, dropout=_drawn(dropout), kernel="xla"
        )

    def attend_additive(
        self, receiver, sender, values_nhd=None, bias=None, *, vector_hd=None, slope=0.2,
        dropout=None,
    ):  # fmt: skip
        options: dict[str, Any] = {"slope": slope, "dropout": _drawn(dropout), "kernel": "xla"}
        if vector_hd is None:
            return segment_gat(receiver, sender, values_nhd, self.edges, bias, **options)
        return segment_gatv2(receiver, sender, vector_hd, self.edges, bias, **options)

    def sum(self, x_nf, weight_e=None, *, dropout=None, reduce="sum"):
        flat = x_nf.ndim == 2
        rows = x_nf[:, None] if flat else x_nf
        weight = weight_e[:, None] if flat and weight_e is not None else weight_e
        options: dict[str, Any] = {"dropout": _drawn(dropout), "kernel": "xla"}
        return segment_sum(rows, self.edges, weight, reduce=reduce, **options).reshape(x_nf.shape)

    def mean(self, x_nf, weight_e=None, *, dropout=None):
        return self.sum(x_nf, weight_e, dropout=dropout, reduce="mean")

    def max(self, x_nf):
        return segment_extreme(x_nf, self.edges, reduce="max", kernel="xla")

    def min(self, x_nf):
        return segment_extreme(x_nf, self.edges, reduce="min", kernel="xla")

    def aggregate(self, message, *, splits=None, dropout=None, **options):
        return segment_custom(message, self.edges, dropout=_drawn(dropout), **options)

    def propagate(self, q_nhd, k_nhd, v_nhd, bias_eh=None, *, rounds, restart, dropout=None):
        values = v_nhd
        for _ in range(rounds):
            mixed = self.attend(q_nhd, k_nhd, values.astype(k_nhd.dtype), bias_eh, dropout=dropout)
            values = (1 - restart) * mixed + restart * v_nhd
        return values


def _drawn(dropout):
    return None if dropout is None else Dropout(*dropout)
