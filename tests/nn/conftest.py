"""The graph that layers and models are held to their definitions on."""

from __future__ import annotations

import pytest

from tests.nn.local import drawn_edges


@pytest.fixture(scope="module")
def edges():
    return drawn_edges()
