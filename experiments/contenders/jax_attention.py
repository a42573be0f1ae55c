"""The contenders in jax: our back ends, and segment operations as one would write them by hand.

The latter follow jraph: gather the ends of every edge, `segment_max`, `exp`, `segment_sum`, weigh,
`segment_sum`. It is what the op is without a kernel, and it holds several `[E, H, D]` arrays.
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
from contenders.case import CaseFolder
from contenders.work import Absent, Work
from pallas_kernels.segment_attention import BACKENDS, build_edges, segment_attention

PACKAGES = ("jax", "jaxlib", "numpy", "gtjax")

# attend(layout, q, k, v): the layout is an argument, since a constant would be folded by XLA
Attend = Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array]


def ours(folder: CaseFolder, kernel: str, order_n: np.ndarray | None = None) -> tuple[Any, Attend]:
    """One of gtjax's back ends, on nodes in another order if that is given."""
    if reason := BACKENDS[kernel].why_not():
        raise Absent(reason)
    case = folder.case
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
        layouts=BACKENDS[kernel].layouts,
    )

    def attend(edges: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return segment_attention(q, k, v, edges, kernel=kernel)

    return edges, attend


def training_order(folder: CaseFolder) -> tuple[np.ndarray, dict[str, Any]]:
    """The order that training would put the nodes in, and how long it took to find."""
    ends_e2 = np.stack([folder.array("senders_e"), folder.array("receivers_e")], axis=1)
    graph = gtjax.from_edges(ends_e2, num_nodes=folder.case.nodes)
    start = time.perf_counter()
    order_n = gtjax.locality_order(graph)
    return order_n, {"ordering_seconds": time.perf_counter() - start}


def half(folder: CaseFolder) -> Work:
    """The native back end with q, k, v and the gradient stored in bfloat16."""
    return attention(folder, *ours(folder, "cpu"), dtype=jnp.bfloat16)


def segment_ops(folder: CaseFolder) -> tuple[Any, Attend]:
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


def attention(
    folder: CaseFolder,
    layout: Any,
    attend: Attend,
    *,
    order_n: np.ndarray | None = None,
    dtype: Any = jnp.float32,
    facts: dict[str, Any] | None = None,
) -> Work:
    """The op alone, compiled ahead of time: forward, and forward with the gradients.

    `order_n` puts the nodes in another order before the clock starts, and the results back after.
    """
    names = ("q_nhd", "k_nhd", "v_nhd", "dout_nhd")
    order = slice(None) if order_n is None else order_n
    q, k, v, dout = (jnp.asarray(folder.array(name)[order], dtype) for name in names)
    layout = jax.device_put(layout)

    def with_gradients(layout: Any, q: Any, k: Any, v: Any, dout: Any) -> Any:
        out, pull = jax.vjp(partial(attend, layout), q, k, v)
        return out, *pull(dout)

    forward = jax.jit(attend).lower(layout, q, k, v).compile()
    both = jax.jit(with_gradients).lower(layout, q, k, v, dout).compile()

    def in_order(array: jax.Array) -> np.ndarray:
        result = np.empty(array.shape, np.float32)
        result[order] = np.asarray(array, np.float32)
        return result

    def results() -> dict[str, np.ndarray]:
        forward_out = in_order(forward(layout, q, k, v))
        out, dq, dk, dv = map(in_order, both(layout, q, k, v, dout))
        return {"forward": forward_out, "out": out, "dq": dq, "dk": dk, "dv": dv}

    return Work(
        operations={
            "forward": lambda: jax.block_until_ready(forward(layout, q, k, v)),
            "both": lambda: jax.block_until_ready(both(layout, q, k, v, dout)),
        },
        results=results,
        needs_bytes=needs(both),
        packages=PACKAGES,
        facts={"xla_temporary_bytes": temporary(both), **(facts or {})},
    )


def temporary(compiled: Any) -> int | None:
    """What XLA allocates beside arguments and outputs."""
    memory = compiled.memory_analysis()
    return None if memory is None else memory.temp_size_in_bytes


def needs(compiled: Any) -> int:
    """What a run allocates."""
    memory = compiled.memory_analysis()
    return 0 if memory is None else memory.temp_size_in_bytes + memory.output_size_in_bytes
