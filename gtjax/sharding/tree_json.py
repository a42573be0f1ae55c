"""Trees of our own classes as JSON and back, without pickle.

    None, True, 7, "text"   as they are
    (1, 2)                  [1, 2]
    {"train": 1}            {"dict": {"train": 1}}
    MeshShape(4, 2)         {"class": "gtjax.strategies.base:MeshShape",
                             "fields": {"node": 4, "feature": 2}}

Classes are dataclasses and named tuples at the top level of modules of `gtjax` and
`pallas_kernels` that this process has imported: a name in a file never imports or calls anything
else. Whatever else is in a tree is an error when it is encoded, so what can be written can be read.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

PACKAGES = ("gtjax", "pallas_kernels")


def to_json(tree: Any) -> Any:
    """What `json.dumps` takes; a `TypeError` names what cannot be written."""
    if tree is None or type(tree) in (bool, int, str):
        return tree
    if type(tree) is tuple:
        return [to_json(each) for each in tree]
    if type(tree) is dict and all(type(key) is str for key in tree):
        return {"dict": {key: to_json(value) for key, value in tree.items()}}
    names = _field_names(type(tree))
    name = f"{type(tree).__module__}:{type(tree).__qualname__}"
    if names is None or _class_of(name) is not type(tree):
        raise TypeError(f"trees of our dataclasses and named tuples are written; found {name}")
    return {"class": name, "fields": {each: to_json(getattr(tree, each)) for each in names}}


def from_json(stored: Any) -> Any:
    """The tree that `to_json` was given; a `ValueError` says what is not as it wrote it."""
    if stored is None or type(stored) in (bool, int, str):
        return stored
    if type(stored) is list:
        return tuple(from_json(each) for each in stored)
    if type(stored) is dict and stored.keys() == {"dict"} and type(stored["dict"]) is dict:
        return {key: from_json(value) for key, value in stored["dict"].items()}
    if type(stored) is dict and stored.keys() == {"class", "fields"}:
        return _made(stored["class"], stored["fields"])
    raise ValueError(f"a tree has tuples, dicts and classes; found {str(stored)[:80]}")


def _made(name: Any, fields: Any) -> Any:
    kind = _class_of(name)
    if kind is None or type(fields) is not dict or set(fields) != set(_field_names(kind) or ()):
        raise ValueError(f"there is no class {str(name)[:80]} with these fields")
    try:
        return kind(**{each: from_json(value) for each, value in fields.items()})
    except TypeError as error:
        raise ValueError(f"{name} does not take what is stored: {error}") from error


def _class_of(name: Any) -> type | None:
    """One of our classes by its full name, or None."""
    module, _, own = name.partition(":") if type(name) is str else ("", "", "")
    if module.split(".")[0] not in PACKAGES or module not in sys.modules:
        return None
    kind = vars(sys.modules[module]).get(own)
    if not isinstance(kind, type) or (kind.__module__, kind.__qualname__) != (module, own):
        return None
    return None if _field_names(kind) is None else kind


def _field_names(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass that is made from all its fields, or of a named tuple; None for others."""
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return tuple(each.name for each in fields) if all(each.init for each in fields) else None
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
