"""`GraphTransformer`: sparse attention over the edges of the graph, block by block.

After Dwivedi and Bresson (2021) and Shi et al. (2021), with an optional global branch. An edge
costs the rows of its sender's key and value, so choose it where labels are many and the graph says
less than the features; the recomputation options trade arithmetic for memory.
"""

from __future__ import annotations

import jax
from flax import nnx

from gtjax.nn.block import Block
from gtjax.nn.config import TransformerConfig
from gtjax.nn.inputs import InputLayer, Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm
from gtjax.nn.recompute import Late, recomputed


class GraphTransformer(nnx.Module):
    """Input layer, blocks of attention and feed-forward, a last normalisation."""

    Config = TransformerConfig
    reads_sparse = True

    def __init__(self, config: TransformerConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config = config
        self.input = InputLayer(config, sizes, rngs=rngs)
        self.blocks = nnx.List(
            [
                Block(config, sizes.edge_features, depth=(number + 1) / config.layers, rngs=rngs)
                for number in range(config.layers)
            ]
        )
        self.output_norm = make_norm(config.norm, config.hidden, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        h_nf = self.input(inputs)
        for number, block in enumerate(self.blocks):
            # One who watches sees it computed once.
            if self.config.remat == "block" and inputs.watch is None:
                h_nf = _recomputed_block(block, h_nf, inputs, neighbours)
            else:
                h_nf = block(h_nf, inputs, neighbours, f"blocks.{number}")
        return self.output_norm(h_nf, inputs.valid_n)


def _recomputed_block(
    block: Block, h_nf: jax.Array, inputs: Inputs, neighbours: Neighbours
) -> jax.Array:
    noise = inputs.noise
    before, after = noise.copy(), noise.copy()

    def run(block: Block, h_nf: jax.Array, edge_x_ef: jax.Array | None, late: Late) -> jax.Array:
        after.follow(before)  # it is traced twice, and draws the same both times
        own = inputs._replace(edge_x_ef=edge_x_ef, randomness=after)
        return block(h_nf + late, own, neighbours)

    h_nf = recomputed(run, block, h_nf, inputs.edge_x_ef, strict=True)
    noise.follow(after)
    return h_nf
