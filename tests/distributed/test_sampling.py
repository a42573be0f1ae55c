"""The share of communication comes from a real trace, and slow processes are named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gtjax.distributed import sampling
from gtjax.distributed.sampling import Sampler, Trace, covered, own_times, stragglers, traced
from gtjax.distributed.team import OwnBoard, Team
from gtjax.sharding.instructions import instruction_kinds
from gtjax.strategies.run import EDGES


def program(size, work):
    mesh = Mesh(np.array(jax.devices()[:2]), ("a",))

    def each(x):
        with jax.named_scope(EDGES):
            x = jnp.tanh(jnp.cumsum(x, axis=0))
        for _ in range(work):
            x = jnp.tanh(x @ jnp.ones((64, 64)) * 0.01)
        return x + jax.lax.ppermute(x, "a", [(0, 1), (1, 0)])

    spread = jax.shard_map(each, mesh=mesh, in_specs=P("a"), out_specs=P("a"))
    x = jax.device_put(np.ones((size, 64), np.float32), NamedSharding(mesh, P("a")))
    compiled = jax.jit(spread).lower(x).compile()
    return compiled, instruction_kinds(compiled.as_text()), x


def test_what_runs_is_found_by_name_and_timed():
    compiled, kinds, x = program(4096, 2)
    assert {"communication", "dense", "edges"} <= set(kinds.values())
    result, seconds, trace = traced(lambda: np.asarray(compiled(x)), kinds)
    assert result.shape == (4096, 64)
    assert 0 < trace.communicating <= trace.busy <= seconds * 1.1  # two clocks
    assert all(trace.spent[kind] > 0 for kind in ("communication", "dense", "edges"))
    assert sum(trace.spent.values()) <= 2 * trace.busy * 1.001  # two devices
    _, _, nothing = traced(lambda: np.asarray(compiled(x)), {"no-such": "edges"})
    assert nothing == Trace(0, 0, {"edges": 0})


def test_what_takes_longer_has_the_larger_share():
    shares = []
    for work in (2, 24):
        compiled, kinds, x = program(8192, work)
        sampler = Sampler(Team(0, 1, OwnBoard()))
        sampler.watch(kinds)
        assert sampler.shares is None
        for _ in range(2):
            sampler.sample(lambda compiled=compiled, x=x: np.asarray(compiled(x)))
        assert sum(sampler.shares.values()) == pytest.approx(1)
        shares.append(sampler.shares["dense"])
    assert shares[0] < shares[1]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=8))
def test_what_is_inside_of_something_counts_for_itself(pairs):
    # Loops one after the other, each with a body that fills a part of it, and a part of that.
    events, wanted, at = [], {"loop": 0, "body": 0, "inner": 0}, 0
    for gap, length in pairs:
        start, at = at + gap, at + gap + 4 * length
        events += [("loop", start, at), ("body", start + length, at - length)]
        events += [("inner", start + length, start + 2 * length)]
        wanted = {"loop": wanted["loop"] + 2 * length} | {
            name: wanted[name] + length for name in ("body", "inner")
        }
    found = dict.fromkeys(wanted, 0)
    for name, took in own_times(reversed(events)):
        found[name] += took
    assert found == wanted


def test_a_trace_of_the_user_comes_first(tmp_path):
    compiled, kinds, x = program(64, 1)
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch(kinds)
    with jax.profiler.trace(tmp_path):
        assert sampler.sample(lambda: np.asarray(compiled(x)))[0].shape == (64, 64)
    assert sampler.text == ""
    sampler.sample(lambda: np.asarray(compiled(x)))
    assert sampler.text.startswith("communication ")


def test_a_program_without_collectives_is_not_sampled_in_a_short_run(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(sampling.time, "monotonic", lambda: now[0])
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch({"dot.1": "dense"})
    assert not any(sampler.is_due() for _ in range(10))
    now[0] += sampling.SHORT_SECONDS + 0.1
    assert [sampler.is_due() for _ in range(3)] == [True, False, False]
    sampler.saw(1.0, [Trace(0.0, 0.9, {"dense": 0.9})])
    assert sampler.text == ""
    assert sampler.shares == {"dense": 1.0}


def test_it_is_sampled_early_and_then_seldom(monkeypatch):
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch({"all-reduce.1": "communication"})
    now = [0.0]
    monkeypatch.setattr(sampling.time, "monotonic", lambda: now[0])
    due = []
    for turn in range(300):
        now[0] += 1
        if sampler.is_due():
            due.append(turn)
    assert due == [2, 123, 244]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_what_intervals_cover(pairs):
    spans = [(start, start + length) for start, length in pairs]
    seen = {point for start, stop in spans for point in range(start, stop)}
    assert covered([(float(a), float(b)) for a, b in spans]) == len(seen)


@pytest.mark.parametrize(
    ("computing", "slow"),
    [
        ([1, 1, 1, 1], []),
        ([1, 1.4, 1, 1], []),
        ([1, 1.6, 1, 1], [1]),
        ([2.0], []),
        ([1, 1.4], []),
        ([2, 1], [0]),
        ([0, 0], []),
        ([0, 1], []),
    ],
)
def test_who_is_slow(computing, slow):
    assert stragglers(computing) == slow


def test_a_sample_too_short_to_tell_names_nobody():
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch({"all-reduce.1": "communication"})
    sampler.saw(0.1, [Trace(took, 0.0, {}) for took in (0.1, 0.05)])
    assert sampler.text == "communication 100%"
    assert sampler.shares is None


def test_what_is_said():
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch({"all-reduce.1": "communication"})
    traces = [Trace(t, 2.0, {"communication": t, "edges": 2 - t}) for t in (1.0, 1.0, 0.2, 1.8)]
    sampler.saw(2.0, traces)
    assert sampler.text == "communication 50%, slow: process 2 computes 1.8x as long as the median"
