"""Graphs made on the spot: `rmat:nodes=1e6,edges=1e7,seed=3`.

The generators and their options are those of `gtjax.graph.generators`; this only reads the text.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from gtjax.core.errors import UserError
from gtjax.graph import Graph


def generators() -> dict[str, Callable[..., Graph]]:
    """The table of generators by name."""
    from gtjax.graph.generators import GENERATORS

    return dict(GENERATORS)


def generate(text: str, seed: int) -> Graph:
    """Make the graph that `name` or `name:key=value,key=value` asks for.

    `seed` is used where the generator takes one and the text does not give it.
    """
    name, _, options_text = text.partition(":")
    generator = generators()[name]
    parameters = inspect.signature(generator, eval_str=True).parameters
    options = _parse_options(name, options_text, parameters)
    if "seed" in parameters:
        options.setdefault("seed", seed)
    return generator(**options)


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing if no known word is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _parse_options(name: str, text: str, parameters: Any) -> dict[str, int | float | bool | str]:
    options: dict[str, int | float | bool | str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise UserError(f"options of {name} are written key=value: {item!r} is not.")
        if key not in parameters:
            known = ", ".join(parameters) or "none"
            hint = suggestion(key, parameters)
            raise UserError(f"{name} has no option {key!r}; its options are {known}.{hint}")
        if key in options:
            raise UserError(f"option {key!r} of {name} is given twice; give it once.")
        options[key] = _convert(name, key, value, parameters[key].annotation)
    return options


def _convert(name: str, key: str, value: str, kind: Any) -> int | float | bool | str:
    expected = {int: "an integer, such as 1000 or 1e6", float: "a number", bool: "true or false"}
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if kind is int:
            return _integer(value)
        return float(value) if kind is float else value
    except (ValueError, KeyError, OverflowError):
        wanted = expected.get(kind, "a value")
        raise UserError(f"option {key} of {name} is {wanted}: {value!r} is not.") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number != int(number):
            raise
        return int(number)
