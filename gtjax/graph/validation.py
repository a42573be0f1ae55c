"""The rules of a graph, checked before anything else (native code above all) sees its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.graph.arrays import host_array
from gtjax.graph.links import checked_links
from gtjax.graph.many import ManyGraphs, checked_ids
from gtjax.graph.names import checked_names
from gtjax.graph.splits import is_known

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
    labels_n = _labels("labels_n", graph.labels_n, num_nodes)
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
        "split_n": _splits("split_n", graph.split_n, labels_n, "node"),
        "edge_x_ef": None if edge_x_ef is None else _read_only(edge_x_ef),
        "names": checked_names(graph.names, num_nodes, x_nf.shape[1]),
        "links": checked_links(graph.links, num_nodes),
        "graphs": _graphs(graph.graphs, num_nodes, (senders_e, receivers_e)),
    }


def _graphs(graphs: Any, num_nodes: int, ends: tuple[np.ndarray, np.ndarray]) -> ManyGraphs | None:
    if graphs is None:
        return None
    if not isinstance(graphs, ManyGraphs):
        raise GraphFormatError("graphs", "gtjax.graph.ManyGraphs", type(graphs).__name__)
    labels_g = _labels("graphs.labels_g", graphs.labels_g, None)
    ids_n = checked_ids(graphs.ids_n, num_nodes, len(labels_g), ends)
    split_g = _splits("graphs.split_g", graphs.split_g, labels_g, "graph")
    return ManyGraphs(_read_only(ids_n), _read_only(labels_g), split_g)


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
        check_finite(field, array[start : start + rows], start)
    return array


def check_finite(field: str, rows: np.ndarray, first_row: int = 0) -> None:
    """Refuse features that are not finite; `first_row` is the number of the first of these rows."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = f"{rows[row, column]} in row {first_row + row}, column {column}"
        raise GraphFormatError(field, "features are finite", value)


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


def _labels(field: str, array: Any, count: int | None) -> np.ndarray:
    array = _array(field, array)
    count = len(array) if count is None and array.ndim else count
    if array.ndim not in (1, 2) or len(array) != count or 0 in array.shape:
        rows = "rows" if count is None else count
        raise GraphFormatError(field, f"labels are [{rows}] or [{rows}, tasks]", _shape(array))
    if array.dtype.kind == "f":
        if np.isinf(array).any():
            raise GraphFormatError(field, "targets are finite, or NaN where unknown", "infinity")
        return array.astype(np.float32, copy=False)
    if array.dtype.kind not in "iub":
        rule = "labels are integers, -1 where unlabelled, or real numbers"
        raise GraphFormatError(field, rule, array.dtype)
    highest = 1 if array.ndim == 2 else 2**31 - 2
    for bad in (int(array.min()), int(array.max())):
        if not -1 <= bad <= highest:
            raise GraphFormatError(field, f"labels are in -1..{highest}", bad)
    return array.astype(np.int32, copy=False)


def _splits(
    name: str, masks: Any, labels: np.ndarray, what: str
) -> MappingProxyType[str, np.ndarray]:
    """Masks over what has these labels: nodes, or graphs."""
    if not isinstance(masks, Mapping):
        rule = "masks are a mapping from train, val, test"
        raise GraphFormatError(name, rule, type(masks).__name__)
    result: dict[str, np.ndarray] = {}
    count = len(labels)
    owner = np.zeros(count, np.int8)
    known = is_known(labels)
    for number, (split, mask) in enumerate(masks.items(), start=1):
        field = f"{name}[{split!r}]"
        if split not in ("train", "val", "test"):
            raise GraphFormatError(name, "masks are named train, val or test", split)
        mask = _mask(field, mask, count)
        if owner[mask].any():
            first = int(np.flatnonzero(mask & (owner > 0))[0])
            other = list(masks)[owner[first] - 1]
            rule = f"no {what} is in two masks"
            raise GraphFormatError(field, rule, f"{what} {first}, also in {other!r}")
        if not known[mask].all():
            first = int(np.flatnonzero(mask & ~known)[0])
            raise GraphFormatError(field, f"every {what} of a mask has a label", f"{what} {first}")
        owner[mask] = number
        result[split] = _read_only(mask)
    return MappingProxyType(result)


def checked_splits(masks: Any, labels_n: np.ndarray) -> MappingProxyType[str, np.ndarray]:
    """Masks over nodes that keep the rules; of labels that may be mapped from disk."""
    return _splits("split_n", masks, labels_n, "node")


def checked_labels(labels_n: Any, num_nodes: int) -> np.ndarray:
    """Labels of nodes, or of a block of them, in their canonical type."""
    return _labels("labels_n", labels_n, num_nodes)


def _mask(field: str, mask: Any, count: int) -> np.ndarray:
    """A mask, which may be given as the distinct numbers of those that it holds."""
    mask = given = _array(field, mask)
    if mask.dtype.kind in "iu" or mask.size == 0:
        numbers, mask = mask.reshape(-1).astype(np.int64), np.zeros(count, bool)
        outside = numbers[(numbers < 0) | (numbers >= count)]
        if len(outside):
            raise GraphFormatError(field, f"numbers are in 0..{count - 1}", int(outside[0]))
        mask[numbers] = True
    # Numbers that repeat are most likely a mask of 0 and 1.
    repeats = given.dtype.kind in "iu" and np.count_nonzero(mask) != given.size
    if mask.shape != (count,) or mask.dtype != np.bool_ or given.ndim != 1 or repeats:
        rule = f"a mask is boolean [{count}], or a list of distinct numbers"
        raise GraphFormatError(field, rule, f"{given.dtype} {_shape(given)}")
    return mask


def _array(field: str, value: Any) -> np.ndarray:
    array = host_array(field, value)
    if array.dtype.kind in "OSUV":
        raise GraphFormatError(field, "an array of numbers", array.dtype)
    return array


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _shape(array: np.ndarray) -> str:
    return "shape " + str(list(array.shape))
