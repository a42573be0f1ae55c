"""Rows in pieces: every edge once, nothing long, and similar lengths side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.edges.pieces import PIECE_EDGES, cut_rows


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=60))
def test_every_edge_is_in_one_piece_of_its_row_and_no_piece_is_long(degrees):
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    cut = cut_rows(offsets)
    rows_of_edges = np.full(offsets[-1], -1)
    for pieces in (cut.whole, cut.split):
        for row, start, end in zip(pieces.rows_p, pieces.starts_p, pieces.ends_p, strict=True):
            assert end - start <= PIECE_EDGES
            assert (rows_of_edges[start:end] == -1).all()
            rows_of_edges[start:end] = row
    np.testing.assert_array_equal(rows_of_edges, np.repeat(np.arange(len(degrees)), degrees))
    hubs = cut.hubs
    assert sorted([*cut.whole.rows_p, *hubs.rows_p]) == list(range(len(degrees)))
    for row, start, end in zip(hubs.rows_p, hubs.starts_p, hubs.ends_p, strict=True):
        assert end - start > 1
        np.testing.assert_array_equal(np.flatnonzero(cut.split.rows_p == row), range(start, end))
    lengths = (cut.split.ends_p - cut.split.starts_p).tolist()
    assert not lengths or min(lengths) >= PIECE_EDGES // 2


def test_whole_rows_stand_by_length_and_within_a_class_as_they_were():
    degrees = np.array([0, 100, 1, 101, 0, 30, 99, 1])
    whole = cut_rows(np.concatenate([[0], np.cumsum(degrees)])).whole
    assert whole.rows_p.tolist() == [1, 3, 6, 5, 2, 7, 0, 4]
