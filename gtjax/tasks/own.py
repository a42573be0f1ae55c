"""A loss and a metric of one's own: functions of `(outputs, labels, counted)` that give a number.

`outputs` are what the head gives (of real targets, in their own unit), `labels` the task's, with
the same rows, and `counted` is True for the rows of the split that have a label. A metric is the
better the larger it is. They are named by "module:function", so that a run can be evaluated by
another process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gtjax.nn.models import import_object

OWN: dict[str, Callable[..., Any]] = {}  # functions that were given in Python, by name


def own_name(function: Callable[..., Any] | str) -> str:
    """The name of a function, which is known by it from here on."""
    if isinstance(function, str):
        return function
    name = f"{function.__module__}:{function.__qualname__}"
    OWN[name] = function
    return name


def own_function(name: str, what: str) -> Callable[..., Any]:
    """The function of that name: given in this process, or imported."""
    if name not in OWN:
        OWN[name] = import_object(name, what, "function")
    return OWN[name]


def is_own(name: str) -> bool:
    """Whether it is the name of a function, and not one of a table."""
    return ":" in name
