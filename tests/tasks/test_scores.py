"""Scores of rankings against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.tasks.scores import average_precision, ranks_among

scores = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=1)


@settings(max_examples=50, deadline=None)
@given(scores)
def test_average_precision_is_the_mean_over_positives_of_the_precision_at_their_score(rows):
    score, positive, counted = (np.array(column) for column in zip(*rows, strict=True))
    found = float(average_precision(score.astype(np.float32), positive, counted))
    precisions = [
        sum(p and c and s >= own for s, p, c in rows) / sum(c and s >= own for s, _, c in rows)
        for own, p, c in rows
        if p and c
    ]
    assert found == pytest.approx(np.mean(precisions) if precisions else np.nan, nan_ok=True)


@settings(max_examples=50, deadline=None)
@given(scores, scores)
def test_a_rank_counts_what_scores_higher_and_half_of_what_scores_the_same(rows, others):
    score, counted = (np.array(column) for column in list(zip(*rows, strict=True))[::2])
    other, there = (np.array(column) for column in list(zip(*others, strict=True))[::2])
    found = np.asarray(ranks_among(score.astype(np.float32), counted, other * 1.0, there))
    for rank, own, counts in zip(found, score, counted, strict=True):
        above = sum(1.0 if s > own else 0.5 if s == own else 0 for s in other[there])
        assert rank == (1 + above if counts else np.inf)
