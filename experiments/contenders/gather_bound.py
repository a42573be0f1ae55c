"""The floor under every CPU kernel: reading the rows that the op reads, and nothing else.

The forward pass reads a row of K and of V for every edge; the backward pass reads both again for
dQ, and a row of Q and of dOut for dK and dV. The reads are those of the kernel itself: native code
with prefetch, on all cores, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from contenders.case import CaseFolder
from contenders.jax_attention import PACKAGES
from contenders.work import Absent, Work
from pallas_kernels.segment_attention import build_edges, cpu


def work(folder: CaseFolder) -> Work:
    """The reads of the case's forward pass, and of its forward and backward passes."""
    if reason := cpu.why_not():
        raise Absent(reason)
    case = folder.case
    q, k, v, dout = (
        jnp.asarray(folder.array(name)) for name in ("q_nhd", "k_nhd", "v_nhd", "dout_nhd")
    )
    senders_e, receivers_e = folder.array("senders_e"), folder.array("receivers_e")
    order_e = np.argsort(senders_e, kind="stable")
    by_receiver = _reads(case.nodes, receivers_e, senders_e)
    by_sender = _reads(case.nodes, senders_e[order_e], receivers_e[order_e])

    def forward() -> None:
        by_receiver(k, v).block_until_ready()

    def both() -> None:
        forward()
        forward()  # the backward pass recomputes from the same rows
        by_sender(q, dout).block_until_ready()

    def results() -> dict[str, np.ndarray]:
        both()
        sums_n = (np.asarray(k, np.float64) + np.asarray(v, np.float64)).sum(axis=(1, 2))
        wanted_n = np.bincount(receivers_e, sums_n[senders_e], minlength=case.nodes)
        error = np.abs(np.asarray(by_receiver(k, v)) - wanted_n).max(initial=0.0)
        # Sums of thousands of float32 of both signs: a wrong row would be off by far more.
        if not error < 0.1:
            raise AssertionError(
                f"the gather read other rows than it was asked for: off by {error}"
            )
        return {}

    return Work({"forward": forward, "both": both}, results, 0, PACKAGES)


def _reads(nodes: int, rows_e: np.ndarray, columns_e: np.ndarray) -> Callable[..., jax.Array]:
    edges = build_edges(columns_e, rows_e, num_senders=nodes, num_receivers=nodes, layouts=())
    edges = jax.device_put(edges)
    read = jax.jit(cpu.gather_rows)
    return lambda a, b: read(a, b, edges)
