"""Weights by the names that PyG gives them, put into our layers, and what does not fit."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.nn import GINConv, TransformerConv, load_pyg
from tests.nn.local import LocalNeighbours
from tests.nn.test_pyg import CASES, kernel

FITTING = [case for case in CASES if not case.startswith("gin")]


@pytest.mark.parametrize("case", FITTING)
def test_weights_come_back_from_the_names_of_pyg(case):
    """What `test_pyg` holds to be PyG's names and shapes leads to the same parameters."""
    make = CASES[case][0]
    (source, named), (target, _) = (make(5, 12, nnx.Rngs(params=seed)) for seed in (0, 1))
    state = {f"convs.0.{name}": np.asarray(value) for name, value in named(source).items()}
    load_pyg(target, {**state, "convs.1.bias": np.zeros(3)}, prefix="convs.0.")
    want, got = (jax.tree.leaves(nnx.state(each, nnx.Param)) for each in (source, target))
    for one, other in zip(want, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_a_transformer_layer_is_attention_and_a_skip():
    rng = np.random.default_rng(0)
    senders, receivers = np.array([0, 1, 2, 2, 4]), np.array([1, 1, 1, 3, 3])
    x_nf = rng.normal(size=(5, 4)).astype(np.float32)
    conv = TransformerConv(4, 6, 2, rngs=nnx.Rngs(0))
    found = np.asarray(conv(x_nf, LocalNeighbours(senders, receivers, 5)))
    q, k, v, skip = (
        x_nf @ kernel(layer).T + np.asarray(layer.bias[...])
        for layer in (conv.query, conv.key, conv.value, conv.skip)
    )
    for node in range(5):
        own = senders[receivers == node]
        wanted = skip[node].copy()
        for head in (slice(0, 3), slice(3, 6)):
            if len(own):
                logit = k[own, head] @ q[node, head] / np.sqrt(3)
                weight = np.exp(logit - logit.max())
                wanted[head] += weight @ v[own, head] / weight.sum()
        np.testing.assert_allclose(found[node], wanted, atol=1e-5)


def test_what_does_not_fit_is_named():
    conv, named = CASES["gcn"][0](5, 12, nnx.Rngs(0))
    state = named(conv)
    with pytest.raises(UserError, match=r"needs lin\.weight of PyG's weights"):
        load_pyg(conv, {"bias": state["bias"]})
    with pytest.raises(UserError, match=r"has no place for extra of PyG's"):
        load_pyg(conv, {**state, "extra": np.zeros(1)})
    with pytest.raises(UserError, match=r"has shape \[12\]; PyG's weights give \[3\]"):
        load_pyg(conv, {**state, "bias": np.zeros(3)})
    with pytest.raises(UserError, match="fit GCNConv, SAGEConv"):
        load_pyg(GINConv(5, 12, 0.0, train_eps=True, rngs=nnx.Rngs(0)), {})
