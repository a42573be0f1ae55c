"""Rows of parts: enough for the largest, and of many a multiple that suits registers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gtjax.partition import Partition
from gtjax.strategies.numbering import PADDING, number_nodes, rows_of_parts


@given(st.integers(0, 10**6), st.integers(1, 64), st.integers(1, 16))
def test_padding_is_little_and_gives_multiples(largest, parts, multiple):
    rows = rows_of_parts(largest, parts, multiple)
    assert rows % multiple == 0
    assert max(1, largest) <= rows
    if parts > 1 and largest >= 1024:
        assert rows % 128 == 0
        assert rows - largest < 128 * multiple
    else:
        assert rows - max(1, largest) < multiple


def test_one_part_is_not_padded_to_registers():
    assert rows_of_parts(5003, 1) == 5003


@given(st.lists(st.integers(0, 3), min_size=1, max_size=50), st.integers(1, 4))
def test_every_node_stands_once_in_its_part(owners, multiple):
    numbering = number_nodes(Partition(np.array(owners, np.int32), 4), multiple=multiple)
    nodes = numbering.node_pr[numbering.node_pr != PADDING]
    assert sorted(nodes) == list(range(len(owners)))
    part_n = numbering.position_n // numbering.rows
    np.testing.assert_array_equal(part_n, owners)
