"""Where the hops of a sampled batch are among its rows and edges: static, so part of the program.

Rows are numbered hop by hop, the seeds first, and the edges of a hop's receivers all start in the
next hop: so what an op still needs, when so many ops follow it, are the first rows and the first
edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax

from pallas_kernels.edges import Edges


@jax.tree_util.register_static
@dataclass(frozen=True)
class Hops:
    """Of every part: where rows end, of each hop and those before it, and where edges do."""

    parts: int
    row_ends: tuple[int, ...]  # of the seeds, of the first hop, ...
    edge_ends: tuple[int, ...]  # of edges that arrive at seeds, at the first hop, ...

    @property
    def count(self) -> int:
        """Hops beyond the seeds."""
        return len(self.edge_ends)

    def rows(self, x: Any, hop: int) -> Any:
        """The rows up to and including a hop, of arrays that have at least those."""
        return jax.tree.map(lambda rows: self._first(rows, self.row_ends[hop]), x)

    def edges(self, x: Any, hop: int) -> Any:
        """The rows of edges that arrive at nodes up to and including a hop."""
        return jax.tree.map(lambda rows: self._first(rows, self.edge_ends[hop]), x)

    def _first(self, x: jax.Array, count: int) -> jax.Array:
        """So many rows of each part."""
        if x.shape[0] == self.parts * count:
            return x
        by_part = x.reshape(self.parts, x.shape[0] // self.parts, *x.shape[1:])
        return by_part[:, :count].reshape(self.parts * count, *x.shape[1:])

    def part_edges(self, edges: Edges, hop: int) -> Edges:
        """The edges of one part that arrive at nodes up to and including a hop."""
        receivers, senders = self.row_ends[hop], self.row_ends[hop + 1]
        count = self.edge_ends[hop]
        return replace(
            edges,
            offsets_r=edges.offsets_r[: receivers + 1],
            senders_e=edges.senders_e[:count],
            edge_ids_e=edges.edge_ids_e[:count],
            sender_offsets_s=edges.sender_offsets_s[: senders + 1],
            receivers_by_sender_e=edges.receivers_by_sender_e[:count],
            sender_order_e=edges.sender_order_e[:count],
        )
