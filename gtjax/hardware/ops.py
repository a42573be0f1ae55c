"""Times kernels of ops over edges, widths, heads, tables and skew.

Attention, where a row is weighed before it is added, and sums, where it is just added; and one
message of one's own, which runs in XLA wherever it runs. Other ops are priced like the one of these
that they resemble, by the bytes that they gather.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.core.progress import Progress
from gtjax.hardware.devices import Devices
from gtjax.hardware.profile import OpPoint
from pallas_kernels import DOT_PRODUCT, WEIGHTED_SUM, Op, custom, gat
from pallas_kernels.edges import EdgeList, build_stacked_edges


def _gated(receiver: jax.Array, sender: jax.Array, edge: Any, shared: Any) -> jax.Array:
    return jax.nn.sigmoid(receiver) * sender


OPS: dict[str, Op] = {
    "dot_product": DOT_PRODUCT,
    "additive": gat(0.2),
    "weighted_sum": WEIGHTED_SUM,
    "custom": custom(_gated, "sum", None),
}


@dataclass(frozen=True)
class _Case:
    """An op over random edges: an average degree, heads, and the table that is gathered from."""

    op: str
    senders: int
    heads: int
    width: int
    degree: int = 8
    skewed: bool = False


# Small tables that stay in a cache and large ones that do not, few and many heads, narrow and wide.
CASES = (
    _Case("dot_product", 2**11, 8, 64),
    _Case("dot_product", 2**11, 8, 64, degree=128),
    _Case("dot_product", 2**11, 8, 256, degree=32),
    _Case("dot_product", 2**11, 1, 16),
    _Case("dot_product", 2**16, 8, 128),
    _Case("dot_product", 2**16, 8, 128, degree=64),
    _Case("dot_product", 2**16, 8, 128, skewed=True),
    _Case("dot_product", 2**16, 2, 32),
    _Case("dot_product", 2**18, 8, 64),
    _Case("additive", 2**16, 8, 128),
    _Case("additive", 2**11, 4, 32, degree=32),
    _Case("weighted_sum", 2**11, 1, 64),
    _Case("weighted_sum", 2**11, 1, 128, degree=64),
    _Case("weighted_sum", 2**16, 1, 128),
    _Case("weighted_sum", 2**16, 1, 32, degree=32),
    _Case("custom", 2**16, 1, 64),
    _Case("custom", 2**16, 1, 16),
    _Case("custom", 2**11, 1, 128, degree=64),
)
EDGES = 2**19  # of all devices of a host that share a processor
XLA_EDGES = 2**17  # the same where XLA does it, which takes several times as long


def measure_ops(every: Devices, progress: Progress) -> tuple[OpPoint, ...]:
    """Forward and backward of every case."""
    points: list[OpPoint] = []
    for number, case in enumerate(CASES):
        progress(number / len(CASES), f"{case.op}, {case.heads} heads of {case.width}")
        points += _points(every, case)
    return tuple(points)


def _points(every: Devices, case: _Case) -> list[OpPoint]:
    op, rng = OPS[case.op], np.random.default_rng(0)
    kernel = op.kernel("auto", every.platform)
    count = (XLA_EDGES if kernel.name == "xla" else EDGES) // every.shared
    rows = max(16, count // case.degree)
    senders = max(64, case.senders // every.shared)
    receivers_e = np.sort(rng.integers(0, rows, count))
    drawn_e = rng.random(count)
    senders_e = (drawn_e ** (4.0 if case.skewed else 1.0) * senders).astype(np.int64)
    edges = every.place(
        build_stacked_edges(
            [EdgeList(senders_e, receivers_e, np.arange(count))],
            num_senders=senders,
            num_receivers=rows,
            forms=kernel.needs,
        )
    )
    shape = (case.heads, case.width // case.heads)
    wide, narrow = (every.array(n, *shape) for n in (senders, rows))
    receiver, sender = {
        "dot_product": (narrow, (wide, wide)),
        "additive": (every.array(rows, case.heads), (every.array(senders, case.heads), wide)),
        "weighted_sum": (None, wide),
        "custom": (narrow, wide),
    }[case.op]

    def forward(edges: Any, receiver: Any, sender: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], edges)
        given = (op, receiver, sender, None, own, None, None)
        if kernel.whole is not None:
            return kernel.whole(*given)
        return op.reduce.finish(kernel.forward(*given))

    def backward(edges: Any, receiver: Any, sender: Any, out: Any, saved: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], edges)
        rows = (receiver, sender, None, own, None, out, saved, out, None)
        return kernel.backward(op, *rows)[:2]

    out, saved = narrow, every.array(rows, case.heads, fill=3.0)
    saved = saved if op.reduce.name == "softmax" else None
    times = {
        "forward": every.seconds(forward, edges, receiver, sender),
        "backward": every.seconds(backward, edges, receiver, sender, out, saved),
    }
    skew = share_of_busiest(np.bincount(senders_e, minlength=senders))
    sender_bytes = sum(_row_bytes(x) for x in jax.tree.leaves(sender))
    row_bytes = _row_bytes(out) + sum(_row_bytes(x) for x in jax.tree.leaves(receiver))
    return [
        OpPoint(
            op=case.op,
            kernel=kernel.name,
            family=family_of(op),
            direction=way,
            edges=count,
            rows=rows,
            senders=senders,
            heads=case.heads,
            sender_bytes=sender_bytes,
            row_bytes=row_bytes,
            skew=skew,
            seconds=seconds,
        )
        for way, seconds in times.items()
    ]


def family_of(op: Op) -> str:
    """Ops that a kernel computes alike: those that weigh by a softmax, and those that add."""
    return "softmax" if op.reduce.name == "softmax" else "sum"


def _row_bytes(array: Any) -> int:
    return math.prod(array.shape[1:]) * jnp.dtype(array.dtype).itemsize


def share_of_busiest(degrees_s: np.ndarray) -> float:
    """Share of the edges that start from the busiest hundredth of the senders."""
    busiest = math.ceil(len(degrees_s) / 100)
    return float(np.sort(degrees_s)[-busiest:].sum() / max(1, degrees_s.sum()))
