"""Parts of the graph along one axis of the mesh, heads along the other.

Within a part, devices trade rows of nodes for heads (all-to-all over the feature axis); each then
follows any node strategy for its share of the heads, over the node axis, and the outputs are traded
back. Halos shrink with the number of parts and messages with the number of heads, so choose it for
many devices. Heads have to divide over the feature axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut, Partition
from gtjax.strategies.base import (
    FEATURE,
    NODE,
    Demand,
    Layout,
    MeshShape,
    ModelShape,
    Strategy,
    Transfer,
    part_rows,
)
from gtjax.strategies.fitting import heads_divide, only_axes
from gtjax.strategies.node_halo import NodeHalo
from pallas_kernels.segment_attention import Backend, Dropout


@dataclass(frozen=True)
class NodeByFeature:
    """A node strategy for a share of the heads."""

    inner: Strategy = field(default_factory=NodeHalo)
    name: str = "node_by_feature"
    mesh_axes: tuple[str, ...] = (NODE, FEATURE)

    @property
    def exact(self) -> bool:
        """As the inner strategy."""
        return self.inner.exact

    def check(self, model: ModelShape, mesh: MeshShape) -> None:
        """Heads divide over the feature axis, and the inner strategy takes the node axis."""
        only_axes(self, mesh)
        heads_divide(self, model, mesh)
        self.inner.check(model, MeshShape(mesh.node))

    def layout(
        self,
        graph: Graph,
        partition: Partition,
        mesh: MeshShape,
        *,
        kernel: str | Backend = "auto",
        order_n: np.ndarray | None = None,
        propagates: bool = False,
    ) -> Layout:
        """That of the inner strategy: all devices of a part hold the part's edges."""
        return self.inner.layout(
            graph, partition, mesh, kernel=kernel, order_n=order_n, propagates=propagates
        )

    def attend(
        self,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """All rows of the part for some heads, attention, and back."""
        q, k, v, bias = _some_heads(q_nhd, k_nhd, v_nhd, bias_eh)
        dropout = _of_these_heads(dropout, q.shape[1])
        out = self.inner.attend(arrays, q, k, v, bias, dropout=dropout, kernel=kernel)
        return _some_rows(out)

    def propagate(
        self,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: Dropout | None = None,
        **options: Any,
    ) -> jax.Array:
        """All rounds for some heads: two exchanges over the feature axis, however many rounds."""
        q, k, v, bias = _some_heads(q_nhd, k_nhd, v_nhd, bias_eh)
        dropout = _of_these_heads(dropout, q.shape[1])
        return _some_rows(self.inner.propagate(arrays, q, k, v, bias, dropout=dropout, **options))

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """The inner strategy's for a share of the heads, and the trade of rows for heads."""
        size = mesh.feature
        share = replace(model, hidden=model.hidden // size, heads=max(1, model.heads // size))
        inner = self.inner.demand(cut, share, mesh)
        times = 2 * (1 if model.propagates else model.layers)
        away = (size - 1) / size
        values = part_rows(cut, mesh) / size * model.hidden * away
        exact = 4 if model.propagates else model.bytes_per_value  # of values and results
        transfers = [
            Transfer("all-to-all", FEATURE, values * (2 * model.bytes_per_value + exact), times),
            Transfer("all-to-all", FEATURE, values * exact, times),
        ]
        if model.edge_bias:
            bias = self.inner.padded_edges(cut, mesh) / size * model.heads * 4
            transfers.append(Transfer("all-to-all", FEATURE, bias * away, times))
        traded = (
            4.0 * part_rows(cut, mesh) / size * model.hidden * 4
        )  # queries, keys, values, outputs
        return replace(inner, transfers=(*inner.transfers, *transfers), traded_bytes=traded)

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """As the inner strategy."""
        return self.inner.padded_edges(cut, mesh)


def _some_heads(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """From all heads of this device's rows to its share of the heads, of the part's rows."""
    bias = None if bias is None else _trade(bias, split=1, join=0)
    if v.dtype != k.dtype:  # values that are mixed more exactly than they are gathered
        qk = _trade(jnp.stack([q, k], axis=2), split=1, join=0)
        return qk[:, :, 0], qk[:, :, 1], _trade(v, split=1, join=0), bias
    qkv = _trade(jnp.stack([q, k, v], axis=2), split=1, join=0)
    return qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], bias


def _some_rows(out: jax.Array) -> jax.Array:
    """The way back."""
    return _trade(out, split=0, join=1)


def _trade(x: jax.Array, split: int, join: int) -> jax.Array:
    return jax.lax.all_to_all(x, FEATURE, split_axis=split, concat_axis=join, tiled=True)


def _of_these_heads(dropout: Dropout | None, heads: int) -> Dropout | None:
    """Dropout draws by the number of a head among all of them."""
    return None if dropout is None else dropout.from_head(jax.lax.axis_index(FEATURE) * heads)
