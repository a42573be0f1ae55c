"""Edges of several parts in equal shapes: each part's slice is whole, and padding adds nothing."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels import DOT_PRODUCT, segment_attention
from pallas_kernels.edges import (
    Dropout,
    EdgeList,
    TooLargeError,
    build_edges,
    build_stacked_edges,
    keep_scale,
)
from tests.kernels.conformance import ALL_KERNELS, KERNELS
from tests.kernels.oracle import awkward_graphs, dense_attention
from tests.kernels.test_attention import assert_agrees, qkv

GRAPHS = awkward_graphs()
HEADS, DROPOUT = 3, Dropout(0.3, 5)


def split(graph, parts):
    """Each part's share of the receivers and their edges; every part has as many rows."""
    senders, receivers, nodes = graph
    rows = -(-nodes // parts)
    mine = [np.flatnonzero(receivers // rows == part) for part in range(parts)]
    lists = [EdgeList(senders[e], receivers[e] - rows * p, e) for p, e in enumerate(mine)]
    return lists, rows


def by_part(array, rows, parts):
    """Rows of nodes as [parts, rows], padded by zeros."""
    whole = np.zeros((rows * parts, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole.reshape(parts, rows, *array.shape[1:])


def bias_by_part(bias, lists, num_edges, filler):
    whole = np.full((len(lists), num_edges, bias.shape[1]), filler, bias.dtype)
    for part, edges in enumerate(lists):
        whole[part, : len(edges.edge_ids_e)] = bias[edges.edge_ids_e]
    return whole


@functools.cache  # an interpreted kernel takes long to compile
def of_part(kernel):
    @jax.jit
    def both(q, k, v, bias, dout, edges):
        def attend(q, k, v, bias):
            return segment_attention(q, k, v, edges, bias, dropout=DROPOUT, kernel=kernel)

        out, pullback = jax.vjp(attend, q, k, v, bias)
        return out, pullback(dout)

    return both


def check_parts(graph, kernel, parts, spare, filler, like=None):
    """The parts one after the other, plus an empty one, equal the dense oracle on the whole."""
    senders, receivers, nodes = graph
    lists, rows = split(graph, parts)
    lists.append(EdgeList(*(np.zeros(0, np.int32),) * 3))
    num_edges = max(len(part.edge_ids_e) for part in lists) + spare
    sizes = {"num_senders": nodes, "num_receivers": rows}
    if like is not None:
        like = build_stacked_edges([*like, *like], num_edges=num_edges, room=1.5, **sizes)
    edges = build_stacked_edges(lists, num_edges=num_edges, like=like, **sizes)
    if like is not None:
        assert shapes(edges) == shapes(like)
    q, k, v, dout = qkv(nodes, HEADS)
    bias = np.random.default_rng(1).standard_normal((len(senders), HEADS)).astype(np.float32)
    q_prhd, dout_prhd = (by_part(a, rows, parts + 1) for a in (q, dout))
    bias_peh = bias_by_part(bias, lists, num_edges, filler)
    out, dq, dk, dv = [], [], 0, 0
    dbias = np.full_like(bias, np.nan)
    for p, part in enumerate(lists):
        slice_of_part = jax.tree.map(lambda x, p=p: x[p], edges)
        assert slice_of_part.num_edges == num_edges
        got, grads = of_part(kernel)(q_prhd[p], k, v, bias_peh[p], dout_prhd[p], slice_of_part)
        out.append(got)
        dq.append(grads[0])
        dk, dv = dk + np.asarray(grads[1], np.float64), dv + np.asarray(grads[2], np.float64)
        count = len(part.edge_ids_e)
        dbias[part.edge_ids_e] = grads[3][:count]
        np.testing.assert_array_equal(grads[3][count:], 0.0)
    keep = keep_scale(DROPOUT, jnp.arange(len(senders)), HEADS)
    want, want_grads = dense_attention(q, k, v, senders, receivers, bias, keep, dout)
    np.testing.assert_array_equal(out[-1], 0.0)
    got = (np.concatenate(out)[:nodes], np.concatenate(dq)[:nodes], dk, dv, dbias)
    assert_agrees(got, (want, *want_grads))


def shapes(tree):
    """With the types, and the structure that they are in: all that a compiled program asks."""
    return jax.tree.map(lambda x: (x.shape, x.dtype.name), tree)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.quick_every(8)
def test_in_the_shapes_of_other_edges_the_slices_equal_the_dense_oracle(kernel):
    """The others are one part with every row of the graph, and room."""
    graph = senders, receivers, nodes = GRAPHS["prime"]
    rows = -(-nodes // 3)
    ids = np.arange(len(senders))
    order = np.argsort(receivers % rows, kind="stable")
    whole = EdgeList(senders[order], receivers[order] % rows, ids)
    check_parts(graph, kernel, 3, len(ids), filler=np.nan, like=[whole, whole])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_edges_get_the_shapes_of_others_or_are_refused(data):
    """And are refused only if they need more of something: what was built with room fits itself."""
    degree = st.sampled_from([0, 1, 3, 5, 9, 70, 300, 1200])

    def edge_lists():
        lists = []
        for _ in range(2):
            degrees = data.draw(st.lists(degree, min_size=7, max_size=7))
            rows = np.repeat(np.arange(7), degrees).astype(np.int32)
            lists.append(EdgeList((rows * 3 + 1) % 7, rows, np.arange(len(rows))))
        return lists

    sizes = {"num_senders": 7, "num_receivers": 7}
    first, second = edge_lists(), edge_lists()
    room = data.draw(st.sampled_from([1.0, 1.3]))
    like = build_stacked_edges(first, num_edges=9000, room=room, **sizes)
    assert shapes(build_stacked_edges(first, like=like, **sizes)) == shapes(like)
    try:
        other = build_stacked_edges(second, like=like, **sizes)
    except TooLargeError:
        need = build_stacked_edges(second, num_edges=9000, **sizes)
        assert any_larger(need, like)
        return
    assert shapes(other) == shapes(like)
    for p, part in enumerate(second):
        want = sorted(zip(part.receivers_e, part.senders_e, strict=True))
        tilings = jax.tree.map(lambda x, p=p: x[p], other.tilings)
        assert sorted(edges_in_tiles(tilings.by_receiver)) == want
        assert sorted(edges_in_tiles(tilings.by_sender)) == sorted((s, r) for r, s in want)


def any_larger(need, there):
    """Whether some part of the layout is larger, or of another kind, in one than in the other."""
    if jax.tree.structure(need) != jax.tree.structure(there):
        return True
    return any(a.size > b.size for a, b in zip(*map(jax.tree.leaves, (need, there)), strict=True))


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.quick_every(8)
def test_the_slices_of_all_parts_together_equal_the_dense_oracle(kernel):
    check_parts(GRAPHS["all at once"], kernel, parts=4, spare=37, filler=np.nan)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("filler", [np.inf, -np.inf])
@pytest.mark.parametrize("name", ["hub receives half of all edges", "isolated", "no edges"])
def test_awkward_parts_whatever_the_bias_of_padding(name, filler, kernel):
    check_parts(GRAPHS[name], kernel, parts=3, spare=0, filler=filler)


@pytest.mark.parametrize("name", ["all at once", "no edges"])
def test_a_stack_of_one_is_what_build_edges_builds(name):
    senders, receivers, nodes = GRAPHS[name]
    sizes = {"num_senders": nodes, "num_receivers": nodes}
    ids = np.arange(len(senders))
    stack = build_stacked_edges([EdgeList(senders, receivers, ids)], **sizes)
    whole = build_edges(senders, receivers, **sizes)
    one = jax.tree.map(lambda x: x[0], stack)
    jax.tree.map(np.testing.assert_array_equal, one, whole)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=st.integers(1, 40), parts=st.integers(1, 4))
def test_every_slice_has_each_edge_once_whatever_the_degrees(data, rows, parts):
    """Read back from the tiles, pieces and strips of the slice, whose sizes follow other parts."""
    degrees = data.draw(st.lists(st.sampled_from([0, 1, 5, 70, 300]), min_size=1, max_size=rows))
    rng = np.random.default_rng(len(degrees))
    lists, first = [], 0
    for part in range(parts):
        rng.shuffle(degrees)
        some = degrees if part else [d // 5 for d in degrees]
        receivers = np.repeat(np.arange(len(some)), some).astype(np.int32)
        senders = rng.integers(0, rows, len(receivers)).astype(np.int32)
        lists.append(EdgeList(senders, receivers, first + np.arange(len(receivers))))
        first += len(receivers)
    stack = build_stacked_edges(lists, num_senders=rows, num_receivers=rows)
    for p, part in enumerate(lists):
        edges = jax.tree.map(lambda x, p=p: x[p], stack)
        want = sorted(zip(part.receivers_e, part.senders_e, strict=True))
        assert sorted(edges_in_tiles(edges.tilings.by_receiver)) == want
        assert sorted((s, r) for r, s in want) == sorted(edges_in_tiles(edges.tilings.by_sender))
        np.testing.assert_array_equal(np.sort(edges.sender_order_e), np.arange(edges.num_edges))


def edges_in_tiles(tiling):
    """(row, column) of every edge, found by following a row's result down to its tiles."""
    rows, columns = [], []
    for tiles in tiling.tiles:
        flat = tiles.columns_ctw.reshape(tiles.num_tiles, -1)
        rows += tiles.rows_ct.reshape(-1).tolist()
        columns += [[c for c in line if c >= 0] for line in flat.tolist()]
    merged = np.concatenate(tiling.merges) if tiling.merges else np.zeros((0, 4), int)

    def below(number):
        if number < len(rows):
            return [(rows[number], columns[number])]
        if number < len(rows) + len(merged):
            return [x for n in merged[number - len(rows)] if n >= 0 for x in below(n)]
        return []

    for row, number in enumerate(tiling.result_r.tolist()):
        for of_row, line in below(number):
            assert of_row == row
            yield from ((row, column) for column in line)


@pytest.mark.parametrize("kernel", ["cpu", "xla"])
def test_in_shard_map_over_four_devices_it_equals_the_dense_oracle(kernel):
    graph, parts = GRAPHS["hub receives half of all edges"], 4
    senders, receivers, nodes = graph
    lists, rows = split(graph, parts)
    forms = DOT_PRODUCT.kernel(kernel).needs
    edges = build_stacked_edges(lists, num_senders=nodes, num_receivers=rows, forms=forms)
    q, k, v, dout = qkv(nodes, HEADS)
    bias = np.random.default_rng(1).standard_normal((len(senders), HEADS)).astype(np.float32)
    mesh = jax.make_mesh(
        (parts,), ("node",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:parts]
    )
    here, whole = jax.sharding.PartitionSpec("node"), jax.sharding.PartitionSpec()

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(here, whole, whole, here, here),
        out_specs=here,
        check_vma=False,
    )
    def attend(q, k, v, bias, edges):
        edges, bias = jax.tree.map(lambda x: x[0], (edges, bias))
        return segment_attention(q, k, v, edges, bias, dropout=DROPOUT, kernel=kernel)

    @jax.jit
    def both(q, k, v, bias, dout, edges):
        out, pullback = jax.vjp(lambda *args: attend(*args, edges), q, k, v, bias)
        return out, pullback(dout)

    num_edges = edges.senders_e.shape[1]
    q_nhd, dout_nhd = (by_part(a, rows, parts).reshape(-1, *a.shape[1:]) for a in (q, dout))
    bias_peh = bias_by_part(bias, lists, num_edges, np.nan)
    out, (dq, dk, dv, dbias_peh) = both(q_nhd, k, v, bias_peh, dout_nhd, edges)
    dbias = [d[: len(part.edge_ids_e)] for d, part in zip(dbias_peh, lists, strict=True)]
    keep = keep_scale(DROPOUT, jnp.arange(len(senders)), HEADS)
    want, want_grads = dense_attention(q, k, v, senders, receivers, bias, keep, dout)
    got = (out[:nodes], dq[:nodes], dk, dv, np.concatenate(dbias))
    assert_agrees(got, (want, *want_grads))


def test_a_part_larger_than_asked_for_is_refused():
    node = np.zeros(2, np.int32)
    sizes = {"num_senders": 1, "num_receivers": 1}
    with pytest.raises(ValueError, match="holds the largest part: 2 edges; found 1"):
        build_stacked_edges([EdgeList(node, node, node)], num_edges=1, **sizes)
    with pytest.raises(ValueError, match="at least one part"):
        build_stacked_edges([], **sizes)
