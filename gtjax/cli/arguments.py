"""Command-line arguments as dataclasses, by tyro."""

from __future__ import annotations

from typing import TypeVar

from gtjax.graph.errors import UserError

T = TypeVar("T")


def parse(kind: type[T], command: str, argv: list[str], default: T | None = None) -> T:
    """Build `kind` from arguments; a mistake prints what to do and exits with 2."""
    import tyro

    options = {} if default is None else {"default": default}
    try:
        return tyro.cli(kind, prog=f"gtjax {command}", args=argv, **options)
    except ValueError as error:  # a rule of the config, such as heads that divide the width
        raise UserError(str(error)) from error
