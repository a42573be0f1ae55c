"""Rows in pieces: every edge once, nothing long, and similar lengths side by side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.edges.pieces import PIECE_EDGES, WINDOW, cut_rows


def columns(offsets, num_columns=100):
    return np.random.default_rng(0).integers(0, num_columns, offsets[-1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=60))
def test_every_edge_is_in_one_piece_of_its_row_and_no_piece_is_long(degrees):
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    cut = cut_rows(offsets, columns(offsets))
    rows_of_edges = np.full(offsets[-1], -1)
    walked, parts, whole, lengths = cut.walked, {}, [], []
    for row, start, end in zip(walked.rows_p, walked.starts_p, walked.ends_p, strict=True):
        assert end - start <= PIECE_EDGES
        assert (rows_of_edges[start:end] == -1).all()
        if row < 0:
            parts[-2 - row] = row = cut.part_rows_q[-2 - row]
            lengths.append(end - start)
        else:
            whole.append(row)
        rows_of_edges[start:end] = row
    np.testing.assert_array_equal(rows_of_edges, np.repeat(np.arange(len(degrees)), degrees))
    hubs = cut.hubs
    assert sorted([*whole, *hubs.rows_p]) == list(range(len(degrees)))
    assert sorted(parts) == list(range(cut.parts))
    for row, start, end in zip(hubs.rows_p, hubs.starts_p, hubs.ends_p, strict=True):
        assert end - start > 1
        np.testing.assert_array_equal(np.flatnonzero(cut.part_rows_q == row), range(start, end))
    assert not lengths or min(lengths) >= PIECE_EDGES // 2


def test_pieces_stand_by_length_and_within_a_class_as_they_were():
    degrees = np.array([0, 100, 1, 101, 0, 30, 99, 1])
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    walked = cut_rows(offsets, columns(offsets)).walked
    assert walked.rows_p.tolist() == [1, 3, 6, 5, 2, 7, 0, 4]


@pytest.mark.parametrize("ordered", [True, False])
def test_they_do_so_in_windows_where_rows_close_by_read_the_same_columns(ordered):
    rng = np.random.default_rng(0)
    rows = 4 * WINDOW
    degrees = rng.integers(1, 16, rows)
    degrees[5 * rows // 8] = 10 * PIECE_EDGES
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    rows_e = np.repeat(np.arange(rows), degrees)
    near_e = np.clip(rows_e + rng.integers(-200, 200, len(rows_e)), 0, rows - 1)
    columns_e = near_e if ordered else rng.integers(0, rows, len(rows_e))
    cut = cut_rows(offsets, columns_e)
    lengths = cut.walked.ends_p - cut.walked.starts_p
    if not ordered:
        assert (np.diff(np.round(2 * np.log2(lengths))) <= 0).all()
        return
    window_p = cut.walked.rows_p // WINDOW
    parts = cut.walked.rows_p < 0
    assert parts.sum() == 10
    window_p[parts] = 5 * rows // 8 // WINDOW  # where what they read is
    assert (np.diff(window_p) >= 0).all()
