"""Dot-product attention agrees with the dense oracle, in every kernel, on awkward graphs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels import DOT_PRODUCT, native, segment_attention
from pallas_kernels.edges import Dropout, build_edges, keep_scale
from pallas_kernels.reductions import SOFTMAX
from tests.kernels.conformance import ALL_KERNELS, KERNELS, on_graphs
from tests.kernels.interpreted import INTERPRETED
from tests.kernels.oracle import awkward_graphs, dense_attention
from tests.marks import slow

GRAPHS = awkward_graphs()
AT_ONCE = "all at once"
ONE_BY_ONE = [name for name in GRAPHS if name != AT_ONCE]
FEW_GRAPHS = [AT_ONCE, "one node, one loop", "one node, no edge"]


def qkv(nodes, heads=3, width=8, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((nodes, heads, width)).astype(dtype) for _ in range(4))


def edges_of(graph):
    senders, receivers, nodes = graph
    return build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes)


def run(q, k, v, bias, dout, edges, kernel, dropout=None):
    out, grads = _compiled(kernel, dropout)(q, k, v, bias, dout, edges)
    return np.asarray(out), grads


@functools.cache  # an interpreted kernel takes long to compile
def _compiled(kernel, dropout):
    @jax.jit
    def both(q, k, v, bias, dout, edges):
        def attend(q, k, v, bias):
            return segment_attention(q, k, v, edges, bias, dropout=dropout, kernel=kernel)

        out, pullback = jax.vjp(attend, q, k, v, bias)
        return out, pullback(dout.astype(out.dtype))

    return both


def assert_agrees(got, want, tolerance=1e-5):
    assert len(got) == len(want)
    for name, a, b in zip(("out", "dq", "dk", "dv", "dbias"), got, want, strict=False):
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=0, err_msg=name)


@pytest.mark.parametrize("rate", [slow(0.0), 0.4])
@pytest.mark.parametrize(
    ("name", "kernel"), on_graphs(KERNELS, ONE_BY_ONE) + on_graphs(INTERPRETED, FEW_GRAPHS)
)
@pytest.mark.quick_every(6)
def test_values_and_gradients_equal_the_dense_oracle(name, rate, kernel):
    senders, receivers, nodes = GRAPHS[name]
    q, k, v, dout = qkv(nodes)
    bias = np.random.default_rng(1).standard_normal((len(senders), 3)).astype(np.float32)
    dropout = Dropout(rate, 11)
    keep = keep_scale(dropout, jnp.arange(len(senders)), 3) if rate else None
    out, grads = run(q, k, v, bias, dout, edges_of(GRAPHS[name]), kernel, dropout)
    want, want_grads = dense_attention(q, k, v, senders, receivers, bias, keep, dout)
    assert_agrees((out, *grads), (want, *want_grads))


@pytest.mark.parametrize("kernel", ALL_KERNELS)
# 5 x 128 is more channels than the tpu kernel takes at once.
@pytest.mark.parametrize(
    ("heads", "width"), [slow(1, 8), (8, 16), slow(2, 100), slow(1, 256), (5, 128)]
)
@pytest.mark.quick_every(6)
def test_head_shapes(heads, width, kernel):
    senders, receivers, nodes = GRAPHS["prime"]
    q, k, v, dout = qkv(nodes, heads, width)
    out, grads = run(q, k, v, None, dout, edges_of(GRAPHS["prime"]), kernel)
    want, want_grads = dense_attention(q, k, v, senders, receivers, None, None, dout)
    assert_agrees((out, *grads[:3]), (want, *want_grads[:3]))


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.quick_every(4)
def test_bfloat16_inputs_accumulate_in_float32(kernel):
    senders, receivers, nodes = GRAPHS["hub of hubs"]
    q, k, v, dout = (jnp.asarray(a, jnp.bfloat16) for a in qkv(nodes))
    out, grads = run(q, k, v, None, dout, edges_of(GRAPHS["hub of hubs"]), kernel)
    assert out.dtype == jnp.bfloat16
    assert grads[0].dtype == jnp.bfloat16
    want, want_grads = dense_attention(q, k, v, senders, receivers, None, None, dout)
    # The inputs are exact in float64, so what is left is one rounding to 8 bits of the results.
    got = tuple(np.asarray(a, np.float32) for a in (out, *grads[:3]))
    assert_agrees(got, (want, *want_grads[:3]), tolerance=2**-7)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.quick_every(4)
def test_extreme_logits_stay_finite(size, kernel):
    senders, receivers, nodes = GRAPHS["hub receives half of all edges"]
    q, k, v, dout = qkv(nodes)
    bias = np.random.default_rng(2).choice([-size, size], (len(senders), 3)).astype(np.float32)
    edges = edges_of(GRAPHS["hub receives half of all edges"])
    out, grads = run(q, k, v, bias, dout, edges, kernel)
    want, want_grads = dense_attention(q, k, v, senders, receivers, bias, None, dout)
    assert np.isfinite(out).all()
    # A float32 logit near 1e4 is only known to about 1e-3, and so is its weight.
    assert_agrees((out, *grads), (want, *want_grads), tolerance=1e-7 * size * 5)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.quick_every(3)
def test_bias_of_minus_infinity_removes_an_edge(kernel):
    senders = np.array([0, 1, 2, 1], np.int32)
    receivers = np.array([0, 0, 0, 1], np.int32)
    q, k, v, dout = qkv(3)
    bias = np.zeros((4, 3), np.float32)
    bias[2:] = -np.inf  # one of three edges of row 0, and all of row 1
    out, grads = run(q, k, v, bias, dout, edges_of((senders, receivers, 3)), kernel)
    want, want_grads = dense_attention(q, k, v, senders[:2], receivers[:2], None, None, dout)
    assert_agrees((out, *grads[:3]), (want, *want_grads[:3]))
    assert not np.asarray(grads[3])[2:].any()


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.parametrize("broken", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.quick_every(4)
def test_a_nan_is_not_hidden(broken, kernel):
    senders, receivers, nodes = GRAPHS["prime"]
    arrays = list(qkv(nodes))
    node = 17
    arrays[broken][node] = np.nan
    out, grads = run(*arrays[:3], None, arrays[3], edges_of(GRAPHS["prime"]), kernel)
    rows = [node] if broken == 0 else receivers[senders == node]
    assert np.isnan(out[rows]).any(axis=(1, 2)).all()
    assert np.isnan(np.asarray(grads[0])[rows]).any(axis=(1, 2)).all()


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.quick_every(8)
def test_runs_are_bit_equal(kernel):
    q, k, v, dout = qkv(GRAPHS["hub of hubs"][2])
    edges = edges_of(GRAPHS["hub of hubs"])
    first, second = (run(q, k, v, None, dout, edges, kernel) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def check_merged_partials(kernel, seed, parts):
    rng = np.random.default_rng(seed)
    nodes = 23
    senders, receivers = rng.integers(0, nodes, (2, 90)).astype(np.int32)
    receivers.sort()
    owner = rng.integers(0, parts, len(senders))
    q, k, v, _ = (jnp.asarray(a) for a in qkv(nodes, seed=seed % 1000))
    bias = rng.standard_normal((len(senders), 3)).astype(np.float32)
    draw = Dropout(0.3, seed % 3)

    @jax.jit
    def forward(edges, bias):
        return kernel.forward(DOT_PRODUCT, q, (k, v), None, edges, bias, draw)

    def finished(partial):
        return SOFTMAX.finish(partial)[0]

    whole = forward(edges_of((senders, receivers, nodes)), bias)
    merged = jax.tree.map(lambda x, like: jnp.full(like.shape, x), SOFTMAX.nothing, whole)
    for part in rng.permutation(parts):
        mine = np.flatnonzero(owner == part)
        edges = build_edges(
            senders[mine], receivers[mine], num_senders=nodes, num_receivers=nodes, edge_ids_e=mine
        )
        merged = SOFTMAX.merge(merged, forward(edges, bias[mine]))
    np.testing.assert_allclose(finished(merged), finished(whole), atol=2e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(2, 4))
@pytest.mark.quick_every(4)
def test_merged_partials_of_any_split_equal_the_whole(kernel, seed, parts):
    check_merged_partials(kernel, seed, parts)


@pytest.mark.parametrize("kernel", INTERPRETED)
def test_merged_partials_of_a_split_equal_the_whole(kernel):
    check_merged_partials(kernel, seed=5, parts=2)


@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([0.1, 0.5, 0.9]))
@settings(max_examples=20, deadline=None)
def test_dropout_keeps_the_stated_share_and_differs_by_head_and_seed(seed, rate):
    ids = jnp.arange(20_000)
    scale = np.asarray(keep_scale(Dropout(rate, seed), ids, 4))
    kept = scale > 0
    assert abs(kept.mean() - (1 - rate)) < 0.01
    np.testing.assert_allclose(scale[kept], 1 / (1 - rate), rtol=1e-6)
    other = np.asarray(keep_scale(Dropout(rate, (seed + 1) % 2**32), ids, 4)) > 0
    agree_by_chance = rate**2 + (1 - rate) ** 2
    for a, b in ((kept[:, 0], kept[:, 1]), (kept[:, 0], other[:, 0]), (kept[1:, 0], kept[:-1, 0])):
        assert abs((a == b).mean() - agree_by_chance) < 0.03


@pytest.mark.parametrize("kernel", KERNELS)
def test_temporary_memory_is_a_fraction_of_one_value_per_edge_and_channel(kernel):
    nodes, degree, heads, width = 2003, 240, 4, 16
    senders = np.random.default_rng(0).integers(0, nodes, nodes * degree).astype(np.int32)
    receivers = np.repeat(np.arange(nodes, dtype=np.int32), degree)
    edges = edges_of((senders, receivers, nodes))
    q, k, v, _ = qkv(nodes, heads, width)

    def total(q, k, v, edges):
        return segment_attention(q, k, v, edges, kernel=kernel).sum()

    step = jax.jit(jax.grad(total, (0, 1, 2)))
    analysis = step.lower(q, k, v, edges).compile().memory_analysis()
    assert analysis is not None
    per_edge_and_channel = len(senders) * heads * width * 4
    assert analysis.temp_size_in_bytes < 0.15 * per_edge_and_channel


def test_a_kernel_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="kernel is one of auto, cpu, gpu, tpu, xla; found 'fast'"):
        DOT_PRODUCT.kernel("fast")


@pytest.mark.parametrize(
    ("senders", "receivers", "rule"),
    [([0, 1], [1, 0], "sorted"), ([0, 3], [0, 1], "0..2"), ([0], [0, 1], "one sender")],
)
def test_edges_that_break_a_rule_are_refused(senders, receivers, rule):
    with pytest.raises(ValueError, match=rule):
        build_edges(np.array(senders), np.array(receivers), num_senders=3, num_receivers=3)


def test_without_its_library_the_native_kernel_says_why_and_auto_takes_another(monkeypatch):
    monkeypatch.setattr("pallas_kernels.native.LIBRARY", "_absent.*")
    native._load.cache_clear()
    try:
        assert "C++ compiler" in (native.why_not() or "")
        assert DOT_PRODUCT.kernel("auto", "cpu").name == "xla"
        with pytest.raises(ValueError, match="kernel 'cpu' cannot run: it was not built"):
            DOT_PRODUCT.kernel("cpu", "cpu")
    finally:
        monkeypatch.undo()
        native._load.cache_clear()
    assert DOT_PRODUCT.kernel("auto", "cpu").name == "cpu"
    assert DOT_PRODUCT.kernel("auto", "tpu").name == "tpu"


def test_a_platform_without_a_kernel_of_its_own_is_refused_by_name():
    for kernel in ("gpu", "tpu"):
        with pytest.raises(ValueError, match=rf"kernel '{kernel}' runs on {kernel}; this is cpu"):
            DOT_PRODUCT.kernel(kernel, "cpu")


@pytest.mark.parametrize("kernel", ["xla", *INTERPRETED])
def test_edges_without_the_form_of_the_kernel_are_refused(kernel):
    senders, receivers, nodes = GRAPHS["prime"]
    edges = build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes, forms=())
    with pytest.raises(ValueError, match=r"works on .*: build_edges"):
        run(*qkv(nodes)[:3], None, qkv(nodes)[3], edges, kernel)
