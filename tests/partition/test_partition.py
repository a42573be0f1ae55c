"""A partition gives every node one owner, and says what is wrong with one that does not."""

import numpy as np
import pytest

import gtjax
from gtjax.core.errors import UserError
from gtjax.partition import Partition
from gtjax.partition.partition import MAX_PARTS
from tests.graph.graphs import make_graph


def test_owners_are_int32_and_read_only():
    given = np.array([2, 0, 2], np.uint8)
    partition = Partition(given, 4)
    assert partition.owner_n.dtype == np.int32
    assert partition.sizes_p.tolist() == [1, 0, 2, 0]
    assert partition.num_nodes == 3
    with pytest.raises(ValueError, match="read-only"):
        partition.owner_n[0] = 1
    given[0] = 0  # the caller may still write


def test_the_fingerprint_is_of_owners_and_parts():
    first = Partition(np.array([0, 1]), 2)
    assert first.fingerprint == Partition(np.array([0, 1], np.int64), 2).fingerprint
    assert first.fingerprint != Partition(np.array([1, 0]), 2).fingerprint
    assert first.fingerprint != Partition(np.array([0, 1]), 3).fingerprint


@pytest.mark.parametrize(
    ("owner", "num_parts", "said"),
    [
        ([0, 1, 2], 2, r"owner_n is in 0\.\.1 for 2 parts; found 2"),
        ([0, -1], 2, r"found -1"),
        ([[0, 1]], 2, r"found shape \[1, 2\]"),
        ([], 2, r"found shape \[0\]"),
        ([0.0, 1.0], 2, r"integers; found float64"),
        ([False, True], 2, r"integers; found bool"),
        ([0], 0, r"1 to 8192 parts; found 0"),
        ([0], MAX_PARTS + 1, r"1 to 8192 parts; found 8193"),
        ([0], True, r"found True"),
        ([0], 2.0, r"found 2.0"),
    ],
)
def test_a_broken_rule_is_named_with_its_value(owner, num_parts, said):
    with pytest.raises(UserError, match=said):
        Partition(np.array(owner), num_parts)


def test_a_partition_of_another_graph_is_refused():
    with pytest.raises(UserError, match="each of the graph's 3 nodes; found 2"):
        Partition(np.array([0, 1]), 2).cut(make_graph([0], [1], 3))


def test_the_names_are_public():
    assert gtjax.Partition is Partition
    graph = make_graph([0, 1, 2], [1, 2, 0], 3)
    assert gtjax.partition_graph(graph, 1).owner_n.tolist() == [0, 0, 0]
