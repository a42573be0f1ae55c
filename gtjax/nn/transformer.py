"""`GraphTransformer`: node features in, logits and embeddings out.

Attention is sparse, over the edges of the graph (Dwivedi and Bresson 2021, Shi et al. 2021), with
an optional global branch. The model receives `attend` as an argument and names no device.
"""

from __future__ import annotations

import jax
from flax import nnx

from gtjax.nn.block import Attend, Block, Watch, linear
from gtjax.nn.config import ModelConfig
from gtjax.nn.inputs import InputLayer, Inputs, Outputs
from gtjax.nn.noise import Noise
from gtjax.nn.norm import make_norm


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
        noise = Noise(key, inputs.node_ids_n)
        watch = watch or (lambda name, value: None)
        h_nf = self.input(inputs, noise, watch)
        for number, block in enumerate(self.blocks):
            h_nf = block(
                h_nf,
                inputs.edge_x_ef,
                inputs.valid_n,
                attend,
                noise,
                lambda name, value, number=number: watch(f"blocks.{number}.{name}", value),
            )
        embeddings_nf = self.output_norm(h_nf, inputs.valid_n)
        logits_nc = self.output(noise.drop(embeddings_nf, self.config.dropout))
        watch("output", logits_nc)
        return Outputs(logits_nc, embeddings_nf)
