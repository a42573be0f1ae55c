"""Graph transformers as Flax nnx modules that know nothing of devices.

The names are loaded when they are first used, so that `config` can be had without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtjax.nn.architectures import ARCHITECTURES
    from gtjax.nn.block import Attend, Block
    from gtjax.nn.config import ModelConfig
    from gtjax.nn.decoupled import DecoupledTransformer
    from gtjax.nn.inputs import Inputs, Outputs
    from gtjax.nn.labels import hide_labels, show_labels
    from gtjax.nn.noise import node_ids, uniform_bits
    from gtjax.nn.transformer import GraphTransformer

_HOME = {
    "ARCHITECTURES": "architectures",
    "Attend": "block",
    "Block": "block",
    "DecoupledTransformer": "decoupled",
    "GraphTransformer": "transformer",
    "Inputs": "inputs",
    "ModelConfig": "config",
    "Outputs": "inputs",
    "hide_labels": "labels",
    "node_ids": "noise",
    "show_labels": "labels",
    "uniform_bits": "noise",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gtjax.nn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gtjax.nn.{_HOME[name]}"), name)
