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
from gtjax.distributed.sampling import Sampler, collective_names, covered, stragglers, traced
from gtjax.distributed.team import OwnBoard, Team


def program(size, work):
    mesh = Mesh(np.array(jax.devices()[:2]), ("a",))

    def each(x):
        for _ in range(work):
            x = jnp.tanh(x @ jnp.ones((64, 64)) * 0.01)
        return x + jax.lax.ppermute(x, "a", [(0, 1), (1, 0)])

    spread = jax.shard_map(each, mesh=mesh, in_specs=P("a"), out_specs=P("a"))
    x = jax.device_put(np.ones((size, 64), np.float32), NamedSharding(mesh, P("a")))
    return jax.jit(spread).lower(x).compile(), x


def test_collectives_are_found_by_name_and_timed():
    compiled, x = program(4096, 2)
    names = collective_names(compiled)
    assert names
    result, seconds = traced(lambda: np.asarray(compiled(x)), names)
    assert result.shape == (4096, 64)
    assert seconds > 0
    assert traced(lambda: np.asarray(compiled(x)), frozenset({"no-such"}))[1] == 0


def test_a_trace_of_the_user_comes_first(tmp_path):
    compiled, x = program(64, 1)
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch(compiled)
    with jax.profiler.trace(tmp_path):
        assert sampler.sample(lambda: np.asarray(compiled(x))).shape == (64, 64)
    assert sampler.text == ""
    sampler.sample(lambda: np.asarray(compiled(x)))
    assert sampler.text.startswith("communication ")


def test_a_program_without_collectives_is_never_sampled():
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch(jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile())
    assert not any(sampler.is_due() for _ in range(10))


def test_it_is_sampled_early_and_then_seldom(monkeypatch):
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.watch(program(8, 1)[0])
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
    sampler.saw(0.1, [0.0, 0.05])
    assert sampler.text == "communication 100%"


def test_what_is_said():
    sampler = Sampler(Team(0, 1, OwnBoard()))
    sampler.saw(2.0, [1.0, 1.0, 1.8, 1.0])
    assert sampler.text == "communication 50%, slow: process 2 computes 1.8x as long as the median"
