"""The hook by which long computations say how far they are."""

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 to 1) and a message."""


def ignore_progress(fraction: float, message: str) -> None:
    """Say nothing."""
