"""Command-line arguments as dataclasses, by tyro."""

from __future__ import annotations

from typing import TypeVar

from gtjax.graph.errors import UserError

T = TypeVar("T")


def parse(
    kind: type[T],
    command: str,
    argv: list[str],
    default: T | None = None,
    description: str | None = None,
) -> T:
    """Build `kind` from arguments; a mistake prints what to do and exits with 2."""
    import tyro

    name = f"gtjax {command}"
    try:
        if default is None:
            return tyro.cli(kind, prog=name, args=argv, description=description)
        return tyro.cli(kind, prog=name, args=argv, description=description, default=default)
    except ValueError as error:  # a rule of the config, such as heads that divide the width
        raise UserError(str(error)) from error
