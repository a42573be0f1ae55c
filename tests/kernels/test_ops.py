"""Every op, in every kernel that runs here, gives what the float64 reference gives."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.driver import segment
from pallas_kernels.edges import EdgeList, build_edges, build_stacked_edges
from pallas_kernels.native import why_not
from pallas_kernels.passes.xla import XLA_IN_PLACE
from tests.kernels.conformance import kernels_of, native_kernels_of
from tests.kernels.op_cases import CASES, DROPOUT
from tests.kernels.oracle import awkward_graphs
from tests.marks import slow

TOLERANCE = 2e-5
GRAPHS = awkward_graphs()


def of_cases(kernels, names=CASES):
    """Every kernel of every case."""
    return [
        pytest.param(name, *kernel.values, id=f"{name}, {kernel.id}", marks=kernel.marks)
        for name in names
        for kernel in kernels(CASES[name].op)
    ]


KERNELS = of_cases(kernels_of)
NATIVE = of_cases(native_kernels_of)
WITH_EDGES = [name for name, case in CASES.items() if case.edge and "custom" not in name]


@functools.cache
def case_of(name, heads=None, width=None):
    """A case, or the same in another shape."""
    case = CASES[name]
    if heads is None:
        return case
    heads = 1 if case.heads == 1 else heads

    def resized(shape):
        if len(shape) == 2:
            return heads, width
        return (width,) if case.heads == 0 else (heads,)

    shapes = {
        each: jax.tree.map(resized, getattr(case, each), is_leaf=is_shape)
        for each in ("receiver", "sender", "edge", "shared")
    }
    return replace(case, **shapes, heads=heads if case.heads else 0)


def is_shape(x):
    return isinstance(x, tuple) and all(isinstance(size, int) for size in x)


@functools.cache  # every kernel is held against the same
def wanted(name, graph, dropout=None, shape=()):
    """Rows, the gradient of the result, and the result and gradients in float64."""
    senders, receivers, nodes = GRAPHS[graph]
    case = case_of(name, *shape)
    rows = case.rows(nodes, len(senders))
    dout = np.random.default_rng(1).standard_normal(case.out_shape(nodes)).astype(np.float32)
    return rows, dout, *case.oracle(rows, senders, receivers, dout, dropout)


def edges_of(graph):
    senders, receivers, nodes = GRAPHS[graph]
    return build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes)


@functools.cache
def compiled(op, kernel, dropout=None):
    @jax.jit
    def both(rows, dout, edges):
        def run(rows):
            return segment(op, edges, **rows, dropout=dropout, kernel=kernel)

        out, pull = jax.vjp(run, rows)
        return out, pull(dout.astype(out.dtype))[0]

    return both


def assert_close(got, want, tolerance=TOLERANCE):
    """Results and gradients, which are (out, gradients)."""
    np.testing.assert_allclose(got[0], want[0], rtol=tolerance, atol=tolerance, err_msg="out")
    flat = jax.tree_util.tree_leaves_with_path(got[1])
    for (path, grad), expected in zip(flat, jax.tree.leaves(want[1]), strict=True):
        name = f"gradient of {jax.tree_util.keystr(path)}"
        scale = max(1.0, np.abs(expected).max()) if "shared" in name else 1.0
        np.testing.assert_allclose(
            grad, expected, rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


def assert_equals_reference(name, graph, kernel, dropout=None, shape=(), tolerance=TOLERANCE):
    case = case_of(name, *shape)
    dropout = dropout if case.heads else None
    rows, dout, *want = wanted(name, graph, dropout, shape)
    got = compiled(case.op, kernel, dropout)(rows, dout, edges_of(graph))
    assert_close(got, want, tolerance)


@pytest.mark.parametrize(("name", "kernel"), of_cases(functools.partial(kernels_of, quick=True)))
@pytest.mark.quick_every(6)
def test_everything_awkward_at_once(name, kernel):
    assert_equals_reference(name, "all at once", kernel, DROPOUT)


@pytest.mark.parametrize("name", ["dot_product, bias", "mean, weights", "max"])
def test_rows_written_in_place(name):
    assert_equals_reference(name, "all at once", XLA_IN_PLACE, DROPOUT)


@pytest.mark.parametrize("graph", [slow("prime"), "no edges"])
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_awkward_graphs(name, kernel, graph):
    assert_equals_reference(name, graph, kernel)


@pytest.mark.parametrize("shape", [slow((1, 7)), (9, 16), slow((3, 100))])
@pytest.mark.parametrize(("name", "kernel"), NATIVE)
def test_shapes_of_heads_of_the_native_code(name, kernel, shape):
    # The logits of GATv2 grow with the width, and what float32 leaves out of them too: as in XLA.
    assert_equals_reference(name, "every length of row", kernel, DROPOUT, shape, 5e-5)


@pytest.mark.parametrize(("name", "kernel"), of_cases(kernels_of, WITH_EDGES))
def test_padding_adds_nothing_whatever_its_rows_are(name, kernel):
    senders, receivers, nodes = GRAPHS["prime"]
    case, spare = CASES[name], 41
    alone = EdgeList(senders, receivers, np.arange(len(senders)))
    sizes: Any = {"num_senders": nodes, "num_receivers": nodes, "num_edges": len(senders) + spare}
    edges = jax.tree.map(lambda x: x[0], build_stacked_edges([alone], **sizes))
    rows, dout, *want = wanted(name, "prime", DROPOUT)
    filler = np.full((spare, *rows["edge"].shape[1:]), np.nan, np.float32)
    padded = rows | {"edge": np.concatenate([rows["edge"], filler])}
    out, grads = compiled(case.op, kernel, DROPOUT)(padded, dout, edges)
    np.testing.assert_array_equal(grads["edge"][len(senders) :], 0.0)
    assert_close((out, grads | {"edge": grads["edge"][: len(senders)]}), want)


@pytest.mark.parametrize(("name", "kernel"), NATIVE)
def test_a_nan_is_not_hidden(name, kernel):
    senders, receivers, nodes = GRAPHS["prime"]
    rows, dout, *_ = wanted(name, "prime")
    broken = jax.tree.map(np.copy, rows)
    for table in jax.tree.leaves(broken["sender"]):
        table[17] = np.nan
    out, _ = compiled(CASES[name].op, kernel)(broken, dout, edges_of("prime"))
    there = np.isin(np.arange(nodes), receivers[senders == 17])
    assert np.isnan(np.asarray(out)[there]).all()
    assert not np.isnan(np.asarray(out)[~there]).any()


@pytest.mark.parametrize(("name", "kernel"), NATIVE)
def test_bfloat16_rows_are_summed_in_float32(name, kernel):
    senders, receivers, nodes = GRAPHS["hub of hubs"]
    case = CASES[name]
    rows = jax.tree.map(lambda x: x.astype(jnp.bfloat16), case.rows(nodes, len(senders)))
    dout = np.random.default_rng(1).standard_normal(case.out_shape(nodes)).astype(jnp.bfloat16)
    got = compiled(case.op, kernel)(rows, dout, edges_of("hub of hubs"))
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {jnp.dtype(jnp.bfloat16)}
    want = case.oracle(rows, senders, receivers, dout)
    # The rows are exact in float64, so what is left is one rounding to 8 bits of the results.
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(np.asarray(a, np.float32), b, atol=2**-7 * scale, rtol=0)


@pytest.mark.parametrize(("name", "kernel"), NATIVE)
def test_partials_of_parts_merge_to_the_whole(name, kernel):
    senders, receivers, nodes = GRAPHS["hub receives half of all edges"]
    case = CASES[name]
    rows, *_ = wanted(name, "hub receives half of all edges")
    draw = DROPOUT if case.heads else None
    owner = np.random.default_rng(3).integers(0, 3, len(senders))
    partial = None
    for part in range(3):
        mine = np.flatnonzero(owner == part)
        edges = build_edges(
            senders[mine], receivers[mine], num_senders=nodes, num_receivers=nodes, edge_ids_e=mine
        )
        edge = jax.tree.map(lambda x, mine=mine: x[mine], rows["edge"])
        given = jax.tree.map(jnp.asarray, (rows["receiver"], rows["sender"], rows["shared"]))
        one = kernel.forward(case.op, *given, edges, jax.tree.map(jnp.asarray, edge), draw)
        partial = one if partial is None else case.op.reduce.merge(partial, one)
    want = wanted(name, "hub receives half of all edges", draw)[2]
    np.testing.assert_allclose(case.op.reduce.finish(partial)[0], want, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", native_kernels_of(CASES["gat"].op))
@pytest.mark.parametrize("slope", [0.2, 0.0])
def test_a_bias_of_minus_infinity_removes_an_edge_of_gat(kernel, slope):
    senders, receivers = np.array([0, 1, 2, 1], np.int32), np.array([0, 0, 0, 1], np.int32)
    case = CASES["gat, bias"]
    op = replace(case.op, message=replace(case.op.message, slope=slope))
    rows = case.rows(3, 4)
    rows["edge"][2:] = -np.inf  # one of three edges of row 0, and all of row 1
    dout = np.ones(case.out_shape(3), np.float32)
    sizes = {"num_senders": 3, "num_receivers": 3}
    run = compiled(op, kernel)
    out, grads = run(rows, dout, build_edges(senders, receivers, **sizes))
    less = rows | {"edge": rows["edge"][:2]}
    want, want_grads = run(less, dout, build_edges(senders[:2], receivers[:2], **sizes))
    assert not np.asarray(grads["edge"])[2:].any()
    assert_close((out, grads | {"edge": grads["edge"][:2]}), (want, want_grads))


@pytest.mark.parametrize("kernel", kernels_of(CASES["max"].op))
def test_extremes_share_ties_and_refuse_dropout(kernel):
    senders = receivers = np.zeros(4, np.int32)
    edges = build_edges(senders, receivers, num_senders=2, num_receivers=2)
    x = np.array([[-np.inf, -0.0, 3.0], [1, 2, 3]], np.float32)
    rows = {"sender": x}
    out, grads = compiled(CASES["max"].op, kernel)(rows, np.ones((2, 3), np.float32), edges)
    np.testing.assert_array_equal(out, [x[0], [0, 0, 0]])
    np.testing.assert_array_equal(grads["sender"], [[1, 1, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match="max has no dropout"):
        segment(CASES["max"].op, edges, **rows, dropout=DROPOUT, kernel=kernel)


@pytest.mark.parametrize("name", ["gat", "gatv2", "sum, weights", "max"])
@pytest.mark.skipif(why_not() is not None, reason="the native kernels are not built")
def test_temporary_memory_of_the_native_code_does_not_grow_with_the_edges(name):
    nodes, case = 503, CASES[name]

    def temporary(degree):
        receivers = np.repeat(np.arange(nodes, dtype=np.int32), degree)
        edges = build_edges(
            receivers[::-1].copy(), receivers, num_senders=nodes, num_receivers=nodes, forms=()
        )
        rows = case.rows(nodes, len(receivers))

        def total(rows, edges):
            return segment(case.op, edges, **rows, kernel="cpu").sum()

        analysis = jax.jit(jax.grad(total)).lower(rows, edges).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert temporary(40) <= temporary(10) + 4096


@pytest.mark.skipif(why_not() is not None, reason="the native kernels are not built")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be restricted")
def test_the_native_code_gives_the_same_bits_on_one_thread_and_on_many(tmp_path):
    """Long rows are split over threads, but where does not depend on how many there are."""
    for threads in ("one", "all"):
        command = [sys.executable, "-m", __name__, threads, str(tmp_path / f"{threads}.npy")]
        subprocess.run(command, check=True)
    one, every = (np.load(tmp_path / f"{threads}.npy") for threads in ("one", "all"))
    np.testing.assert_array_equal(one, every)


def write_bits(threads: str, path: str) -> None:
    """All results of native code on a graph with a hub, on one thread or on all there are."""
    if threads == "one":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    receivers = np.sort(np.where(np.arange(40_000) < 30_000, 7, rng.integers(0, 503, 40_000)))
    senders = rng.integers(0, 503, 40_000)
    edges = build_edges(senders, receivers, num_senders=503, num_receivers=503, forms=())
    results = []
    for name in ("dot_product", "gat, bias", "gatv2, edges", "mean, weights", "max"):
        case = CASES[name]
        dout = rng.standard_normal(case.out_shape(503)).astype(np.float32)
        results += jax.tree.leaves(
            compiled(case.op, case.op.kernel("cpu"))(case.rows(503, 40_000), dout, edges)
        )
    np.save(path, np.concatenate([np.ravel(result) for result in results]))


if __name__ == "__main__":
    write_bits(*sys.argv[1:])
