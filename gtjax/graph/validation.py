"""The rules of a graph, checked before anything else (native code above all) sees its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.graph.errors import GraphFormatError

if TYPE_CHECKING:
    from gtjax.graph.graph import Graph

MAX_NODES = 2**32 - 1
_BLOCK = 1 << 24


def validated_fields(graph: Graph) -> dict[str, Any]:
    """The graph's fields in their canonical types, or the first broken rule as an error."""
    if not isinstance(graph.name, str):
        raise GraphFormatError("name", "a name is text", type(graph.name).__name__)
    x_nf = _features("x_nf", graph.x_nf)
    num_nodes = x_nf.shape[0]
    if not 1 <= num_nodes <= MAX_NODES:
        raise GraphFormatError("x_nf", f"a graph has 1 to {MAX_NODES} nodes", num_nodes)
    senders_e = _node_numbers("senders_e", graph.senders_e, num_nodes)
    receivers_e = _node_numbers("receivers_e", graph.receivers_e, num_nodes)
    if len(senders_e) != len(receivers_e):
        raise GraphFormatError(
            "receivers_e", f"one receiver for each of {len(senders_e)} senders", len(receivers_e)
        )
    labels_n = _labels(graph.labels_n, num_nodes)
    edge_x_ef = graph.edge_x_ef
    if edge_x_ef is not None:
        edge_x_ef = _features("edge_x_ef", edge_x_ef)
        if len(edge_x_ef) != len(senders_e):
            raise GraphFormatError(
                "edge_x_ef", f"one row for each of {len(senders_e)} edges", len(edge_x_ef)
            )
    return {
        "x_nf": _read_only(x_nf),
        "senders_e": _read_only(senders_e),
        "receivers_e": _read_only(receivers_e),
        "labels_n": _read_only(labels_n),
        "split_n": _splits(graph.split_n, labels_n),
        "edge_x_ef": None if edge_x_ef is None else _read_only(edge_x_ef),
    }


def _features(field: str, array: Any) -> np.ndarray:
    array = _array(field, array)
    if array.ndim != 2:
        raise GraphFormatError(field, "features are a table [rows, features]", _shape(array))
    if array.dtype.kind not in "fiub":
        raise GraphFormatError(field, "features are real numbers", array.dtype)
    if array.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # what overflows is reported as not finite below
            array = array.astype(np.float32)
    rows = max(1, _BLOCK // max(1, array.shape[1]))
    for start in range(0, len(array), rows):
        finite = np.isfinite(array[start : start + rows])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = f"{array[start + row, column]} in row {start + row}, column {column}"
            raise GraphFormatError(field, "features are finite", value)
    return array


def _node_numbers(field: str, array: Any, num_nodes: int) -> np.ndarray:
    array = _array(field, array)
    if array.ndim != 1:
        raise GraphFormatError(field, "node numbers are a list [edges]", _shape(array))
    if array.dtype.kind not in "iu" and array.size:  # an empty list becomes float64
        raise GraphFormatError(field, "node numbers are integers", array.dtype)
    if len(array):
        for bad in (int(array.min()), int(array.max())):
            if not 0 <= bad < num_nodes:
                raise GraphFormatError(field, f"node numbers are in 0..{num_nodes - 1}", bad)
    return array.astype(np.int32 if num_nodes <= 2**31 else np.int64, copy=False)


def _labels(array: Any, num_nodes: int) -> np.ndarray:
    array = _array("labels_n", array)
    if array.ndim not in (1, 2) or len(array) != num_nodes or 0 in array.shape:
        rule = f"labels are [{num_nodes}] classes or [{num_nodes}, tasks]"
        raise GraphFormatError("labels_n", rule, _shape(array))
    if array.dtype.kind not in "iub":
        raise GraphFormatError("labels_n", "labels are integers, -1 where unlabelled", array.dtype)
    highest = 1 if array.ndim == 2 else 2**31 - 2
    for bad in (int(array.min()), int(array.max())):
        if not -1 <= bad <= highest:
            raise GraphFormatError("labels_n", f"labels are in -1..{highest}", bad)
    return array.astype(np.int32, copy=False)


def _splits(masks: Any, labels_n: np.ndarray) -> dict[str, np.ndarray]:
    if not isinstance(masks, Mapping):
        rule = "masks are a mapping from train, val, test"
        raise GraphFormatError("split_n", rule, type(masks).__name__)
    result: dict[str, np.ndarray] = {}
    owner_n = np.zeros(len(labels_n), np.int8)
    labelled_n: np.ndarray = labels_n.reshape(len(labels_n), -1).max(axis=1) >= 0
    for number, (name, mask) in enumerate(masks.items(), start=1):
        field = f"split_n[{name!r}]"
        if name not in ("train", "val", "test"):
            raise GraphFormatError("split_n", "masks are named train, val or test", name)
        mask = _array(field, mask)
        if mask.shape != (len(labels_n),) or mask.dtype != np.bool_:
            rule = f"a mask is boolean [{len(labels_n)}]"
            raise GraphFormatError(field, rule, f"{mask.dtype} {_shape(mask)}")
        if owner_n[mask].any():
            node = int(np.flatnonzero(mask & (owner_n > 0))[0])
            other = list(masks)[owner_n[node] - 1]
            rule = "no node is in two masks"
            raise GraphFormatError(field, rule, f"node {node}, also in {other!r}")
        if not labelled_n[mask].all():
            node = int(np.flatnonzero(mask & ~labelled_n)[0])
            raise GraphFormatError(field, "every node of a mask has a label", f"node {node}")
        owner_n[mask] = number
        result[name] = _read_only(mask)
    return result


def _array(field: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise GraphFormatError(field, "a rectangular array", type(value).__name__) from error
    if array.dtype.kind in "OSUV":
        raise GraphFormatError(field, "an array of numbers", array.dtype)
    return array


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _shape(array: np.ndarray) -> str:
    return "shape " + str(list(array.shape))
