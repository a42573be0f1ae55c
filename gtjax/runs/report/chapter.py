"""What a task adds to the report, beyond metrics and curves that every run has."""

from __future__ import annotations

from typing import NamedTuple

from gtjax.runs.report.scores import Interval


class Chapter(NamedTuple):
    """How sure the validated metric is on test, and parts of the page."""

    interval: Interval | None
    parts: tuple[str, ...]
