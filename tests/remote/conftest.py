"""A cache of its own for what every test fetches, and no waiting between tries."""

from __future__ import annotations

import pytest

from gtjax.remote import folder
from gtjax.remote.problems import Patience


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(Patience, "seconds", lambda self, failures: 0.0)
    return tmp_path / "cache"
