"""`Partition`: which part owns each node, validated once, whoever computed it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.partition.cut import CutStats, cut_stats

MAX_PARTS = 8192  # counts by pair of parts take half a gigabyte then


@dataclass(frozen=True, eq=False)
class Partition:
    """Node i belongs to part `owner_n[i]`, one of 0..num_parts-1. Parts may be empty."""

    owner_n: np.ndarray
    num_parts: int

    def __post_init__(self) -> None:
        check_num_parts(self.num_parts)
        owner_n = np.asarray(self.owner_n)
        if owner_n.ndim != 1 or not len(owner_n):
            raise UserError(
                "owner_n is a list [nodes] with the part of each node; "
                f"found shape {list(owner_n.shape)}. Give one number a node."
            )
        if owner_n.dtype.kind not in "iu":
            raise UserError(
                f"owner_n holds the numbers of parts as integers; found {owner_n.dtype}. "
                "Convert it with astype('int32')."
            )
        for bad in (int(owner_n.min()), int(owner_n.max())):
            if not 0 <= bad < self.num_parts:
                raise UserError(
                    f"owner_n is in 0..{self.num_parts - 1} for {self.num_parts} parts; "
                    f"found {bad}. Number the parts from 0, or raise num_parts."
                )
        owner_n = owner_n.astype(np.int32, copy=False).view()
        owner_n.flags.writeable = False
        object.__setattr__(self, "owner_n", owner_n)
        object.__setattr__(self, "num_parts", int(self.num_parts))

    def __repr__(self) -> str:
        return f"Partition({self.num_nodes:,} nodes, {self.num_parts} parts)"

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.owner_n)

    @cached_property
    def sizes_p(self) -> np.ndarray:
        """Number of nodes of each part."""
        return np.bincount(self.owner_n, minlength=self.num_parts)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the owners and the number of parts."""
        digest = hashlib.blake2b(f"{self.num_parts},".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.owner_n, "<i4").data)
        return digest.hexdigest()

    def cut(self, graph: Graph) -> CutStats:
        """Count what crosses between the parts of this graph."""
        self.check_fits(graph)
        return cut_stats(graph, self.owner_n, self.num_parts)

    def check_fits(self, graph: Graph) -> None:
        """A partition belongs to a graph with as many nodes."""
        if self.num_nodes != graph.num_nodes:
            raise UserError(
                f"a partition has one owner for each of the graph's {graph.num_nodes} nodes; found "
                f"{self.num_nodes}. Partition this graph, or pass the graph it was made for."
            )


def check_num_parts(num_parts: int) -> None:
    """There are 1 to MAX_PARTS parts."""
    is_integer = isinstance(num_parts, int | np.integer) and not isinstance(num_parts, bool)
    if not is_integer or not 1 <= num_parts <= MAX_PARTS:
        raise UserError(
            f"a graph is cut into 1 to {MAX_PARTS} parts; found {num_parts!r}. "
            "Ask for as many parts as there are devices."
        )
