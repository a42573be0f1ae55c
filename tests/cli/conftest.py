"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gtjax.cli.main import main
from tests.runs.conftest import out

__all__ = ["out"]


class Outcome(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture
def gtjax(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command; an exit of the parser counts as its exit code."""

    def run(*argv: object) -> Outcome:
        capfd.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as stop:
            code = stop.code
        return Outcome(code, *capfd.readouterr())

    return run
