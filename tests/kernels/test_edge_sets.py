"""An op over several sets of edges, each with its own table, equals the op over all of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.driver import Stage, segment
from pallas_kernels.edges import Dropout, build_edges
from tests.kernels.conformance import kernels_of
from tests.kernels.interpreted import INTERPRETED
from tests.kernels.op_cases import CASES
from tests.kernels.oracle import awkward_graphs
from tests.kernels.test_ops import assert_close

SENDERS, RECEIVERS, NODES = awkward_graphs()["hub sends half of all edges"]
# A hub and some others, a table that nobody reads, and the rest.
LONELY = np.where(SENDERS == 150, 0, SENDERS).astype(np.int32)
BOUNDS = (0, 150, 151, NODES)
DROPOUT = Dropout(0.3, 5)


@dataclass(frozen=True)
class Tables:
    """Rows of senders by the table that they are in, fetched a table at a time."""

    refetches: bool

    def stages(self, arrays: Any) -> list[Stage]:
        """One for each table."""
        bounds = itertools.pairwise(BOUNDS)
        return [self._stage(edges, *of) for edges, of in zip(arrays, bounds, strict=True)]

    def _stage(self, edges: Any, first: int, last: int) -> Stage:
        def fetch(rows, zero):
            start = first if zero is None else first + zero
            return jax.tree.map(
                lambda x: jax.lax.dynamic_slice_in_dim(x, start, last - first), rows
            )

        def bring_back(totals, gradients):
            home = jax.tree.map(
                lambda x: jnp.zeros((NODES, *x.shape[1:])).at[first:last].set(x), gradients
            )
            return home if totals is None else jax.tree.map(jnp.add, totals, home)

        return Stage(edges, fetch, bring_back)


def edges_by_table():
    """The edges of each table, and their places among all edges."""
    table_e = np.searchsorted(BOUNDS, LONELY, side="right") - 1
    places = [np.flatnonzero(table_e == table) for table in range(len(BOUNDS) - 1)]
    assert [len(mine) > 0 for mine in places] == [True, False, True]
    arrays = tuple(
        build_edges(
            LONELY[mine] - first,
            RECEIVERS[mine],
            num_senders=last - first,
            num_receivers=NODES,
            edge_ids_e=mine,
        )
        for mine, (first, last) in zip(places, itertools.pairwise(BOUNDS), strict=True)
    )
    return arrays, np.concatenate(places)


OPS = [name for name in CASES if "custom" not in name and name not in ("gat", "gatv2", "sum")]
RUNS = [
    pytest.param(name, *kernel.values, id=f"{name}, {kernel.id}", marks=kernel.marks)
    for name in OPS
    for kernel in kernels_of(CASES[name].op)
    if "baseline" not in str(kernel.id)
]
RUNS += [pytest.param("dot_product, bias", *kernel.values, id=kernel.id) for kernel in INTERPRETED]


@pytest.mark.parametrize(("name", "kernel"), RUNS)
@pytest.mark.quick_every(6)
def test_an_op_over_sets_of_edges_equals_the_op_over_all_of_them(name, kernel):
    case = CASES[name]
    arrays, order = edges_by_table()
    rows = case.rows(NODES, len(LONELY))
    staged = rows | {"edge": jax.tree.map(lambda x: x[order], rows["edge"])}
    dout = np.random.default_rng(1).standard_normal(case.out_shape(NODES)).astype(np.float32)
    dropout = DROPOUT if case.heads else None

    @jax.jit
    def both(rows, dout, arrays):
        def run(rows):
            use: Any = {"dropout": dropout, "kernel": kernel, "transport": Tables(True)}
            return segment(case.op, arrays, **rows, **use)

        out, pull = jax.vjp(run, rows)
        return out, pull(dout)[0]

    out, grads = both(staged, dout, arrays)
    of_edges = jax.tree.map(lambda x: np.asarray(x)[np.argsort(order)], grads["edge"])
    want = case.oracle(rows, LONELY, RECEIVERS, dout, dropout)
    assert_close((out, grads | {"edge": of_edges}), want)


def test_what_was_fetched_is_kept_unless_it_is_fetched_again():
    arrays, _ = edges_by_table()
    case = CASES["dot_product"]
    rows = case.rows(NODES, 0)

    def slices(refetches):
        def total(rows):
            use: Any = {"kernel": "xla", "transport": Tables(refetches)}
            return segment(case.op, arrays, **rows, **use).sum()

        return str(jax.make_jaxpr(jax.grad(total))(rows)).count("dynamic_slice[")

    assert slices(True) == 2 * slices(False)
