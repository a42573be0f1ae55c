"""The kernels of GPU and TPU that all fused ops share give, interpreted, what float64 gives."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from pallas_kernels.driver import segment
from pallas_kernels.edges.stacking import EdgeList, build_stacked_edges
from tests.kernels.interpreted import interpreted
from tests.kernels.op_cases import CASES, DROPOUT
from tests.kernels.op_programs import kernel_of
from tests.kernels.test_ops import GRAPHS, assert_equals_reference

NODES = 61
QUICK = ("gatv2, edges", "mean, weights")  # each part of the kernels once
FUSED = [
    pytest.param(
        name,
        kernel,
        id=f"{name}, {kernel.name}",
        marks=() if name in QUICK else pytest.mark.slow,
    )
    for name, case in CASES.items()
    for kernel in case.op.kernels
    if kernel.name in ("gpu", "tpu") and not name.startswith("dot_product")
]


def awkward():
    """Hubs that receive and send in several pieces, repeated edges, loops, nodes without edges."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES - 9, (2, 90))
    hub = rng.integers(0, 20, 300)
    senders = np.concatenate([ends[0], hub, np.full(140, 7), np.arange(9), [2, 2, 2]])
    receivers = np.concatenate([ends[1], np.full(300, 3), hub[:140], np.arange(9), [4, 4, 4]])
    order = np.argsort(receivers, kind="stable")
    return senders[order].astype(np.int32), receivers[order].astype(np.int32), NODES


GRAPHS["in pieces"] = awkward()


@pytest.mark.parametrize(("name", "kernel"), FUSED)
@pytest.mark.quick_every(4)
def test_results_and_gradients(name, kernel):
    assert_equals_reference(name, "in pieces", interpreted(kernel), DROPOUT)


@pytest.mark.parametrize("kernel", ["gpu", "tpu"])
def test_padding_edges_add_nothing_whatever_stands_there(kernel):
    senders, receivers, nodes = awkward()
    count = len(senders)
    case = CASES["sum, weights"]
    rows = case.rows(nodes, count + 5)
    rows["edge"][count:] = np.nan
    part = EdgeList(senders, receivers, np.arange(count))
    stacked = build_stacked_edges(
        [part], num_senders=nodes, num_receivers=nodes, num_edges=count + 5
    )
    edges = jax.tree.map(lambda x: x[0], stacked)
    dout = np.ones(case.out_shape(nodes), np.float32)

    def compute(rows):
        chosen = interpreted(kernel_of(case.op, kernel))
        return segment(case.op, edges, **rows, kernel=chosen)

    out, pullback = jax.vjp(compute, rows)
    (grads,) = pullback(dout)
    real = rows | {"edge": rows["edge"][:count]}
    want, want_grads = case.oracle(real, senders, receivers, dout)
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(grads["sender"], want_grads["sender"], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(grads["edge"][:count], want_grads["edge"], rtol=2e-5, atol=2e-5)
    assert not np.asarray(grads["edge"][count:]).any()
