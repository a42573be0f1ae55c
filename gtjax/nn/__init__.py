"""Models as Flax nnx modules that know nothing of devices, and what they are made of.

The names are loaded when they are first used, so that `config` can be had without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtjax.nn.block import Block
    from gtjax.nn.config import (
        DecoupledConfig,
        GATConfig,
        GATv2Config,
        GCNConfig,
        GINConfig,
        GPSConfig,
        GRANDConfig,
        ModelConfig,
        PolynormerConfig,
        RelationalConfig,
        SAGEConfig,
        SGFormerConfig,
        TransformerConfig,
    )
    from gtjax.nn.decoupled import DecoupledTransformer
    from gtjax.nn.gat import GAT, GATConv
    from gtjax.nn.gatv2 import GATv2, GATv2Conv
    from gtjax.nn.gcn import GCN, GCNConv
    from gtjax.nn.gin import GIN, GINConv
    from gtjax.nn.gps import GPS
    from gtjax.nn.grand import GRAND
    from gtjax.nn.inputs import Inputs
    from gtjax.nn.labels import hide_labels, show_labels
    from gtjax.nn.models import MODELS, Sizes, register_model
    from gtjax.nn.neighbours import Dropped, Neighbours
    from gtjax.nn.noise import node_ids, uniform_bits
    from gtjax.nn.polynormer import Polynormer
    from gtjax.nn.pyg import load_pyg
    from gtjax.nn.relational import Relational, RelationalConv
    from gtjax.nn.sage import GraphSAGE, SAGEConv
    from gtjax.nn.sgformer import SGFormer
    from gtjax.nn.transformer import GraphTransformer
    from gtjax.nn.transformer_conv import TransformerConv

_NAMES = {
    "block": "Block",
    "config": (
        "DecoupledConfig GATConfig GATv2Config GCNConfig GINConfig GPSConfig GRANDConfig "
        "ModelConfig PolynormerConfig RelationalConfig SAGEConfig SGFormerConfig TransformerConfig"
    ),
    "decoupled": "DecoupledTransformer",
    "gat": "GAT GATConv",
    "gatv2": "GATv2 GATv2Conv",
    "gcn": "GCN GCNConv",
    "gin": "GIN GINConv",
    "gps": "GPS",
    "grand": "GRAND",
    "inputs": "Inputs",
    "labels": "hide_labels show_labels",
    "models": "MODELS Sizes register_model",
    "neighbours": "Dropped Neighbours",
    "noise": "node_ids uniform_bits",
    "polynormer": "Polynormer",
    "pyg": "load_pyg",
    "relational": "Relational RelationalConv",
    "sage": "GraphSAGE SAGEConv",
    "sgformer": "SGFormer",
    "transformer": "GraphTransformer",
    "transformer_conv": "TransformerConv",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GPS",
    "GRAND",
    "MODELS",
    "Block",
    "DecoupledConfig",
    "DecoupledTransformer",
    "Dropped",
    "GATConfig",
    "GATConv",
    "GATv2",
    "GATv2Config",
    "GATv2Conv",
    "GCNConfig",
    "GCNConv",
    "GINConfig",
    "GINConv",
    "GPSConfig",
    "GRANDConfig",
    "GraphSAGE",
    "GraphTransformer",
    "Inputs",
    "ModelConfig",
    "Neighbours",
    "Polynormer",
    "PolynormerConfig",
    "Relational",
    "RelationalConfig",
    "RelationalConv",
    "SAGEConfig",
    "SAGEConv",
    "SGFormer",
    "SGFormerConfig",
    "Sizes",
    "TransformerConfig",
    "TransformerConv",
    "hide_labels",
    "load_pyg",
    "node_ids",
    "register_model",
    "show_labels",
    "uniform_bits",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gtjax.nn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gtjax.nn.{_HOME[name]}"), name)
