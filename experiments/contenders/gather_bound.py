"""The floor under every CPU kernel: reading the rows that the op reads, and nothing else.

Which tables a pass reads is in `kinds`: attention reads a row of K and of V for every edge forward;
backward it reads both again for dQ, and a row of Q and of dOut for dK and dV. A sum reads a row of
one table, forward and backward. The reads are those of the kernels themselves: native code with
prefetch, on all cores, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from contenders.case import CaseFolder
from contenders.jax_work import PACKAGES
from contenders.kinds import OP_KINDS, Pass
from contenders.work import Absent, Work
from pallas_kernels import build_edges
from pallas_kernels.dot_product.cpu import gather_rows
from pallas_kernels.native import why_not

Read = Callable[..., jax.Array]  # of the one table or the two that are read together


def work(folder: CaseFolder) -> Work:
    """The reads of the case's forward pass, and of its forward and backward passes."""
    if reason := why_not():
        raise Absent(reason)
    case = folder.case
    kind = OP_KINDS[case.kind]
    names = {
        name
        for one in (kind.forward, kind.backward)
        for name in (*one.of_senders, *one.of_receivers)
    }
    tables = {name: jnp.asarray(folder.array(name)) for name in names}
    senders_e, receivers_e = folder.array("senders_e"), folder.array("receivers_e")
    order_e = np.argsort(senders_e, kind="stable")
    of_senders = _reads(case.nodes, receivers_e, senders_e)
    of_receivers = _reads(case.nodes, senders_e[order_e], receivers_e[order_e])

    def run(one: Pass) -> None:
        for read, names in ((of_senders, one.of_senders), (of_receivers, one.of_receivers)):
            if names:
                read(*(tables[name] for name in names)).block_until_ready()

    def both() -> None:
        run(kind.forward)
        run(kind.backward)

    def results() -> dict[str, np.ndarray]:
        both()
        read = [tables[name] for name in kind.forward.of_senders]
        sums_n = np.sum([np.asarray(table, np.float64).sum(axis=(1, 2)) for table in read], axis=0)
        wanted_n = np.bincount(receivers_e, sums_n[senders_e], minlength=case.nodes)
        error = np.abs(np.asarray(of_senders(*read)) - wanted_n).max(initial=0.0)
        # Sums of thousands of float32 of both signs: a wrong row would be off by far more.
        if not error < 0.1:
            raise AssertionError(
                f"the gather read other rows than it was asked for: off by {error}"
            )
        return {}

    operations = {"forward": lambda: run(kind.forward), "both": both}
    return Work(operations, results, 0, PACKAGES)


def _reads(nodes: int, rows_e: np.ndarray, columns_e: np.ndarray) -> Read:
    edges = build_edges(columns_e, rows_e, num_senders=nodes, num_receivers=nodes, forms=())
    edges = jax.device_put(edges)
    read = jax.jit(gather_rows)
    return lambda a, b=None: read(a, b, edges)
