"""Relational attention: what an edge says changes how much it counts and what it carries.

After R-GCN (Schlichtkrull et al. 2018) and RGAT (Busbridge et al. 2019). A head weighs the senders
by `softmax_j(t_j + b_r)`, a score of the sender and a bias of the edge's type r, and multiplies
their values by `c_r`; a matrix then mixes the heads. So the values of a type go through a matrix of
its own, `sum_h c_rh M_h V_h`: R-GCN's basis decomposition, with heads as bases. (A score of the
receiver would cancel in the softmax.) Choose it for typed edges: knowledge graphs, several kinds of
links. Without types (`typed`) it is the same model, blind to them.

Types are one-hot edge features, as they are read from `edge_type`; the reverse of a directed edge
has a -1 for its type (`--prepare.reverse`), hence a bias and a factor of its own, and self-loops
have zeros: R types are 2 R + 1 relations. Other edge features work too, each value by itself. An
edge costs one row of its sender and some numbers a head; nothing of its width is stored.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import RelationalConfig
from gtjax.nn.dense import dense
from gtjax.nn.gat import edge_rows
from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Dropped, Neighbours
from gtjax.nn.sparse import SparseRows
from gtjax.nn.stack import Stack

MOST = 8.0  # of a score and of a bias, either way: their exponentials and sums stay within float32


class RelationalConv(nnx.Module):
    """Attention with `heads` heads, each with a bias and a factor of the edge's type."""

    def __init__(
        self, inputs: int, outputs: int, heads: int = 1, edge_features: int = 0, *, rngs: nnx.Rngs
    ):
        self.heads = heads
        self.value = dense(inputs, outputs, bias=False, rngs=rngs)
        self.score = dense(inputs, heads, bias=False, rngs=rngs)
        self.mix = dense(outputs, outputs, rngs=rngs)
        ways = 2 * edge_features
        self.edge_bias = dense(ways, heads, bias=False, rngs=rngs) if ways else None
        self.edge_factor = dense(ways, heads, rngs=rngs) if ways else None
        if self.edge_factor is not None and self.edge_factor.bias is not None:
            self.edge_factor.bias[...] = jnp.ones(heads)

    def __call__(
        self,
        x_nf: jax.Array | SparseRows,
        neighbours: Neighbours,
        edge_x_ef: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        value_nf = self.value(x_nf)
        value_nhd = value_nf.reshape(len(value_nf), self.heads, value_nf.shape[1] // self.heads)
        score_nh1 = jnp.exp(_bounded(self.score(x_nf)))[..., None]
        weight_eh = carried_eh = None
        ways_ef = None if edge_x_ef is None else both_ways(edge_x_ef)
        layers = (self.edge_bias, self.edge_factor)
        bias_eh, factor_eh = (edge_rows(layer, ways_ef) for layer in layers)
        if bias_eh is not None and factor_eh is not None:
            weight_eh = jnp.exp(_bounded(bias_eh))
            carried_eh = weight_eh * factor_eh
        sum_nhd = neighbours.sum(score_nh1 * value_nhd, carried_eh, dropout=dropout)
        total_nh1 = neighbours.sum(score_nh1, weight_eh)
        out_nhd = sum_nhd / jnp.where(total_nh1 > 0, total_nh1, 1.0)
        return self.mix(out_nhd.reshape(len(out_nhd), value_nf.shape[1]))


class Relational(nnx.Module):
    """Layers of relational attention one after the other."""

    Config = RelationalConfig
    reads_sparse = True

    def __init__(self, config: RelationalConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        edges = sizes.edge_features if config.typed else 0

        def make(inputs: int, outputs: int) -> RelationalConv:
            return RelationalConv(inputs, outputs, config.heads, edges, rngs=rngs)

        self.typed, self.rate = bool(edges), config.attention_dropout
        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        edge_x_ef = inputs.edge_x_ef if self.typed else None

        def run(conv: Callable[..., jax.Array], x_nf: jax.Array, near: Neighbours) -> jax.Array:
            return conv(x_nf, near, edge_x_ef, dropout=inputs.noise.edges(self.rate))

        return self.stack(inputs, neighbours, run)


def both_ways(edge_x_ef: jax.Array) -> jax.Array:
    """What edge features say forwards, beside what they say backwards: both not negative."""
    edge_x_ef = edge_x_ef.astype(jnp.float32)
    return jnp.concatenate([jax.nn.relu(edge_x_ef), jax.nn.relu(-edge_x_ef)], axis=1)


def _bounded(x: jax.Array) -> jax.Array:
    return MOST * jnp.tanh(x / MOST)
