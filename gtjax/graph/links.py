"""Pairs of nodes to tell apart: those that an edge joins from those that none does.

Edges that are held out for validation and test are no messages, in neither direction: a model that
could see them would be asked for what it was told.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError

if TYPE_CHECKING:
    from gtjax.graph.graph import Graph

DRAWS = 100  # of negatives, before a graph counts as too dense for as many


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs [pairs, 2] of node numbers; negatives are pairs that no edge joins."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    val_negative: np.ndarray
    test_negative: np.ndarray
    directed: bool = False
    """Whether (u, v) and (v, u) are different questions."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All pairs, by name."""
        fields = dataclasses.fields(self)
        return {each.name: getattr(self, each.name) for each in fields if each.name != "directed"}

    def changed(self, change: Any) -> Links:
        """With `change(name, pairs)` in the place of each array."""
        arrays = {name: change(name, pairs) for name, pairs in self.arrays().items()}
        return Links(**arrays, directed=self.directed)


def checked_links(links: Any, num_nodes: int) -> Links | None:
    """Pairs of nodes that there are, in their canonical type."""
    if links is None:
        return None
    if not isinstance(links, Links):
        raise GraphFormatError("links", "gtjax.graph.Links", type(links).__name__)

    def check(name: str, pairs: Any) -> np.ndarray:
        field, array = f"links.{name}", np.asarray(pairs)
        if array.ndim != 2 or array.shape[1] != 2 or (array.size and array.dtype.kind not in "iu"):
            rule = "pairs are integers [pairs, 2]"
            raise GraphFormatError(field, rule, f"{array.dtype} {list(array.shape)}")
        if array.size:
            for bad in (int(array.min()), int(array.max())):
                if not 0 <= bad < num_nodes:
                    raise GraphFormatError(field, f"node numbers are in 0..{num_nodes - 1}", bad)
        view = array.astype(np.int32 if num_nodes <= 2**31 else np.int64, copy=False).view()
        view.flags.writeable = False
        return view

    return links.changed(check)


def hold_out_links(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, directed: bool = False, seed: int = 0
) -> Graph:
    """The graph without some of its edges, and with `links` that ask for them.

    Every pair of nodes that an edge joins counts once, whatever the number and, unless `directed`,
    the direction of its edges; self-loops are left alone. As many pairs that no edge joins are
    drawn as are held out. The same seed gives the same draw.
    """
    for name, share in (("val", val), ("test", test)):
        if not 0 < share < 1 or val + test >= 1:
            raise UserError(
                f"shares of edges to hold out are above 0 and below 1 together; found val={val}, "
                f"test={test} ({name})"
            )
    key_e = _keys(graph, np.stack([graph.senders_e, graph.receivers_e], axis=1), directed)
    loop_e = graph.senders_e == graph.receivers_e
    keys = np.unique(key_e[~loop_e])
    counts = [max(1, round(share * len(keys))) for share in (val, test)]
    if len(keys) < sum(counts) + 1:
        raise UserError(
            f"link prediction holds out edges and needs at least 3 pairs of nodes that an edge "
            f"joins; {graph.name} has {len(keys)}"
        )
    random = np.random.default_rng(seed)
    mixed = random.permutation(keys)
    held = np.sort(mixed[: sum(counts)])
    kept_e = loop_e | ~_among(key_e, held)
    negatives = _pairs(graph, _absent(graph, keys, sum(counts), directed, random))
    links = Links(
        train=_pairs(graph, np.sort(mixed[sum(counts) :])),
        val=_pairs(graph, mixed[: counts[0]]),
        test=_pairs(graph, mixed[counts[0] : sum(counts)]),
        val_negative=negatives[: counts[0]],
        test_negative=negatives[counts[0] :],
        directed=directed,
    )
    edge_x = None if graph.edge_x_ef is None else graph.edge_x_ef[kept_e]
    return dataclasses.replace(
        graph,
        senders_e=graph.senders_e[kept_e],
        receivers_e=graph.receivers_e[kept_e],
        edge_x_ef=edge_x,
        links=links,
    )


def _keys(graph: Graph, pairs: np.ndarray, directed: bool) -> np.ndarray:
    """A number for each pair; the same for both directions unless `directed`."""
    first, second = pairs.astype(np.uint64).T
    if not directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    return first * np.uint64(graph.num_nodes) + second


def _pairs(graph: Graph, keys: np.ndarray) -> np.ndarray:
    return np.stack(np.divmod(keys, np.uint64(graph.num_nodes)), axis=1).astype(np.int64)


def _among(keys: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Whether each key is one of those that stand in order."""
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return ordered[place] == keys


def _absent(
    graph: Graph, keys: np.ndarray, count: int, directed: bool, random: np.random.Generator
) -> np.ndarray:
    """So many different pairs that no edge joins."""
    found = np.zeros(0, np.uint64)
    for _ in range(DRAWS):
        drawn = random.integers(0, graph.num_nodes, (count + 16, 2))
        fresh = _keys(graph, drawn[drawn[:, 0] != drawn[:, 1]], directed)
        found = np.unique(np.concatenate([found, fresh[~_among(fresh, keys)]]))
        if len(found) >= count:
            return random.permutation(found)[:count]
    raise UserError(
        f"{graph.name} is too dense to draw {count} pairs that no edge joins; found {len(found)}. "
        f"Hold out fewer edges."
    )
