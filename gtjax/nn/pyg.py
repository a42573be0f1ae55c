"""Weights of PyG's layers in ours: GCN, SAGE, GAT, GATv2 and TransformerConv.

PyG stores matrices by output, we by input; GAT's two matrices for edge features are one here. A
state dict is read by name and never unpickled here: torch loads it (`weights_only=True`), or it
comes from a safetensors file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.nn.gat import GATConv
from gtjax.nn.gatv2 import GATv2Conv
from gtjax.nn.gcn import GCNConv
from gtjax.nn.sage import SAGEConv
from gtjax.nn.transformer_conv import TransformerConv

State = Mapping[str, np.ndarray]


def _linear(name: str, bias: bool = True) -> dict[str, Callable[[State], np.ndarray]]:
    """A dense layer of PyG, for one of ours."""
    parts: dict[str, Callable[[State], np.ndarray]] = {"kernel": lambda s: s[f"{name}.weight"].T}
    if bias:
        parts["bias"] = lambda s: s[f"{name}.bias"]
    return parts


def _edge_of_gat(state: State) -> np.ndarray:
    attention_hd = state["att_edge"].reshape(state["att_edge"].shape[-2:])
    weights_hdf = state["lin_edge.weight"].reshape(*attention_hd.shape, -1)
    return np.einsum("hdf,hd->fh", weights_hdf, attention_hd)


def _as_is(name: str) -> Callable[[State], np.ndarray]:
    return lambda state: state[name]


# For each of our parameters, how it is made of PyG's.
LAYERS: dict[type, dict[str, Any]] = {
    GCNConv: {"linear": _linear("lin", bias=False), "bias": _as_is("bias")},
    SAGEConv: {
        "neighbours": _linear("lin_l", bias=False),
        "own": _linear("lin_r", bias=False),
        "bias": _as_is("lin_l.bias"),
    },
    GATConv: {
        "linear": _linear("lin", bias=False),
        "receiver": _as_is("att_dst"),
        "sender": _as_is("att_src"),
        "edge": {"kernel": _edge_of_gat},
        "bias": _as_is("bias"),
    },
    GATv2Conv: {
        "sender": _linear("lin_l"),
        "receiver": _linear("lin_r"),
        "edge": _linear("lin_edge", bias=False),
        "vector": _as_is("att"),
        "bias": _as_is("bias"),
    },
    TransformerConv: {
        "query": _linear("lin_query"),
        "key": _linear("lin_key"),
        "value": _linear("lin_value"),
        "skip": _linear("lin_skip"),
    },
}


def load_pyg(layer: nnx.Module, state: Mapping[str, Any], prefix: str = "") -> None:
    """Put the weights of PyG's layer of the same name into ours.

    `state` is the layer's state dict, of tensors or arrays, or that of a model with the layer's
    name as `prefix` ("convs.0.").
    """
    known = LAYERS.get(type(layer))
    if known is None:
        names = ", ".join(each.__name__ for each in LAYERS)
        raise UserError(f"weights of PyG fit {names}; found {type(layer).__name__}")
    own = {k.removeprefix(prefix): _array(v) for k, v in state.items() if k.startswith(prefix)}
    used = _Used(own)
    for path, value in nnx.to_flat_state(nnx.state(layer, nnx.Param)):
        make: Any = known
        for part in path:
            make = make[part]
        try:
            found = make(used)
        except KeyError as error:
            raise UserError(
                f"{type(layer).__name__} needs {prefix}{error.args[0]} of PyG's weights; found "
                f"{', '.join(state) or 'none'}"
            ) from error
        shape = value[...].shape
        if found.size != np.prod(shape, dtype=int):
            name = ".".join(map(str, path))
            raise UserError(
                f"{name} of {type(layer).__name__} has shape {list(shape)}; PyG's weights give "
                f"{list(found.shape)}. Make the layer with the same widths and heads."
            )
        value[...] = jnp.asarray(found.reshape(shape), jnp.float32)
    if unused := sorted(set(own) - used.names):
        raise UserError(
            f"{type(layer).__name__} has no place for {', '.join(unused)} of PyG's weights"
        )


class _Used(dict):
    """Arrays by name, and which of them were asked for."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        super().__init__(arrays)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        found = super().__getitem__(name)
        self.names.add(name)
        return found


def _array(value: Any) -> np.ndarray:
    """Of a tensor, without importing torch."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
