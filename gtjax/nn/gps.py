"""GraphGPS: message passing along edges and attention to all nodes, side by side in every layer.

Rampasek et al. 2022. A layer adds the two, each with a residual and a normalisation of its own, and
ends with a feed-forward network; where a node is comes from positional encodings (`positional`).
The message passing is one of the convolutions here; the attention is linear in the nodes
(`linear_attention.py`). Choose it for tasks that need far nodes and local structure at once, such
as molecules; an edge costs what it costs the convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from gtjax.nn.config import GPSConfig
from gtjax.nn.dense import dense
from gtjax.nn.gat import GATConv
from gtjax.nn.gcn import GCNConv
from gtjax.nn.gin import GINConv
from gtjax.nn.inputs import InputLayer, Inputs
from gtjax.nn.linear_attention import sigmoid_attention
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm
from gtjax.nn.sage import SAGEConv


class GPSLayer(nnx.Module):
    """`h = norm(x + local(x)) + norm(x + global(x))`, then `norm(h + feed_forward(h))`."""

    def __init__(self, config: GPSConfig, edge_features: int, *, rngs: nnx.Rngs):
        width, wide = config.hidden, max(1, round(config.hidden * config.feed_forward))
        self.config = config
        self.local: Any = CONVOLUTIONS[config.local](config, edge_features, rngs)
        self.query, self.key, self.value, self.mix = (
            dense(width, width, rngs=rngs) for _ in range(4)
        )
        self.up, self.down = dense(width, wide, rngs=rngs), dense(wide, width, rngs=rngs)
        self.local_norm, self.global_norm, self.norm = (
            make_norm(config.norm, width, rngs=rngs) for _ in range(3)
        )

    def __call__(self, x_nf: jax.Array, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """[nodes, hidden] to the same."""
        config, valid_n = self.config, inputs.valid_n

        def drop(change_nf: jax.Array) -> jax.Array:
            return inputs.noise.drop(change_nf, config.dropout)

        edges = [inputs.edge_x_ef] if isinstance(self.local, GATConv) else []
        local_nf = self.local(x_nf, neighbours, *edges)
        by_head = (x_nf.shape[0], config.heads, config.hidden // config.heads)
        q, k, v = (layer(x_nf).reshape(by_head) for layer in (self.query, self.key, self.value))
        global_nf = self.mix(sigmoid_attention(q, k, v, valid_n).reshape(x_nf.shape))
        h_nf = self.local_norm(x_nf + drop(local_nf), valid_n)
        h_nf += self.global_norm(x_nf + drop(global_nf), valid_n)
        change_nf = self.down(drop(jax.nn.relu(self.up(h_nf))))
        return self.norm(h_nf + drop(change_nf), valid_n)


class GPS(nnx.Module):
    """Input layer, then layers of local, global and feed-forward branches."""

    Config = GPSConfig
    reads_sparse = True

    def __init__(self, config: GPSConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.input = InputLayer(config, sizes, rngs=rngs)
        self.layers = nnx.List(
            [GPSLayer(config, sizes.edge_features, rngs=rngs) for _ in range(config.layers)]
        )

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        x_nf = self.input(inputs)
        for number, layer in enumerate(self.layers):
            x_nf = layer(x_nf, inputs, neighbours)
            inputs.see(f"layers.{number}", x_nf)
        return x_nf


CONVOLUTIONS: dict[str, Callable[[GPSConfig, int, nnx.Rngs], nnx.Module]] = {
    "gcn": lambda config, edges, rngs: GCNConv(config.hidden, config.hidden, rngs=rngs),
    "sage": lambda config, edges, rngs: SAGEConv(config.hidden, config.hidden, rngs=rngs),
    "gin": lambda config, edges, rngs: GINConv(
        config.hidden, config.hidden, train_eps=True, rngs=rngs
    ),
    "gat": lambda config, edges, rngs: GATConv(
        config.hidden, config.hidden, config.heads, edges, rngs=rngs
    ),
}
