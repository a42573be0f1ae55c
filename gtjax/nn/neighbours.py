"""What a model receives of the graph's edges, and all that it has to know of them.

A `Neighbours` is bound to a graph, a mesh, a strategy and a wire, none of which a model names. All
arrays have a row a node, `[nodes, ...]`, or a row an edge, `[edges, ...]`, in the order of the
inputs. A node without in-edges gets zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, Self

import jax


class Dropped(NamedTuple):
    """Dropout along edges: the share that is dropped, and the draw (see `Noise.seed`)."""

    rate: float
    seed: jax.Array


class Neighbours(Protocol):
    """The in-edges of every node, for whatever is to be computed along them."""

    @property
    def degree_n(self) -> jax.Array:
        """Number of in-edges of every node, as float32."""
        ...

    def last(self, ops: int) -> Self:
        """What the last so many ops of a model need: in a sampled batch, fewer rows and edges.

        A layer that knows how many come after it saves time by it, and has to take `own` of what it
        adds to the result of an op. Whoever does not call it gets the same numbers.
        """
        ...

    def own(self, x: Any) -> Any:
        """Of rows that ops are given, those of the receivers: all, but after `last`."""
        ...

    def attend(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """Dot-product attention: `softmax_j(q_i . k_j / sqrt(d) + bias_ij)` times `v_j`."""
        ...

    def attend_additive(
        self,
        receiver: jax.Array,
        sender: jax.Array,
        values_nhd: jax.Array | None = None,
        bias: jax.Array | None = None,
        *,
        vector_hd: jax.Array | None = None,
        slope: float = 0.2,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """Additive attention, of GAT or, with a vector, of GATv2.

        GAT: `softmax_j leaky_relu(receiver_i + sender_j + bias_ij)` times `values_j`, with receiver
        and sender `[n, h]`, values `[n, h, d]` and bias `[e, h]`. GATv2: `softmax_j vector .
        leaky_relu(receiver_i + sender_j + bias_ij)` times `sender_j`, all of them `[., h, d]`.
        """
        ...

    def sum(
        self,
        x_nf: jax.Array,
        weight_e: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """Sum of in-neighbours' rows, `[n, f]` or by head `[n, h, d]`.

        Weights are `[e]`, or by head `[e, h]` for rows `[n, h, d]`.
        """
        ...

    def mean(
        self,
        x_nf: jax.Array,
        weight_e: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """The same over the number of in-edges."""
        ...

    def max(self, x_nf: jax.Array) -> jax.Array:
        """Largest of in-neighbours' values, channel by channel."""
        ...

    def min(self, x_nf: jax.Array) -> jax.Array:
        """Smallest of in-neighbours' values, channel by channel."""
        ...

    def aggregate(
        self,
        message: Callable[[Any, Any, Any, Any], Any],
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        reduce: str = "sum",
        splits: Literal["heads", "channels"] | None = None,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """Any jax function of an edge, reduced by sum, mean, max, min or softmax.

        `message(receiver_row, sender_row, edge_row, shared)` gives a value, or (logit, value) for
        softmax. Rows are trees of arrays `[n, ...]` or `[e, ...]`, of which the message sees one
        row; what it closes over is not differentiated, so parameters go into `shared`.
        """
        ...

    def edge_softmax(
        self, q_nhd: jax.Array, k_nhd: jax.Array, bias_eh: jax.Array | None = None
    ) -> jax.Array:
        """Weights of dot-product attention, `[edges, heads]`: kept, to be used several times."""
        ...

    def propagate(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        rounds: int,
        restart: float,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """Values mixed so many times by the same attention, each time with a share of the start."""
        ...
