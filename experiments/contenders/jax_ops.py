"""The contenders in jax: our kernels, and segment operations as one would write them by hand.

The latter follow jraph: gather the ends of every edge, `segment_max`, `exp`, `segment_sum`, weigh,
`segment_sum`. It is what attention is without a kernel, and it holds several `[E, H, D]` arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gtjax
from contenders import jax_work
from contenders.case import CaseFolder
from contenders.jax_work import Call
from contenders.work import Absent, Work
from pallas_kernels import (
    DOT_PRODUCT,
    LARGEST,
    WEIGHTED_SUM,
    Op,
    build_edges,
    gat,
    gatv2,
    segment_attention,
    segment_extreme,
    segment_gat,
    segment_gatv2,
    segment_sum,
)


def _sum(x_nhd: Any, w_eh: Any, edges: Any, kernel: str) -> jax.Array:
    return segment_sum(x_nhd, edges, w_eh, kernel=kernel)


# By kind of case: the op, and its call with inputs, edges and the name of a kernel.
OURS: dict[str, tuple[Op, Callable[..., jax.Array]]] = {
    "attention": (DOT_PRODUCT, segment_attention),
    "gat": (gat(), segment_gat),
    "gatv2": (gatv2(), segment_gatv2),
    "sum": (WEIGHTED_SUM, segment_sum),
    "fixed_weights": (WEIGHTED_SUM, _sum),
    "learned_weights": (WEIGHTED_SUM, _sum),
    "max": (LARGEST, segment_extreme),
}


def ours(folder: CaseFolder, kernel: str, order_n: np.ndarray | None = None) -> tuple[Any, Call]:
    """One of gtjax's kernels, on nodes in another order if that is given."""
    case = folder.case
    op, segment = OURS[case.kind]
    able = (each for each in op.all_kernels() if jax.default_backend() in each.platforms)
    (chosen,) = (each for each in able if each.name == kernel)
    if reason := chosen.why_not():
        raise Absent(reason)
    senders_e, receivers_e = folder.array("senders_e"), folder.array("receivers_e")
    if order_n is not None:
        position_n = np.argsort(order_n).astype(np.int32)
        senders_e, receivers_e = position_n[senders_e], position_n[receivers_e]
        order_e = np.argsort(receivers_e, kind="stable")
        senders_e, receivers_e = senders_e[order_e], receivers_e[order_e]
    edges = build_edges(
        senders_e,
        receivers_e,
        num_senders=case.nodes,
        num_receivers=case.nodes,
        forms=chosen.needs,
    )

    def call(edges: Any, *inputs: jax.Array) -> jax.Array:
        return segment(*inputs, edges=edges, kernel=kernel)

    return edges, call


def training_order(folder: CaseFolder) -> tuple[np.ndarray, dict[str, Any]]:
    """The order that training would put the nodes in, and how long it took to find."""
    ends_e2 = np.stack([folder.array("senders_e"), folder.array("receivers_e")], axis=1)
    graph = gtjax.from_edges(ends_e2, num_nodes=folder.case.nodes)
    start = time.perf_counter()
    order_n = gtjax.locality_order(graph)
    return order_n, {"ordering_seconds": time.perf_counter() - start}


def half(folder: CaseFolder) -> Work:
    """The native kernel with q, k, v and the gradient stored in bfloat16."""
    return jax_work.op(folder, *ours(folder, "cpu"), dtype=jnp.bfloat16)


def segment_ops(folder: CaseFolder) -> tuple[Any, Call]:
    """Attention by segment operations, told that the edges are sorted by receiver."""
    ends = (folder.array("senders_e"), folder.array("receivers_e"))
    nodes = folder.case.nodes
    options = {"num_segments": nodes, "indices_are_sorted": True}
    total = partial(jax.ops.segment_sum, **options)
    largest = partial(jax.ops.segment_max, **options)

    def attend(ends: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        senders_e, receivers_e = ends
        logits_eh = (q[receivers_e] * k[senders_e]).sum(axis=-1) * q.shape[-1] ** -0.5
        max_nh = jax.lax.stop_gradient(largest(logits_eh, receivers_e))
        weights_eh = jnp.exp(logits_eh - max_nh[receivers_e])
        weights_eh /= total(weights_eh, receivers_e)[receivers_e]
        return total(v[senders_e] * weights_eh[..., None], receivers_e)

    return ends, attend
