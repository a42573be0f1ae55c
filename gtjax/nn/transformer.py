"""`GraphTransformer`: node features in, logits and embeddings out.

Attention is sparse, over the edges of the graph (Dwivedi and Bresson 2021, Shi et al. 2021), with
an optional global branch. The model receives `attend` as an argument and names no device.
"""

from __future__ import annotations

import jax
from flax import nnx

from gtjax.nn.block import Attend, Block, Watch, linear, normed_linear
from gtjax.nn.config import ModelConfig
from gtjax.nn.inputs import InputLayer, Inputs, Outputs
from gtjax.nn.noise import Noise
from gtjax.nn.norm import make_norm
from gtjax.nn.recompute import Late, recomputed


class GraphTransformer(nnx.Module):
    """Input layer, blocks of attention and feed-forward, output layer."""

    def __init__(
        self,
        config: ModelConfig,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
        *,
        rngs: nnx.Rngs,
    ):
        self.config = config
        self.input = InputLayer(config, num_features, num_classes, rngs=rngs)
        self.blocks = nnx.List(
            [Block(config, num_edge_features, rngs=rngs) for _ in range(config.layers)]
        )
        self.output_norm = make_norm(config.norm, config.hidden, rngs=rngs)
        self.output = linear(config.hidden, num_classes, config, rngs)

    def __call__(
        self,
        inputs: Inputs,
        attend: Attend,
        *,
        key: jax.Array | None = None,
        watch: Watch | None = None,
    ) -> Outputs:
        """Run the model: in training with a random `key`, in evaluation without."""
        config, noise = self.config, Noise(key, inputs.node_ids_n)
        see = watch or (lambda name, value: None)
        h_nf = self.input(inputs, noise, see)
        for number, block in enumerate(self.blocks):
            if config.remat == "block" and watch is None:  # one who watches sees it computed once
                h_nf = _recomputed_block(block, h_nf, inputs, attend, noise)
                continue
            h_nf = block(
                h_nf,
                inputs.edge_x_ef,
                inputs.valid_n,
                attend,
                noise,
                lambda name, value, number=number: see(f"blocks.{number}.{name}", value),
            )
        embeddings_nf = self.output_norm(h_nf, inputs.valid_n)
        drop = noise.dropper(config.dropout)
        logits_nc = normed_linear(config, self.output_norm, self.output, h_nf, inputs.valid_n, drop)
        see("output", logits_nc)
        return Outputs(logits_nc, embeddings_nf)


def _recomputed_block(
    block: Block, h_nf: jax.Array, inputs: Inputs, attend: Attend, noise: Noise
) -> jax.Array:
    before, after = noise.copy(), noise.copy()

    def run(block: Block, h_nf: jax.Array, edge_x_ef: jax.Array | None, late: Late) -> jax.Array:
        after.follow(before)  # it is traced twice, and draws the same both times
        unseen = lambda name, value: None  # noqa: E731
        return block(h_nf + late, edge_x_ef, inputs.valid_n, attend, after, unseen)

    h_nf = recomputed(run, block, h_nf, inputs.edge_x_ef, strict=True)
    noise.follow(after)
    return h_nf
