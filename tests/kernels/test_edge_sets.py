"""Attention over several sets of edges, each with its own table, equals attention over all."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.segment_attention import (
    Dropout,
    EdgeSet,
    build_edges,
    keep_scale,
    segment_attention,
    segment_attention_over,
)
from tests.kernels.conformance import ALL_KERNELS
from tests.kernels.oracle import awkward_graphs, dense_attention
from tests.kernels.test_attention import assert_agrees, qkv

GRAPHS = awkward_graphs()
HEADS, DROPOUT = 3, Dropout(0.3, 5)


def sets_of(graph, bounds):
    """The edges by which of the tables between `bounds` their sender is in, and their places."""
    senders, receivers, nodes = graph
    table_e = np.searchsorted(bounds, senders, side="right") - 1
    sets = []
    for table, (first, last) in enumerate(itertools.pairwise(bounds)):
        mine = np.flatnonzero(table_e == table)
        edges = build_edges(
            senders[mine] - first,
            receivers[mine],
            num_senders=last - first,
            num_receivers=nodes,
            edge_ids_e=mine,
        )
        sets.append((mine, slice(first, last), edges))
    return sets


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_attention_over_sets_of_edges_equals_attention_over_all_of_them(kernel):
    graph = GRAPHS["hub sends half of all edges"]
    senders, receivers, nodes = graph
    # A hub and some others, a table that nobody reads, and the rest.
    lonely = np.where(senders == 150, 0, senders).astype(np.int32)
    graph = (lonely, receivers, nodes)
    sets = sets_of(graph, [0, 150, 151, nodes])
    assert [len(mine) > 0 for mine, *_ in sets] == [True, False, True]
    q, k, v, dout = qkv(nodes, HEADS)
    bias = np.random.default_rng(1).standard_normal((len(senders), HEADS)).astype(np.float32)

    @jax.jit
    def both(q, tables, dout, edges):
        def attend(q, tables):
            sets = [EdgeSet(k, v, e, b) for (k, v, b), e in zip(tables, edges, strict=True)]
            return segment_attention_over(q, sets, dropout=DROPOUT, kernel=kernel)

        out, pullback = jax.vjp(attend, q, tables)
        return out, pullback(dout)

    tables = [(k[rows], v[rows], bias[mine]) for mine, rows, _ in sets]
    out, (dq, dtables) = both(q, tables, dout, [edges for *_, edges in sets])
    dk, dv = (np.concatenate([d[i] for d in dtables]) for i in (0, 1))
    dbias = np.full_like(bias, np.nan)
    for (mine, *_), grads in zip(sets, dtables, strict=True):
        dbias[mine] = grads[2]
    keep = keep_scale(DROPOUT, jnp.arange(len(senders)), HEADS)
    want, want_grads = dense_attention(q, k, v, lonely, receivers, bias, keep, dout)
    assert_agrees((out, dq, dk, dv, dbias), (want, *want_grads))


def test_attention_over_one_set_is_the_same_program_as_attention():
    senders, receivers, nodes = GRAPHS["prime"]
    edges = build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes)
    q, k, v, _ = qkv(nodes)

    def over(q, k, v):
        return segment_attention_over(q, [EdgeSet(k, v, edges)], kernel="xla")

    def direct(q, k, v):
        return segment_attention(q, k, v, edges, kernel="xla")

    lines = [
        str(jax.jit(jax.grad(lambda *a, f=f: f(*a).sum())).lower(q, k, v).as_text())
        for f in (over, direct)
    ]
    assert lines[0] == lines[1]


def test_attention_over_no_set_is_refused():
    with pytest.raises(ValueError, match="at least one set"):
        segment_attention_over(jnp.zeros((2, 1, 8)), [])
