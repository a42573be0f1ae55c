"""The TPU kernels wait for every copy before they use it, and never overwrite what is in use.

The interpreter that knows of semaphores carries a copy out only when it is waited for, and keeps
track of who touched what when. At a hundred or so copies a second it can only be given tiny graphs:
small tiles make them cross tiles, blocks and cores all the same.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels import DOT_PRODUCT
from pallas_kernels.dot_product.tpu import TPU
from pallas_kernels.edges.dropout import Dropout, keep_scale
from pallas_kernels.edges.edges import StripPairs, build_edges
from pallas_kernels.edges.strips import CHUNK, strips_of_rows
from pallas_kernels.passes import tpu
from tests.kernels.interpreted import interpreted
from tests.kernels.op_cases import CASES
from tests.kernels.op_programs import kernel_of
from tests.kernels.oracle import dense_attention

NODES, CHUNKS_PER_TILE = 29, 1


PARAMS = pltpu.InterpretParams(dma_execution_mode="on_wait", detect_races=True)


@pytest.fixture
def kernel():
    yield interpreted(TPU, PARAMS)
    pltpu.reset_tpu_interpret_mode_state()


def qkv():
    rng = np.random.default_rng(2)
    return rng.standard_normal((4, NODES, 3, 8)).astype(np.float32)


def assert_agrees(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def races_found() -> bool:
    races = interpret_pallas_call.races
    assert races is not None
    return races.races_found


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    ends = np.concatenate([np.full(28, 9), rng.integers(0, NODES, 12)])
    receivers = np.sort(ends).astype(np.int32)
    senders = rng.permutation(ends).astype(np.int32)
    edges = build_edges(senders, receivers, num_senders=NODES, num_receivers=NODES, forms=())
    order, ids = edges.sender_order_e, edges.edge_ids_e
    sizes = {"block_rows": 8, "chunks_per_tile": CHUNKS_PER_TILE}
    by_receiver, slot_e = strips_of_rows(receivers, senders, ids, ids, NODES, **sizes)
    by_sender, _ = strips_of_rows(
        senders[order], receivers[order], order, ids[order], NODES, **sizes
    )
    for strips in (by_receiver, by_sender):
        tiles = np.diff(strips.tile_starts_b)
        assert len(tiles) == 4  # two blocks for each core
        assert tiles.max() > tpu.AHEAD  # and in one of them more tiles than are fetched ahead
    pairs = StripPairs(by_receiver, by_sender, slot_e)
    return dataclasses.replace(edges, strips=pairs), senders, receivers


@pytest.mark.slow
def test_no_copy_is_used_before_it_is_waited_for_and_none_races(kernel, graph):
    edges, senders, receivers = graph
    q, k, v, dout = qkv()
    dropout = Dropout(0.4, 3)
    bias = np.random.default_rng(1).standard_normal((len(senders), 3)).astype(np.float32)
    keep = keep_scale(dropout, np.arange(len(senders)), 3)
    arguments = (DOT_PRODUCT, q, (k, v), None, edges, bias)
    partial = kernel.forward(*arguments, dropout)
    assert not races_found()
    out, lse = DOT_PRODUCT.reduce.finish(partial)
    dq, (dk, dv), _, dbias = kernel.backward(*arguments, out, lse, dout, dropout)
    assert not races_found()
    want, want_grads = dense_attention(q, k, v, senders, receivers, bias, keep, dout)
    assert_agrees((out, dq, dk, dv, dbias), (want, *want_grads))


@pytest.mark.slow
def test_nor_do_rows_of_edges_and_what_is_shared(graph):
    edges, senders, receivers = graph
    case = CASES["gatv2, edges"]
    kernel = interpreted(kernel_of(case.op, "tpu"), PARAMS)
    rows = case.rows(NODES, len(senders))
    dout = np.random.default_rng(1).standard_normal(case.out_shape(NODES)).astype(np.float32)
    given = (rows["receiver"], rows["sender"], rows["shared"], edges, rows["edge"])
    out, saved = case.op.reduce.finish(kernel.forward(case.op, *given, None))
    grads = kernel.backward(case.op, *given, out, saved, dout, None)
    assert not races_found()
    want, want_grads = case.oracle(rows, senders, receivers, dout)
    names = ("receiver", "sender", "shared", "edge")
    assert_agrees((out, *grads), (want, *(want_grads[name] for name in names)))
    pltpu.reset_tpu_interpret_mode_state()


class NotWaitedFor:
    """A copy whose wait has been forgotten."""

    def __init__(self, copy):
        self.start = copy.start

    def wait(self):
        pass


# Forgetting to wait for a line leaves the number of copies to start undefined, so only this one.
@pytest.mark.slow
def test_a_missing_wait_for_gathered_rows_is_found(kernel, graph, monkeypatch):
    edges, senders, receivers = graph
    real = pltpu.make_async_copy

    def forgetful(source, target, semaphore):
        copy = real(source, target, semaphore)
        return NotWaitedFor(copy) if target.shape == (CHUNK * 2, 128) else copy

    monkeypatch.setattr(tpu.pltpu, "make_async_copy", forgetful)
    q, k, v, _ = qkv()
    partial = kernel.forward(DOT_PRODUCT, q, (k, v), None, edges, None, None)
    out, _ = DOT_PRODUCT.reduce.finish(partial)
    want, _ = dense_attention(q, k, v, senders, receivers)
    assert races_found() or not np.allclose(out, want, atol=1e-3)
