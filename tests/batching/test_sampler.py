"""Draws of neighbourhoods: the same natively and in numpy, without replacement, equally likely."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gtjax.batching import native
from gtjax.batching.sampler import ALL, Bounds, DoesNotFitError, Sampler, gather_rows
from gtjax.graph.csr import CSR, build_csr

NODES = 211
ARRAYS = (
    *("nodes_r", "offsets_r", "senders_e", "positions_e"),
    *("sender_offsets_r", "receivers_by_sender_e", "sender_order_e", "degrees_r"),
)
needs_native = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))


@pytest.fixture(scope="module")
def csr() -> CSR:
    """A hub of some hundred edges, isolated nodes, self-loops and edges that are there twice."""
    rng = np.random.default_rng(1)
    senders_e = rng.integers(0, NODES - 9, 1500)
    receivers_e = np.where(rng.random(1500) < 0.2, 7, rng.integers(0, NODES - 9, 1500))
    receivers_e[:50] = senders_e[:50]
    senders_e[100:150], receivers_e[100:150] = senders_e[50:100], receivers_e[50:100]
    return build_csr(receivers_e, senders_e.astype(np.int32), NODES)


def roomy(seeds: int, hops: int) -> Bounds:
    return Bounds((seeds, *[NODES] * hops), (2000,) * hops)


def seeds_of(count: int) -> np.ndarray:
    return np.random.default_rng(2).permutation(NODES)[:count]


def drawn(csr, fan_outs, count=40, step=3, **options):
    sampler = Sampler(csr, fan_outs, seed=11, **options)
    return sampler.draw(seeds_of(count), step, roomy(count + 3, len(fan_outs)), sampler.marks())


@needs_native
@pytest.mark.parametrize("fan_outs", [(5, 3), (1,), (ALL, 2, ALL), (200, 7), (ALL, ALL, ALL)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_native_code_and_numpy_draw_the_same(csr, fan_outs, kind):
    csr = CSR(csr.offsets, csr.neighbours_e.astype(kind), csr.edge_ids_e)
    a, b = drawn(csr, fan_outs), drawn(csr, fan_outs, native=False)
    assert a.needed == b.needed
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("uses_native", [pytest.param(True, marks=needs_native), False])
def test_a_draw_is_a_neighbourhood(csr, uses_native):
    """Every node has min(fan_out, degree) distinct in-edges of its own, hop by hop."""
    fan_outs = (5, 3)
    draw = drawn(csr, fan_outs, native=uses_native)
    starts = draw.bounds.row_starts
    for hop in range(3):
        rows = slice(starts[hop], starts[hop] + draw.needed.nodes[hop])
        nodes = draw.nodes_r[rows]
        assert len(set(nodes.tolist())) == len(nodes)
        assert (draw.nodes_r[rows.stop : starts[hop + 1]] == -1).all()
        np.testing.assert_array_equal(draw.degrees_r[rows], csr.degrees_n[nodes])
        counts = np.diff(draw.offsets_r)[rows]
        wanted = np.minimum(csr.degrees_n[nodes], fan_outs[hop]) if hop < 2 else 0 * counts
        np.testing.assert_array_equal(counts, wanted)
    np.testing.assert_array_equal(draw.nodes_r[:40], seeds_of(40))
    places = draw.positions_e[: draw.num_edges]
    receivers = np.repeat(np.arange(draw.bounds.rows), np.diff(draw.offsets_r))
    owner = np.searchsorted(csr.offsets, places, side="right") - 1
    np.testing.assert_array_equal(owner, draw.nodes_r[receivers])
    senders = draw.senders_e[: draw.num_edges]
    np.testing.assert_array_equal(csr.neighbours_e[places], draw.nodes_r[senders])
    assert len(set(zip(receivers.tolist(), places.tolist(), strict=True))) == draw.num_edges
    hop_of = np.searchsorted(starts, [receivers, senders], side="right") - 1
    np.testing.assert_array_equal(hop_of[0] + 1, hop_of[1])


def test_both_orders_hold_the_same_edges(csr):
    draw = drawn(csr, (5, 3))
    count = draw.num_edges
    receivers = np.repeat(np.arange(draw.bounds.rows), np.diff(draw.offsets_r))
    by_sender = np.repeat(np.arange(draw.bounds.rows), np.diff(draw.sender_offsets_r))
    order = draw.sender_order_e
    np.testing.assert_array_equal(draw.senders_e[order[:count]], by_sender)
    np.testing.assert_array_equal(receivers[order[:count]], draw.receivers_by_sender_e[:count])
    np.testing.assert_array_equal(np.sort(order), np.arange(len(order)))


def test_every_subset_is_as_likely(csr):
    """Of a node's 8 in-edges 3 are drawn: 56 subsets, each by chance (chi-squared)."""
    degrees_n = csr.degrees_n
    node = int(np.flatnonzero(degrees_n == 8)[0])
    sampler = Sampler(csr, (3,), seed=5)
    marks, counts, draws = sampler.marks(), {}, 5600
    for step in range(draws):
        draw = sampler.draw(np.array([node]), step, Bounds((1, 3), (3,)), marks)
        chosen = tuple(sorted(draw.positions_e.tolist()))
        counts[chosen] = counts.get(chosen, 0) + 1
    assert len(counts) == 56
    expected = draws / 56
    chi = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi < 95  # of 55 degrees of freedom: exceeded by chance once in a thousand seeds


def test_hops_steps_and_seeds_draw_apart(csr):
    """A node that is met in two hops draws anew, and so does another step or another seed."""
    hub = np.array([7])
    sampler = Sampler(csr, (4,), seed=1)
    marks, room = sampler.marks(), Bounds((1, 4), (4,))
    seen = {
        tuple(Sampler(csr, (4,), seed=s).draw(hub, step, room, marks).positions_e)
        for s in range(4)
        for step in range(4)
    }
    assert len(seen) == 16
    two = Sampler(csr, (ALL, 4), seed=1)
    loops = np.flatnonzero(csr.neighbours_e[csr.offsets[7] : csr.offsets[8]] == 7)
    if not len(loops):
        pytest.skip("the hub has no self-loop in this graph")
    draw = two.draw(hub, 0, roomy(1, 2), marks)
    again = int(np.flatnonzero(draw.nodes_r[1:] == 7)[0]) + 1
    places = draw.positions_e[draw.offsets_r[again] : draw.offsets_r[again + 1]]
    first = sampler.draw(hub, 0, room, marks).positions_e
    assert set(places) != set(first)


@needs_native
def test_threads_change_nothing(csr):
    sampler = Sampler(csr, (6, 4), seed=2)

    def draw(step):
        return sampler.draw(seeds_of(50), step, roomy(50, 2), sampler.marks())

    alone = [draw(step) for step in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, range(12)))
    for a, b in zip(alone, together, strict=True):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("uses_native", [pytest.param(True, marks=needs_native), False])
def test_what_does_not_fit_says_what_it_needs(csr, uses_native):
    sampler = Sampler(csr, (5, 3), seed=11, native=uses_native)
    marks, count = sampler.marks(), 40
    enough = sampler.draw(seeds_of(count), 3, roomy(count, 2), marks).needed
    for which in ("nodes", "edges"):
        sizes = list(getattr(enough, which))
        sizes[1] -= 1
        tight = Bounds(**({"nodes": enough.nodes, "edges": enough.edges} | {which: tuple(sizes)}))
        with pytest.raises(DoesNotFitError) as error:
            sampler.draw(seeds_of(count), 3, tight, marks)
        assert getattr(error.value.needed, which)[1] == getattr(enough, which)[1]
    exact = sampler.draw(seeds_of(count), 3, enough, marks)  # and just enough is enough
    assert exact.needed == enough


def test_marks_begin_again_when_their_numbers_end(csr):
    sampler = Sampler(csr, (5, 3), seed=11)
    marks = sampler.marks()
    want = sampler.draw(seeds_of(9), 0, roomy(9, 2), marks)
    marks.tag = 2**32 - 65
    for _ in range(3):
        got = sampler.draw(seeds_of(9), 0, roomy(9, 2), marks)
        np.testing.assert_array_equal(got.senders_e, want.senders_e)
    assert marks.tag < 100


@pytest.mark.parametrize("uses_native", [pytest.param(True, marks=needs_native), False])
def test_damage_is_found_before_it_is_followed(csr, uses_native):
    with pytest.raises(ValueError, match="offsets rise"):
        Sampler(CSR(csr.offsets[::-1].copy(), csr.neighbours_e, csr.edge_ids_e), (2,))
    with pytest.raises(ValueError, match="fan-outs are positive"):
        Sampler(csr, (2, 0))
    with pytest.raises(ValueError, match="seeds are nodes"):
        drawn_from(csr, [NODES], uses_native)
    far = csr.neighbours_e.copy()
    far[:] = NODES
    with pytest.raises(ValueError, match="neighbours are nodes"):
        drawn_from(CSR(csr.offsets, far, csr.edge_ids_e), [7], uses_native)


def drawn_from(csr, seeds, uses_native):
    sampler = Sampler(csr, (2,), native=uses_native)
    return sampler.draw(np.array(seeds), 0, roomy(len(seeds), 1), sampler.marks())


def test_gathered_rows_are_those_of_the_table():
    rng = np.random.default_rng(0)
    for table in (rng.normal(size=(50, 7)).astype(np.float32), rng.integers(0, 9, (50, 3))):
        rows = rng.integers(0, 50, 31)
        out = np.zeros((40, *table.shape[1:]), table.dtype)
        gather_rows(table, rows, out)
        np.testing.assert_array_equal(out[:31], table[rows])
        assert not out[31:].any()
        with pytest.raises(ValueError, match=r"rows are in 0\.\.49"):
            gather_rows(table, np.array([50]), out)
