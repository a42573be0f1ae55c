"""What travels on a wire: as it was, or within the error that the wire states."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gtjax.partition import partition_graph
from gtjax.sharding.collectives import bytes_received
from gtjax.strategies import WIRES, MeshShape
from tests.kernels.op_cases import CASES
from tests.strategies.on_devices import OnDevices
from tests.strategies.test_demand import compiled_text
from tests.strategies.test_exact import (
    GRAPHS,
    NODE_STRATEGIES,
    STRATEGIES,
    assert_equals_reference,
    graph_of,
)

INT8 = WIRES["int8"]
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@settings(deadline=None)
@given(hnp.arrays(np.float32, (5, 2, 3), elements=FLOATS))
def test_int8_is_off_by_at_most_half_a_step_of_the_rows_scale(rows):
    arrived = np.asarray(INT8.decode(jnp.asarray(rows), INT8.encode(jnp.asarray(rows))))
    largest = np.abs(rows).max(axis=(1, 2), keepdims=True)
    # Half a step, and what float32 rounds on the way; a scale that is subnormal counts as zero.
    assert (np.abs(arrived - rows) <= largest / 254 * (1 + 1e-4) + 1.5e-36).all()


def test_int8_takes_a_byte_a_value_and_a_scale():
    rows = jnp.ones((7, 4, 8), jnp.bfloat16)
    sent = INT8.encode(rows)
    assert sent.dtype == jnp.int8
    assert sent.shape == (7, INT8.row_bytes(32, 2)) == (7, 36)


def test_int8_hides_neither_nan_nor_infinity():
    rows = jnp.array([[1.0, jnp.nan], [jnp.inf, 1.0], [1.0, 2.0]])
    arrived = INT8.decode(rows, INT8.encode(rows))
    assert np.isnan(arrived[:2]).any(axis=1).all()
    assert np.isfinite(arrived[2]).all()


def test_whole_numbers_travel_as_they_are():
    rows = jnp.array([[300], [-7]])
    np.testing.assert_array_equal(INT8.decode(rows, INT8.encode(rows)), rows)


@pytest.mark.parametrize("strategy", NODE_STRATEGIES)
def test_ops_on_int8_are_near_those_on_plain_rows(strategy):
    graph = graph_of(*GRAPHS["prime"])
    partition = partition_graph(graph, 3, "random")
    case = ("dot_product, bias", graph, STRATEGIES[strategy], MeshShape(3), partition)
    with pytest.raises(AssertionError):  # it is not exact
        assert_equals_reference(*case, wire=INT8)
    assert_equals_reference(*case, wire=INT8, tolerance=0.08)


@pytest.mark.parametrize("strategy", NODE_STRATEGIES)
def test_int8_moves_a_quarter_forward(strategy):
    graph = graph_of(*GRAPHS["prime"])
    partition = partition_graph(graph, 4, "random")
    moved = {}
    for name, wire in WIRES.items():
        here = OnDevices(graph, STRATEGIES[strategy], MeshShape(4), partition, wire=wire)
        moved[name] = bytes_received(compiled_text(here, graph, CASES["sum"]), 4)
    # Rows forward, which a sum does not need again; gradients come back as they are.
    if strategy == "node_all_gather":
        assert moved["int8"]["all-gather"] == pytest.approx(
            moved["plain"]["all-gather"] * 36 / 128, rel=0.02
        )
        assert moved["int8"]["reduce-scatter"] == moved["plain"]["reduce-scatter"]
        return
    plain, int8 = (moved[name]["collective-permute"] for name in ("plain", "int8"))
    assert int8 / plain == pytest.approx((36 + 128) / (128 + 128), rel=0.1)
