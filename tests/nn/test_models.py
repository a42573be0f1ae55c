"""Each stack of convolutions against dense float64, its parameters, and how models are found."""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import GCN, GCNConfig, Inputs, Sizes, TransformerConfig
from gtjax.nn.models import MODELS, model_config, model_entry, model_name, register_model
from gtjax.nn.shapes import embedding_width
from gtjax.sharding.recording import RecordingNeighbours
from tests.nn.local import NODES, LocalNeighbours

FEATURES, EDGE_FEATURES, HIDDEN, HEADS = 5, 2, 8, 2
STACKS = ["gcn", "sage", "gin", "gat", "gatv2"]


def relu(x):
    return np.maximum(x, 0)


def weights(layer):
    """Kernel and bias, in float64."""
    bias = 0.0 if layer.bias is None else np.asarray(layer.bias[...], np.float64)
    return np.asarray(layer.kernel[...], np.float64), bias


def apply(layer, x):
    kernel, bias = weights(layer)
    return x @ kernel + bias


def attended(logits_eh, values_ehd, receivers):
    """Softmax over each receiver's edges, by loops."""
    out = np.zeros((NODES, *values_ehd.shape[1:]))
    for node in range(NODES):
        mine = receivers == node
        if mine.any():
            p = np.exp(logits_eh[mine] - logits_eh[mine].max(axis=0))
            out[node] = ((p / p.sum(axis=0))[..., None] * values_ehd[mine]).sum(axis=0)
    return out.reshape(NODES, -1)


def dense_conv(name, conv, x, edge_x, senders, receivers):
    """One convolution in float64, from its definition."""
    adjacency = np.zeros((NODES, NODES))
    np.add.at(adjacency, (receivers, senders), 1.0)
    degree = adjacency.sum(axis=1)
    leaky = lambda z: np.where(z > 0, z, 0.2 * z)  # noqa: E731
    by_head = lambda z: z.reshape(len(z), HEADS, -1)  # noqa: E731
    number = lambda param: np.asarray(param[...], np.float64)  # noqa: E731
    if name == "gcn":
        root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
        return (root[:, None] * adjacency * root) @ apply(conv.linear, x) + number(conv.bias)
    if name == "sage":
        mean = adjacency @ x / np.maximum(degree, 1)[:, None]
        return apply(conv.neighbours, mean) + number(conv.bias) + apply(conv.own, x)
    if name == "gin":
        inner = apply(conv.up, (1 + number(conv.eps)) * x + adjacency @ x) + number(conv.bias)
        return apply(conv.down, relu(inner))
    if name == "gat":
        z = by_head(apply(conv.linear, x))
        receiver, sender = ((z * number(a)).sum(axis=-1) for a in (conv.receiver, conv.sender))
        logits = leaky(receiver[receivers] + sender[senders] + apply(conv.edge, edge_x))
        bias = 0.0 if conv.bias is None else number(conv.bias)
        return attended(logits, z[senders], receivers) + bias
    left, right = by_head(apply(conv.receiver, x)), by_head(apply(conv.sender, x))
    inner = left[receivers] + right[senders] + by_head(apply(conv.edge, edge_x))
    logits = (number(conv.vector) * leaky(inner)).sum(axis=-1)
    return attended(logits, right[senders], receivers) + number(conv.bias)


def made(name, **changes):
    heads = {"heads": HEADS} if name.startswith("gat") else {}
    config = MODELS[name].config(hidden=HIDDEN, layers=2, **heads, **changes)
    sizes = Sizes(FEATURES, EDGE_FEATURES, 0, 3)
    return MODELS[name].make(config, sizes, rngs=nnx.Rngs(params=1))


def normalised(norm, out):
    """Layer normalisation, or over the nodes; scale and shift are those at the start."""
    axis, eps = (1, 1e-6) if norm == "layer" else (0, 1e-5)
    out = out - out.mean(axis=axis, keepdims=True)
    return out / np.sqrt(np.square(out).mean(axis=axis, keepdims=True) + eps)


@pytest.mark.parametrize(
    ("residual", "norm", "first"),
    [(False, "layer", False), (True, "layer", False), (True, "batch", True)],
)
@pytest.mark.parametrize("name", STACKS)
def test_a_forward_pass_is_the_definition_in_float64(name, residual, norm, first, edges):
    model = made(name, residual=residual, norm=norm, input_layer=first)
    rng = np.random.default_rng(4)
    x, edge_x = rng.standard_normal((NODES, FEATURES)), rng.standard_normal((90, EDGE_FEATURES))
    inputs = Inputs(jnp.asarray(x, jnp.float32), edge_x_ef=jnp.asarray(edge_x, jnp.float32))
    neighbours = LocalNeighbours(*edges, NODES)
    graphdef, params = nnx.split(model)
    got = jax.jit(lambda p, i: nnx.merge(graphdef, p)(i, neighbours))(params, inputs)
    want = apply(model.stack.input, x) if first else x
    for layer in model.stack.layers:
        out = dense_conv(name, layer.conv, want, edge_x, *edges)
        if residual:
            out += apply(layer.residual, want)
        want = relu(normalised(norm, out))
    np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("jumping", ["concat", "sum", "max"])
def test_jumping_knowledge_joins_what_every_layer_gives(jumping, edges):
    model = made("gin", jumping=jumping)
    x = np.random.default_rng(4).standard_normal((NODES, FEATURES)).astype(np.float32)
    seen = {}

    def layers(name, value):
        seen[name] = value

    inputs = Inputs(jnp.asarray(x)).live(None, layers)
    got = model(inputs, LocalNeighbours(*edges, NODES))
    each = []
    for number in range(len(model.stack.layers)):
        out = np.asarray(seen[f"layers.{number}.conv"], np.float64)
        out -= out.mean(axis=1, keepdims=True)
        each.append(relu(out / np.sqrt(np.square(out).mean(axis=1, keepdims=True) + 1e-6)))
    join = {"concat": lambda a: np.hstack(a), "sum": sum, "max": lambda a: np.maximum(*a)}[jumping]
    np.testing.assert_allclose(got, join(each), atol=2e-5)


@pytest.mark.parametrize("name", STACKS)
def test_parameters_are_those_of_the_definition(name):
    d, f, e, h = HIDDEN, FEATURES, EDGE_FEATURES, HEADS
    of_layer = {
        "gcn": lambda i: i * d + d,
        "sage": lambda i: 2 * i * d + d,
        "gin": lambda i: i * d + d + d * d + d + 1,
        "gat": lambda i: i * d + 2 * d + e * h + d,
        "gatv2": lambda i: 2 * (i * d + d) + e * d + d + d,
    }[name]
    norms, residuals = 2 * 2 * d, (f * d + d) + (d * d + d)
    state = nnx.state(made(name, residual=True), nnx.Param)
    count = sum(p.size for p in jax.tree.leaves(state))
    assert count == of_layer(f) + of_layer(d) + norms + residuals
    state = nnx.state(made(name, input_layer=True), nnx.Param)
    count = sum(p.size for p in jax.tree.leaves(state))
    assert count == f * d + d + 2 * of_layer(d) + norms


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_width_of_embeddings_is_found_without_running(name):
    config = MODELS[name].config(hidden=24)
    sizes = Sizes(FEATURES, EDGE_FEATURES, 0, 3)
    model = nnx.eval_shape(lambda: MODELS[name].make(config, sizes, rngs=nnx.Rngs(params=0)))
    assert embedding_width(model, sizes, RecordingNeighbours) == 24


class Bare(nnx.Module):
    """A model of one's own without settings."""

    def __init__(self, sizes, *, rngs):
        self.linear = nnx.Linear(sizes.features, 7, rngs=rngs)

    def __call__(self, inputs, neighbours):
        return neighbours.aggregate(lambda i, j, e, s: jnp.tanh(j), sender=self.linear(inputs.x_nf))


@dataclass(frozen=True)
class OwnConfig:
    hidden: int = 3


class Own(Bare):
    """One with settings."""

    Config = OwnConfig

    def __init__(self, config, sizes, *, rngs):
        self.linear = nnx.Linear(sizes.features, config.hidden, rngs=rngs)


class MyGCN(GCN):
    """One that takes over the settings of another."""


def test_ones_own_models_are_found_by_class_and_by_name():
    for cls in (Bare, Own, MyGCN):
        config = model_config(cls)
        name = model_name(config)
        assert name == f"{cls.__module__}:{cls.__name__}"
        assert model_config(name) == config
        assert model_entry(name).load() is cls
    assert model_name(GCNConfig()) == "gcn"  # and not that of MyGCN, which has a class of its own
    sizes = Sizes(FEATURES)
    for cls, width in ((Bare, 7), (Own, 3), (MyGCN, 64)):
        config = model_config(cls)
        entry = model_entry(model_name(config))
        model = entry.make(config, sizes, rngs=nnx.Rngs(params=0))
        assert embedding_width(model, sizes, RecordingNeighbours) == width


def test_settings_stay_where_they_are_of_the_models_kind():
    assert model_config(Own, OwnConfig(hidden=9)) == OwnConfig(hidden=9)
    mine = model_config(MyGCN, GCNConfig(hidden=9))
    assert model_name(mine).endswith(":MyGCN")
    assert mine.hidden == 9
    assert model_config("gcn", TransformerConfig(hidden=12)) == GCNConfig()


def test_a_registered_name_stands_for_the_class():
    try:
        register_model("mine", Own)
        assert type(model_config("mine")).__name__ == "OwnConfig"
        assert model_name(model_config("mine")) == "mine"
    finally:
        MODELS.pop("mine")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gta", "unknown model 'gta'. Did you mean 'gat'?"),
        ("zzz", "unknown model 'zzz'. Known: transformer, decoupled, gcn"),
        ("no_such_module:Model", "cannot be imported: No module named 'no_such_module'"),
        ("gtjax.nn.gcn:Nothing", "gtjax.nn.gcn has no class Nothing"),
        ("__main__:Gone", "pass the class itself (model=...)"),
    ],
)
def test_a_model_that_is_not_there_is_told_with_what_is(name, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        model_entry(name)


def test_settings_without_a_model_say_how_to_name_it():
    @dataclass(frozen=True)
    class Nobodys:
        hidden: int = 1

    with pytest.raises(ValueError, match=r"Nobodys belongs to no model.*register_model"):
        model_config(Nobodys())


def test_what_is_no_embedding_is_refused():
    class Sum(nnx.Module):
        def __call__(self, inputs, neighbours):
            return inputs.x_nf.sum(axis=1)

    with pytest.raises(ValueError, match=r"embeddings \[nodes, width\].*Sum gave float32\[6\]"):
        embedding_width(Sum(), Sizes(FEATURES), RecordingNeighbours)


def test_configs_are_small_enough_to_read():
    for entry in MODELS.values():
        assert len(dataclasses.fields(entry.config)) <= 16
        assert dataclasses.fields(entry.config) == () or entry.config.__dataclass_params__.frozen


def test_the_table_does_not_load_jax():
    import subprocess

    code = "import sys, gtjax.nn.models, gtjax.tasks.base; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
