"""The user's cache folder, for what can be fetched or computed again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """`GTJAX_CACHE_DIR` if it is set, else the platform's cache folder for gtjax."""
    if chosen := os.environ.get("GTJAX_CACHE_DIR"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("gtjax")
