"""Propagation equals the dense oracle in values and gradients, also through its weights."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import segment_attention
from pallas_kernels.edges import Dropout, EdgeList, build_edges, build_stacked_edges, keep_scale
from pallas_kernels.native import why_not
from pallas_kernels.passes.xla import XLA_IN_PLACE
from pallas_kernels.propagation import cpu, propagate
from tests.kernels.conformance import older_instructions
from tests.kernels.oracle import awkward_graphs, dense_propagation
from tests.kernels.test_attention import assert_agrees, edges_of, qkv
from tests.marks import slow

GRAPHS = awkward_graphs()
HEADS = 3
FEW = [
    "hub receives half of all edges",
    "hub of hubs",
    "isolated",
    "no edges",
    "one node, one loop",
]
NATIVE = [] if why_not() else ["cpu", *(cpu.passes(name) for name in older_instructions())]
KERNELS = ["xla", slow(XLA_IN_PLACE, name="xla in place"), *NATIVE]


@functools.cache
def compiled(kernel, rounds, restart, dropout):
    @jax.jit
    def both(q, k, v, bias, dout, edges):
        def run(q, k, v, bias):
            options = {"rounds": rounds, "restart": restart, "dropout": dropout, "kernel": kernel}
            return propagate(q, k, v, edges, bias, **options)

        out, pullback = jax.vjp(run, q, k, v, bias)
        return out, pullback(dout.astype(out.dtype))

    return both


def inputs(graph, heads=HEADS, width=8):
    q, k, v, dout = qkv(graph[2], heads, width)
    bias = np.random.default_rng(1).standard_normal((len(graph[0]), heads)).astype(np.float32)
    return q, k, v, bias, dout


@functools.cache  # every kernel is held against the same
def wanted(name, rounds, restart, dropout, heads, width):
    senders, receivers, _ = GRAPHS[name]
    q, k, v, bias, dout = inputs(GRAPHS[name], heads, width)
    keep = keep_scale(dropout, jnp.arange(len(senders)), heads)
    return dense_propagation(q, k, v, senders, receivers, bias, keep, rounds, restart, dout)


def check(name, kernel, rounds, restart=0.2, rate=0.0, heads=HEADS, width=8):
    arrays, dropout = inputs(GRAPHS[name], heads, width), Dropout(rate, 3)
    out, grads = compiled(kernel, rounds, restart, dropout)(*arrays, edges_of(GRAPHS[name]))
    want, want_grads = wanted(name, rounds, restart, dropout, heads, width)
    assert_agrees((out, *grads), (want, *want_grads))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", FEW)
def test_values_and_gradients_equal_the_dense_oracle(name, kernel):
    check(name, kernel, rounds=2)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("rounds", "restart"), [(1, 0.0), (2, 0.1), (3, 0.9), (4, 0.3)])
def test_any_number_of_rounds_and_restart_with_one_draw_of_dropout(rounds, restart, kernel):
    check("hub sends half of all edges", kernel, rounds, restart, rate=0.4)


@pytest.mark.parametrize("kernel", NATIVE)
@pytest.mark.parametrize(("heads", "width"), [(8, 16), (1, 7), (9, 32), (2, 100)])
def test_head_shapes_of_the_native_code(heads, width, kernel):
    check("every length of row", kernel, 2, rate=0.3, heads=heads, width=width)


@pytest.mark.parametrize("kernel", ["cpu", "xla"])
def test_one_round_is_attention_with_a_restart(kernel):
    graph = GRAPHS["prime"]
    q, k, v, bias, _ = inputs(graph)
    edges, dropout = edges_of(graph), Dropout(0.3, 9)
    got, _ = compiled(kernel, 1, 0.25, dropout)(q, k, v, bias, v, edges)
    attend = jax.jit(functools.partial(segment_attention, dropout=dropout, kernel=kernel))
    mixed = attend(q, k, v, edges, bias)
    np.testing.assert_allclose(got, 0.75 * mixed + 0.25 * v, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16_tables_are_summed_in_float32(kernel):
    graph = GRAPHS["hub of hubs"]
    senders, receivers, _ = graph
    q, k, v, bias, dout = (jnp.asarray(a, jnp.bfloat16) for a in inputs(graph))
    rounds, restart = 2, 0.1
    edges, keep = edges_of(graph), np.ones((len(senders), HEADS))
    out, grads = compiled(kernel, rounds, restart, None)(q, k, v, bias, dout, edges)
    assert {out.dtype, *(grad.dtype for grad in grads)} == {jnp.dtype(jnp.bfloat16)}
    want, want_grads = dense_propagation(
        q, k, v, senders, receivers, bias, keep, rounds, restart, dout
    )
    # One rounding to 8 bits for every round, forward and backward, and one of the result.
    got = tuple(np.asarray(a, np.float32) for a in (out, *grads))
    assert_agrees(got, (want, *want_grads), tolerance=3 * 2**-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_in_float32_with_keys_in_bfloat16_mix_their_start_in_float32(kernel):
    graph = GRAPHS["isolated"]
    q, k, v, bias, dout = inputs(graph)
    half = (jnp.asarray(a, jnp.bfloat16) for a in (q, k))
    out, grads = compiled(kernel, 3, 0.5, None)(*half, v, bias, dout, edges_of(graph))
    assert [a.dtype for a in (out, *grads)] == [
        *(jnp.float32, jnp.bfloat16, jnp.bfloat16, jnp.float32, jnp.float32)
    ]
    lonely = np.setdiff1d(np.arange(graph[2]), graph[1])
    np.testing.assert_array_equal(np.asarray(out)[lonely], 0.5 * v[lonely])


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_edges_change_nothing_and_have_no_gradient(kernel):
    senders, receivers, nodes = GRAPHS["hub sends half of all edges"]
    q, k, v, bias, dout = inputs(GRAPHS["hub sends half of all edges"])
    spare, dropout = 41, Dropout(0.3, 2)
    alone = EdgeList(senders, receivers, np.arange(len(senders)))
    sizes = {"num_senders": nodes, "num_receivers": nodes, "num_edges": len(senders) + spare}
    padded = jax.tree.map(lambda x: x[0], build_stacked_edges([alone], **sizes))
    padded_bias = np.concatenate([bias, np.full((spare, HEADS), np.nan, np.float32)])
    run = compiled(kernel, 3, 0.1, dropout)
    out, grads = run(q, k, v, bias, dout, edges_of((senders, receivers, nodes)))
    padded_out, padded_grads = run(q, k, v, padded_bias, dout, padded)
    np.testing.assert_array_equal(padded_grads[3][len(senders) :], 0.0)
    got = (padded_out, *padded_grads[:3], padded_grads[3][: len(senders)])
    assert_agrees(got, (out, *grads), tolerance=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("broken", [0, 1, 2], ids=["query", "key", "value"])
def test_a_nan_is_not_hidden(broken, kernel):
    graph = GRAPHS["prime"]
    *arrays, dout = inputs(graph)
    arrays[broken][17] = np.nan
    out, _ = compiled(kernel, 1, 0.1, Dropout(0.3, 2))(*arrays, dout, edges_of(graph))
    senders, receivers, _ = graph
    rows = [17] if broken < 1 else receivers[senders == 17]
    assert np.isnan(np.asarray(out)[rows]).any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_memory_is_that_of_the_weights_whatever_the_rounds_but_for_their_values(kernel):
    nodes, degree, heads, width = 1009, 240, 4, 32
    senders = np.random.default_rng(0).integers(0, nodes, nodes * degree).astype(np.int32)
    receivers = np.repeat(np.arange(nodes, dtype=np.int32), degree)
    edges = edges_of((senders, receivers, nodes))
    q, k, v, _ = qkv(nodes, heads, width)

    def temporary(rounds):
        def total(q, k, v, edges):
            return propagate(q, k, v, edges, rounds=rounds, restart=0.1, kernel=kernel).sum()

        step = jax.jit(jax.grad(total, (0, 1, 2)))
        analysis = step.lower(q, k, v, edges).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    few, many = temporary(2), temporary(12)
    weights, values = len(senders) * heads * 4, nodes * heads * width * 4
    # In XLA also the gathered rows of one chunk of edges, which are as large as the weights here.
    assert few < 11 * weights < 0.35 * len(senders) * heads * width * 4
    assert many - few <= 10 * values


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"rounds": 0, "restart": 0.1}, "at least one round; found 0"),
        ({"rounds": 1, "restart": 1.0}, r"restart is in \[0, 1\); found 1.0"),
    ],
)
def test_what_cannot_be_propagated_is_refused(options, rule):
    node = np.zeros((1, 1, 8), np.float32)
    edges = build_edges(*np.zeros((2, 1), np.int32), num_senders=1, num_receivers=1)
    with pytest.raises(ValueError, match=rule):
        propagate(node, node, node, edges, **options)
