"""The cache of rows: the right rows whatever it keeps, and what is asked for often is found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gtjax.batching.row_cache import RowCache, advised_rows

NODES, KEPT = 997, 60
POLICIES = ("scored", "degree", "lru")


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(NODES, 3)).astype(np.float32)


def asked(rng, chance_n, count=40):
    return np.sort(rng.choice(NODES, count, replace=False, p=chance_n / chance_n.sum()))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [0, 1, KEPT, NODES + 5])
def test_rows_are_those_of_the_table_whatever_is_kept(table, policy, capacity):
    rng = np.random.default_rng(1)
    chance_n = rng.pareto(1.0, NODES) + 0.01
    cache = RowCache(table, capacity, rng.integers(0, 9, NODES), policy, lambda rows: 2 * rows)
    total = 0
    for _ in range(100):
        nodes = asked(rng, chance_n)
        np.testing.assert_array_equal(cache.rows(nodes), 2 * table[nodes])
        total += len(nodes)
    assert cache.counts.hits + cache.counts.misses == total
    assert len(set(cache.nodes.tolist())) == min(capacity, NODES)
    if capacity > NODES:
        assert cache.counts.hit_rate == 1
        assert cache.counts.bytes_read == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_get_the_right_rows(table, policy):
    chance_n = np.random.default_rng(2).pareto(1.0, NODES) + 0.01
    cache = RowCache(table, KEPT, chance_n, policy)

    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(50):
            nodes = asked(rng, chance_n)
            np.testing.assert_array_equal(cache.rows(nodes), table[nodes])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_scores_find_what_degrees_do_not_know(table):
    """The rows that are asked for have nothing to do with degrees, and change half way."""
    rng = np.random.default_rng(3)
    chances = [rng.permutation(1 / np.arange(1, NODES + 1)) for _ in range(2)]
    caches = {policy: RowCache(table, KEPT, np.arange(NODES), policy) for policy in POLICIES}
    for chance_n in chances:
        for _ in range(300):
            nodes = asked(rng, chance_n)
            for cache in caches.values():
                cache.rows(nodes)
    rates = {policy: cache.counts.hit_rate for policy, cache in caches.items()}
    assert rates["scored"] > rates["lru"] > rates["degree"]
    assert rates["scored"] > rates["degree"] + 0.1


def test_the_advice_is_the_least_that_finds_enough():
    uses_n = np.array([5, 1, 0, 3, 1])
    assert advised_rows(uses_n, 4, 10**9, share=0.5) == 1
    assert advised_rows(uses_n, 4, 10**9, share=0.8) == 2
    assert advised_rows(uses_n, 4, 10**9, share=0.81) == 3
    assert advised_rows(uses_n, 4, 8, share=0.81) == 2  # as many as fit
    assert advised_rows(np.zeros(5, int), 4, 8) == 0
