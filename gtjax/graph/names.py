"""What people call nodes, classes and features; everywhere else numbers stand for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError


@dataclass(frozen=True, eq=False)
class Names:
    """Names as far as the data has them; an empty list where it has none."""

    nodes: np.ndarray | None = None
    """Of every node, as text [N]."""
    classes: tuple[str, ...] = ()
    """Of the classes, or of the questions if each node has several, in the order of their numbers;
    of the targets where those are real numbers."""
    features: tuple[str, ...] = ()
    """Of the columns of the node features."""

    def of_class(self, number: int) -> str:
        """The name of a class, or its number."""
        return self.classes[number] if number < len(self.classes) else str(number)

    def of_node(self, number: int) -> str:
        """The name of a node, or its number."""
        return str(number) if self.nodes is None else str(self.nodes[number])

    def reordered(self, order_n: np.ndarray) -> Names:
        """With node `order_n[i]` as number i."""
        nodes = None if self.nodes is None else self.nodes[order_n]
        return Names(nodes, self.classes, self.features)

    def to_bytes(self) -> np.ndarray:
        """As UTF-8 in an array of bytes, for files of arrays."""
        nodes = None if self.nodes is None else self.nodes.tolist()
        known = {"nodes": nodes, "classes": self.classes, "features": self.features}
        return np.frombuffer(json.dumps(known, ensure_ascii=False).encode(), np.uint8)

    @staticmethod
    def from_bytes(array: np.ndarray) -> Names:
        """What `to_bytes` gave."""
        try:
            known = json.loads(array.tobytes())
            nodes, classes, features = known["nodes"], known["classes"], known["features"]
            for each in (nodes if nodes is not None else [], classes, features):
                if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
                    raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GraphFormatError("names", "lists of text, as JSON", "something else") from error
        return Names(
            None if nodes is None else np.array(nodes, str), tuple(classes), tuple(features)
        )


def checked_names(names: Any, num_nodes: int, num_features: int) -> Names:
    """Names that fit a graph of this size, in their canonical types."""
    if not isinstance(names, Names):
        raise GraphFormatError("names", "gtjax.graph.Names", type(names).__name__)
    nodes = names.nodes
    if nodes is not None:
        nodes = np.asarray(nodes)
        if nodes.dtype.kind != "U" or nodes.shape != (num_nodes,):
            rule = f"names of nodes are text [{num_nodes}]"
            raise GraphFormatError("names.nodes", rule, f"{nodes.dtype} {list(nodes.shape)}")
    classes, features = _texts("classes", names.classes), _texts("features", names.features)
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise GraphFormatError("names.classes", "names of classes are distinct", f"{twice!r} twice")
    if features and len(features) != num_features:
        rule = f"one name for each of {num_features} features"
        raise GraphFormatError("names.features", rule, len(features))
    return Names(nodes, classes, features)


def _texts(what: str, names: Any) -> tuple[str, ...]:
    is_list = hasattr(names, "__iter__") and not isinstance(names, str)
    if not is_list or not all(isinstance(name, str) for name in names):
        raise GraphFormatError(f"names.{what}", "a list of text", repr(names))
    return tuple(map(str, names))
