"""The models by the name that `ModelConfig.architecture` gives them."""

from gtjax.nn.decoupled import DecoupledTransformer
from gtjax.nn.transformer import GraphTransformer

ARCHITECTURES = {"transformer": GraphTransformer, "decoupled": DecoupledTransformer}
