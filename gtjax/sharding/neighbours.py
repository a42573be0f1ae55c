"""The neighbours of a graph's nodes, bound to a mesh: what a model receives.

Every method is one op under the strategy of the mesh, inside `jax.shard_map`; everything else of a
model runs under `jax.jit` with rows spread over all devices. A tree of arrays, so that it can be an
argument of a jitted function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from gtjax.sharding.hops import Hops
from gtjax.sharding.mesh import Spread
from gtjax.sharding.specs import BY_PART, BY_ROW, EVERYWHERE
from gtjax.strategies import PLAIN, Wire
from gtjax.strategies.part_edges import limits_told
from gtjax.strategies.run import Rows, is_local, run, run_propagation
from pallas_kernels import (
    DOT_PRODUCT,
    LARGEST,
    OPS,
    SMALLEST,
    WEIGHTED_MEAN,
    WEIGHTED_SUM,
    Op,
    custom,
    gat,
    gatv2,
)
from pallas_kernels.edge_softmax import EDGE_EXP, EDGE_MAX, EDGE_SHARE, EDGE_SUM, LOGITS
from pallas_kernels.edges import Dropout
from pallas_kernels.op import Split

Drawn = tuple[float, jax.Array] | None  # rate and seed of dropout


class OpMethods:
    """What a model may compute along edges, each by `apply` of one op.

    Final but for `apply`: one that runs them, and one that only records what is asked.
    """

    degree_n: jax.Array

    def last(self, ops: int) -> Self:
        """What the last so many ops of a model need: in a sampled batch, fewer rows and edges."""
        del ops
        return self

    def own(self, x: Any) -> Any:
        """Of rows that ops are given, those of the receivers: all, but for a sampled batch."""
        return x

    def apply(
        self,
        op: Op | str,
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Any op, or one of `pallas_kernels.OPS` by name."""
        raise NotImplementedError

    def attend(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Dot-product attention of every node over its in-edges."""
        out_nhd = self.apply(
            DOT_PRODUCT, receiver=q_nhd, sender=(k_nhd, v_nhd), edge=bias_eh, dropout=dropout
        )
        return out_nhd.astype(v_nhd.dtype)

    def attend_additive(
        self,
        receiver: jax.Array,
        sender: jax.Array,
        values_nhd: jax.Array | None = None,
        bias: jax.Array | None = None,
        *,
        vector_hd: jax.Array | None = None,
        slope: float = 0.2,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Additive attention, of GAT or, with a vector, of GATv2."""
        if (values_nhd is None) == (vector_hd is None):
            raise ValueError("additive attention has either values (GAT) or a vector (GATv2)")
        rows: dict[str, Any] = {"receiver": receiver, "edge": bias, "dropout": dropout}
        if vector_hd is None:
            return self.apply(gat(slope), sender=(sender, values_nhd), **rows)
        return self.apply(gatv2(slope), sender=sender, shared=vector_hd, **rows)

    def sum(
        self, x_nf: jax.Array, weight_e: jax.Array | None = None, *, dropout: Drawn = None
    ) -> jax.Array:
        """Sum of in-neighbours' rows, weighted if there are weights."""
        return self._weighted(WEIGHTED_SUM, x_nf, weight_e, dropout)

    def mean(
        self, x_nf: jax.Array, weight_e: jax.Array | None = None, *, dropout: Drawn = None
    ) -> jax.Array:
        """The same over the number of in-edges."""
        return self._weighted(WEIGHTED_MEAN, x_nf, weight_e, dropout)

    def _weighted(
        self, op: Op, x_nf: jax.Array, weight_e: jax.Array | None, dropout: Drawn
    ) -> jax.Array:
        by_head = weight_e is not None and weight_e.ndim == 2
        if weight_e is not None and by_head and x_nf.ndim != 3:
            raise ValueError(
                f"weights by head go with rows by head, [nodes, heads, channels]; found weights "
                f"{weight_e.shape} and rows {x_nf.shape}"
            )
        x_nhd = x_nf if by_head else x_nf.reshape(x_nf.shape[0], 1, -1)
        weight_eh = weight_e if weight_e is None or by_head else weight_e[:, None]
        out_nhd = self.apply(op, sender=x_nhd, edge=weight_eh, dropout=dropout)
        return out_nhd.reshape(len(out_nhd), *x_nf.shape[1:])

    def edge_softmax(
        self, q_nhd: jax.Array, k_nhd: jax.Array, bias_eh: jax.Array | None = None
    ) -> jax.Array:
        """Weights of attention, `[edges, heads]`, for `sum` by the same weights again and again."""
        logits_eh = self.apply(LOGITS, receiver=q_nhd, sender=k_nhd, edge=bias_eh)
        logits_eh = logits_eh.astype(jnp.float32)
        most_nh = jax.lax.stop_gradient(self.apply(EDGE_MAX, edge=logits_eh))
        numbers_eh = self.apply(EDGE_EXP, receiver=most_nh, edge=logits_eh)
        total_nh = self.apply(EDGE_SUM, edge=numbers_eh)
        return self.apply(EDGE_SHARE, receiver=total_nh, edge=numbers_eh)

    def propagate(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        rounds: int,
        restart: float,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Values mixed so many times by the same attention, each time with a share of the start.

        Weights are computed once, and dropout draws once for all rounds; rows are gathered in the
        type of the keys, and mixed in that of the values.
        """
        weights_eh, mixed_nhd = self.edge_softmax(q_nhd, k_nhd, bias_eh), v_nhd
        for _ in range(rounds):
            near = self.sum(mixed_nhd.astype(k_nhd.dtype), weights_eh, dropout=dropout)
            mixed_nhd = ((1 - restart) * near + restart * v_nhd).astype(v_nhd.dtype)
        return mixed_nhd

    def max(self, x_nf: jax.Array) -> jax.Array:
        """Largest of in-neighbours' values, channel by channel."""
        flat = x_nf.reshape(x_nf.shape[0], math.prod(x_nf.shape[1:]))
        out_nf = self.apply(LARGEST, sender=flat)
        return out_nf.reshape(len(out_nf), *x_nf.shape[1:])

    def min(self, x_nf: jax.Array) -> jax.Array:
        """Smallest of in-neighbours' values, channel by channel."""
        flat = x_nf.reshape(x_nf.shape[0], math.prod(x_nf.shape[1:]))
        out_nf = self.apply(SMALLEST, sender=flat)
        return out_nf.reshape(len(out_nf), *x_nf.shape[1:])

    def aggregate(
        self,
        message: Callable[[Any, Any, Any, Any], Any],
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        reduce: str = "sum",
        splits: Split = None,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Any jax function of an edge, reduced by name."""
        rows = {"receiver": receiver, "sender": sender, "edge": edge, "shared": shared}
        return self.apply(custom(message, reduce, splits), **rows, dropout=dropout)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["arrays", "degree_n", "sum_scale_n"],
    meta_fields=["spread", "kernel", "wire", "hops", "ops"],
)
@dataclass(frozen=True)
class BoundNeighbours(OpMethods):
    """The in-edges of a graph that is laid out on a mesh.

    Of a sampled batch `hops` says which rows and edges are whose, and sums over the edges that were
    drawn are scaled to estimate those over all (`sum_scale_n`: in-edges over how many were drawn).
    A mean needs no scale, nor does attention, where it cancels out.
    """

    spread: Spread
    arrays: Any  # `Layout.arrays`, placed
    degree_n: jax.Array = field(default=None)  # pyright: ignore[reportAssignmentType]
    kernel: str = "auto"
    wire: Wire = PLAIN
    sum_scale_n: jax.Array | None = None
    hops: Hops | None = None
    ops: int | None = None  # that still come, this one included, in a sampled batch

    def last(self, ops: int) -> BoundNeighbours:
        """Of a sampled batch, what the last so many ops of a model need."""
        if self.hops is None or ops > self.hops.count or self.arrays_have_forms:
            return self
        degree_n = self.hops.rows(self.degree_n, ops)
        return replace(self, degree_n=degree_n, ops=ops)

    @property
    def arrays_have_forms(self) -> bool:
        """Whether the edges are in forms beyond the two orders, which have no first edges."""
        edges = self.arrays
        return any(form is not None for form in (edges.tilings, edges.pieces, edges.strips))

    def own(self, x: Any) -> Any:
        """The rows of receivers."""
        if self.hops is None or self.ops is None:
            return x
        return self.hops.rows(x, self.ops - 1)

    def apply(
        self,
        op: Op | str,
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Any op, or one of `pallas_kernels.OPS` by name."""
        op = OPS[op] if isinstance(op, str) else op
        kernel = op.kernel(self.kernel, self.spread.platform)

        def on_device(arrays: Any, rows: Any, shared: Any, draw: Dropout | None) -> jax.Array:
            given = Rows(receiver=rows[0], sender=rows[1], edge=rows[2], shared=shared)
            options = {"dropout": draw, "kernel": kernel, "wire": self.wire}
            return run(op, self.spread.strategy, arrays, given, **options)

        if self.hops is not None and self.ops is not None:
            sender = self.hops.rows(sender, self.ops)
            edge = self.hops.edges(edge, self.ops - 1)
        rows = (self.own(receiver), sender, edge)
        out = self._on_devices(on_device, rows, shared, dropout)
        if self.sum_scale_n is None or op.reduce.name != "sum":
            return out
        scale_n = self.own(self.sum_scale_n)
        return out * scale_n.reshape(-1, *[1] * (out.ndim - 1)).astype(out.dtype)

    def propagate(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        rounds: int,
        restart: float,
        dropout: Drawn = None,
    ) -> jax.Array:
        """As above; where all senders are on the device, by the fused kernels of propagation."""
        if not is_local(self.spread.strategy):
            options: dict[str, Any] = {"rounds": rounds, "restart": restart, "dropout": dropout}
            return super().propagate(q_nhd, k_nhd, v_nhd, bias_eh, **options)
        kernel = DOT_PRODUCT.kernel(self.kernel, self.spread.platform)

        def on_device(arrays: Any, rows: Any, shared: None, draw: Dropout | None) -> jax.Array:
            settings = {"rounds": rounds, "restart": restart, "kernel": kernel, "dropout": draw}
            return run_propagation(self.spread.strategy, arrays, *rows, **settings)

        return self._on_devices(on_device, (q_nhd, k_nhd, v_nhd, bias_eh), None, dropout)

    def _on_devices(
        self, on_device: Callable[..., jax.Array], rows: Any, shared: Any, dropout: Drawn
    ) -> jax.Array:
        """Run a function of this device's part of the edges and of its rows."""
        rate = 0.0 if dropout is None else dropout[0]
        seed = jnp.uint32(0) if dropout is None else jnp.asarray(dropout[1], jnp.uint32)

        def of_part(arrays: Any, rows: Any, shared: Any, seed: jax.Array) -> jax.Array:
            own = jax.tree.map(lambda x: x.reshape(x.shape[1:]), arrays)  # of the one part
            if self.hops is not None and self.ops is not None:
                own = self.hops.part_edges(own, self.ops - 1)
            return on_device(own, rows, shared, Dropout(rate, seed) if rate else None)

        everywhere = jax.shard_map(
            of_part,
            mesh=self.spread.mesh,
            in_specs=(BY_PART, BY_ROW, EVERYWHERE, EVERYWHERE),
            out_specs=BY_ROW,
            check_vma=False,  # kernels do not say along which axes their results vary
        )
        with limits_told():
            return everywhere(self.arrays, rows, shared, seed)
