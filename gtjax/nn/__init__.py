"""Graph transformers as Flax nnx modules that know nothing of devices."""

from gtjax.nn.block import Attend, Block
from gtjax.nn.config import ModelConfig
from gtjax.nn.decoupled import DecoupledTransformer
from gtjax.nn.inputs import Inputs, Outputs
from gtjax.nn.labels import hide_labels, show_labels
from gtjax.nn.noise import node_ids, uniform_bits
from gtjax.nn.transformer import GraphTransformer

# By the name in `ModelConfig.architecture`.
ARCHITECTURES = {"transformer": GraphTransformer, "decoupled": DecoupledTransformer}

__all__ = [
    "ARCHITECTURES",
    "Attend",
    "Block",
    "DecoupledTransformer",
    "GraphTransformer",
    "Inputs",
    "ModelConfig",
    "Outputs",
    "hide_labels",
    "node_ids",
    "show_labels",
    "uniform_bits",
]
