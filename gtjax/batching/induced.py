"""Some clusters of the graph in each step, with the edges among them: Cluster-GCN.

Choose it where neighbourhoods grow too fast for sampling (many layers): a batch has no more nodes
than its clusters, however many layers there are. An epoch goes once through all clusters, in an
order of its own. Edges that leave the batch are left out, which is a bias that no weight removes;
clusters that are cut well, and many of them a step, make it small. Sums are scaled by the share of
the edges that a node sees.

After Chiang et al. 2019, "Cluster-GCN".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gtjax.batching.prepare import Prepared
from gtjax.batching.sampler import Bounds, DoesNotFitError, Draw, Marks, pad_edges
from gtjax.batching.seeds import answers_of, rows_of_targets
from gtjax.core.errors import UserError
from gtjax.graph.csr import CSR, build_csr, stable_order
from gtjax.partition import Partition


@dataclass(frozen=True, eq=False)
class Induced:
    """Draws the edges among some nodes; nothing is random."""

    by_receiver: CSR
    hops: int = 0

    @property
    def num_nodes(self) -> int:
        """Of the graph."""
        return len(self.by_receiver.offsets) - 1

    def marks(self) -> Marks:
        """The row of every node, where it has one."""
        return Marks(np.full(self.num_nodes, -1, np.int64))

    def draw(self, seeds: np.ndarray, step: int, bounds: Bounds, marks: Marks) -> Draw:
        """These nodes in this order, and the edges among them."""
        row_n, rows, size = marks.marks_n, bounds.rows, bounds.num_edges
        row_n[seeds] = np.arange(len(seeds))
        first_n = self.by_receiver.offsets[seeds]
        degree_n = self.by_receiver.offsets[seeds + 1] - first_n
        ends_n = np.cumsum(degree_n)
        receivers = np.repeat(np.arange(len(seeds)), degree_n)
        slots = np.arange(len(receivers)) - np.repeat(ends_n - degree_n, degree_n)
        places = np.repeat(first_n, degree_n) + slots
        senders = row_n[self.by_receiver.neighbours_e[places]]
        row_n[seeds] = -1
        inside = senders >= 0
        receivers, senders, places = receivers[inside], senders[inside], places[inside]
        needed = Bounds((len(seeds),), (len(places),))
        if len(seeds) > rows or len(places) > size:
            raise DoesNotFitError(needed)
        count, order = len(places), stable_order(senders, rows)
        nodes_r, degrees_r = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
        nodes_r[: len(seeds)], degrees_r[: len(seeds)] = seeds, degree_n
        senders_e, by_sender_e, order_e = np.zeros((3, size), np.int32)
        positions_e = np.zeros(size, np.int64)
        senders_e[:count], positions_e[:count] = senders, places
        by_sender_e[:count], order_e[:count] = receivers[order], order
        pad_edges(count, senders_e, positions_e, by_sender_e, order_e)
        offsets_r, sender_offsets_r = (
            np.concatenate([[0], np.bincount(each, minlength=rows).cumsum()]).astype(np.int32)
            for each in (receivers, senders)
        )
        return Draw(
            *(nodes_r, offsets_r, senders_e, positions_e),
            *(sender_offsets_r, by_sender_e, order_e, degrees_r),
            *(bounds, needed),
        )


@dataclass(frozen=True, eq=False)
class ClusterSeeds:
    """Clusters, all nodes of which are in a batch, and whose training nodes are asked."""

    known: dict[str, Any]  # targets of all nodes
    clusters: Partition
    by_receiver: CSR

    @staticmethod
    def of(host: Prepared, clusters: Partition) -> ClusterSeeds:
        """Of a task that asks nodes."""
        if not isinstance(host.targets.get("train"), np.ndarray):
            raise UserError(
                "--batching clusters with --batch-size asks training nodes; this task asks "
                "something else. Leave --batch-size out."
            )
        return ClusterSeeds(host.targets, clusters, host.edges.by_receiver)

    @cached_property
    def _members(self) -> CSR:
        owner_n = self.clusters.owner_n
        return build_csr(owner_n, np.arange(len(owner_n)), self.clusters.num_parts)

    @property
    def answers_k(self) -> np.ndarray:
        """Known answers of the training nodes of each cluster."""
        return self._answers_k

    @cached_property
    def _answers_k(self) -> np.ndarray:
        train = np.flatnonzero(self.known["train"])
        answers = answers_of(self.known, train)
        owner_k = self.clusters.owner_n[train]
        return np.bincount(owner_k, answers, self.clusters.num_parts).astype(np.int64)

    def nodes(self, items: np.ndarray, draw: tuple[int, ...]) -> np.ndarray:
        """All of the clusters."""
        members = self._members
        parts = [members.neighbours_e[members.offsets[i] : members.offsets[i + 1]] for i in items]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def least_room(self, items: int, hops: int) -> Bounds:
        """What the largest clusters have, and the edges that arrive at them: always enough."""
        members, owner_n = self._members, self.clusters.owner_n
        degrees_n = np.diff(self.by_receiver.offsets)
        edges_k = np.bincount(owner_n, degrees_n, self.clusters.num_parts).astype(np.int64)
        nodes, edges = (np.sort(each)[::-1][:items].sum() for each in (members.degrees_n, edges_k))
        return Bounds((max(1, int(nodes)),), (max(1, int(edges)),))

    def targets(
        self, items: np.ndarray, draw: tuple[int, ...], room: tuple[int, int], first: int
    ) -> dict[str, Any]:
        """Rows of all of their nodes."""
        return rows_of_targets(self.known, self.nodes(items, draw), room[0])
