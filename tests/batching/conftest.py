"""The small graph and model of the tests of runs."""

from __future__ import annotations

from tests.runs.conftest import graph, out, randomly_labelled, rng

__all__ = ["graph", "out", "randomly_labelled", "rng"]
