"""What the steps of a sampled epoch ask: training nodes, or the pairs of training edges.

An epoch goes once through all of them, in an order of its own, in batches of nearly equal size.
Each is weighted by how many answers it has, so that the mean over an epoch's batches is that over
all answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gtjax.batching.prepare import Prepared
from gtjax.batching.sampler import Bounds
from gtjax.core.errors import UserError
from gtjax.graph import Table


class Seeds(Protocol):
    """What is asked, one item after the other."""

    @property
    def answers_k(self) -> np.ndarray:
        """How many answers each item has."""
        ...

    def nodes(self, items: np.ndarray, draw: tuple[int, ...]) -> np.ndarray:
        """The distinct nodes that have to be known for these; `draw` seeds what is random."""
        ...

    def least_room(self, items: int, hops: int) -> Bounds:
        """Room to begin with, for so many items: enough for their own nodes."""
        ...

    def targets(
        self, items: np.ndarray, draw: tuple[int, ...], room: tuple[int, int], first: int
    ) -> dict[str, Any]:
        """Targets of the task, with room for so many nodes and items; `first` is the first row."""
        ...


@dataclass(frozen=True, eq=False)
class NodeSeeds:
    """Training nodes that have a label."""

    known: dict[str, Any]  # targets of all nodes
    train: np.ndarray
    answers_k: np.ndarray

    @staticmethod
    def of(host: Prepared) -> NodeSeeds:
        """Those of a task that asks nodes."""
        targets: dict[str, Any] = host.targets
        nodes = np.flatnonzero(targets["train"])
        answers_k = answers_of(targets, nodes)
        return NodeSeeds(targets, nodes[answers_k > 0], answers_k[answers_k > 0])

    def nodes(self, items: np.ndarray, draw: tuple[int, ...]) -> np.ndarray:
        """Themselves."""
        return self.train[items]

    def least_room(self, items: int, hops: int) -> Bounds:
        """As many nodes."""
        return Bounds((items, *[0] * hops), (0,) * hops)

    def targets(
        self, items: np.ndarray, draw: tuple[int, ...], room: tuple[int, int], first: int
    ) -> dict[str, Any]:
        """Their rows of every target."""
        return rows_of_targets(self.known, self.train[items], room[0])


@dataclass(frozen=True, eq=False)
class PairSeeds:
    """Training edges, and nodes to draw the pairs from that are no edges: as many, uniformly."""

    pairs_k2: np.ndarray
    num_nodes: int

    @staticmethod
    def of(host: Prepared) -> PairSeeds:
        """Those of a task that asks pairs."""
        if "starts" in host.targets:
            raise UserError(
                "--true-negatives looks for edges among all, which a sampled step does not see. "
                "Leave it out, or use --batching full."
            )
        table = host.targets["train"]
        assert isinstance(table, Table)
        return PairSeeds(table.values, host.graph.num_nodes)

    @property
    def answers_k(self) -> np.ndarray:
        """One each."""
        return np.ones(len(self.pairs_k2), np.int64)

    def nodes(self, items: np.ndarray, draw: tuple[int, ...]) -> np.ndarray:
        """Ends of the edges, and others."""
        ends = self.pairs_k2[items].reshape(-1)
        return np.unique(np.concatenate([ends, self._others(len(items), draw)]))

    def least_room(self, items: int, hops: int) -> Bounds:
        """Two ends, and another."""
        return Bounds((min(3 * items, self.num_nodes), *[0] * hops), (0,) * hops)

    def targets(
        self, items: np.ndarray, draw: tuple[int, ...], room: tuple[int, int], first: int
    ) -> dict[str, Any]:
        """Rows of the ends, and of what negatives are drawn from."""
        nodes, others = self.nodes(items, draw), self._others(len(items), draw)
        pairs_k2 = np.full((room[1], 2), -1, np.int32)
        pairs_k2[: len(items)] = first + np.searchsorted(nodes, self.pairs_k2[items])
        # Every place of the pool is drawn as likely, so padding repeats what is there.
        again = np.arange(room[1]) % max(1, len(others))
        pool_k = first + np.searchsorted(nodes, others)[again] if len(others) else again + first
        return {"train": pairs_k2, "pool": pool_k.astype(np.int32)}

    def _others(self, count: int, draw: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(draw).integers(0, self.num_nodes, count)


def seeds_of(host: Prepared) -> Seeds:
    """What the task asks; a UserError if it is neither nodes nor pairs."""
    train = host.targets.get("train")
    if isinstance(train, np.ndarray):
        seeds: Seeds = NodeSeeds.of(host)
    elif isinstance(train, Table) and train.values.ndim == 2 and "row" in host.targets:
        seeds = PairSeeds.of(host)
    else:
        raise UserError(
            "--batching neighbours asks training nodes, or edges; this task asks something else. "
            "Use --batching full."
        )
    if not len(seeds.answers_k):
        raise UserError(f"{host.graph.name} has no training nodes or edges to draw from")
    return seeds


def answers_of(targets: dict[str, Any], nodes: np.ndarray) -> np.ndarray:
    """How many known answers each of some nodes has."""
    answers_k = np.ones(len(nodes), np.int64)
    for name, is_known in (("labels", lambda x: x >= 0), ("values", lambda x: ~np.isnan(x))):
        if name in targets:
            answers_k = is_known(targets[name][nodes]).reshape(len(nodes), -1).sum(axis=1)
    return answers_k


def rows_of_targets(targets: dict[str, Any], nodes: np.ndarray, room: int) -> dict[str, Any]:
    """Rows of some nodes of every target."""
    return {name: padded_rows(known[nodes], room) for name, known in targets.items()}


def padded_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows, and zeros up to so many."""
    out = np.zeros((count, *rows.shape[1:]), rows.dtype)
    out[: len(rows)] = rows
    return out
