"""Values as people read them."""

from __future__ import annotations

import math
from typing import Any


def text(value: Any) -> str:
    """Any value that a result, a setting or a figure of a graph can have."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items())
    return str(value)


def words(name: str) -> str:
    """The name of a metric or a figure, in words."""
    return {"roc_auc": "ROC-AUC"}.get(name, name.replace("_", " "))


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"


def duration(seconds: float) -> str:
    """Of microseconds to days."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
