"""Command-line arguments as dataclasses, by tyro."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from typing import Any, TypeVar

from gtjax.cli.suggest import suggestion
from gtjax.core.errors import UserError

T = TypeVar("T")
# As help lists them: at the start of a line, perhaps in a box, perhaps after a short name.
OPTION = re.compile(r"^[\s│]*(?:-\w(?: [A-Z]+)?, )?(--[a-z][\w.-]*)", re.MULTILINE)


def parse(
    kind: type[T],
    command: str,
    argv: list[str],
    default: T | None = None,
    description: str | None = None,
) -> T:
    """Build `kind` from arguments; a mistake prints what to do and exits with 2."""
    import tyro

    settings: dict[str, Any] = {"prog": f"gtjax {command}", "description": description}
    if default is not None:
        settings["default"] = default
    settings["registry"] = _registry()
    try:
        made, unknown = tyro.cli(kind, args=argv, return_unknown_args=True, **settings)
    except ValueError as error:  # a rule of the config, such as heads that divide the width
        raise UserError(str(error)) from error
    if unknown:
        help_text = io.StringIO()
        with contextlib.redirect_stdout(help_text), contextlib.suppress(SystemExit):
            tyro.cli(kind, args=["--help"], **settings)
        _refuse(command, unknown, OPTION.findall(help_text.getvalue()))
    return made


def _refuse(command: str, unknown: list[str], options: list[str]) -> None:
    """Name what is not known, and what may have been meant."""
    first = next((word for word in unknown if word.startswith("-")), None)
    if first is None:
        raise UserError(f"{command} does not expect {unknown[0]!r}: see gtjax {command} --help")
    meant = suggestion(first, options)
    hint = f"did you mean {meant}?" if meant else f"see gtjax {command} --help"
    raise UserError(f"{command} has no option {first.partition('=')[0]}: {hint}")


def _registry() -> Any:
    """How values are read that tyro reads otherwise: integers, also as 1e3."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def _integers(info: Any) -> PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: integer(words[0]),
            is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def integer(text: str) -> int:
    """200, 1e3 or 2.5e6; not 1.5."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value.is_integer():
        raise ValueError(f"an integer, such as 200 or 1e3; found {text!r}")
    return int(value)


def taken(argv: list[str], command: str, *names: str) -> tuple[dict[str, str | None], list[str]]:
    """The options of these names, on which the others depend, and the arguments that are left."""
    parser = argparse.ArgumentParser(f"gtjax {command}", add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}")
    known, rest = parser.parse_known_args(argv)
    return vars(known), rest
