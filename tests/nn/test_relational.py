"""Relational attention against dense float64, values and gradients; what types of edges are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gtjax
from gtjax.batching.config import PrepareConfig
from gtjax.batching.prepare import prepare_graph
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn import GCNConfig, Inputs, RelationalConfig, RelationalConv, Sizes
from gtjax.nn.models import MODELS
from gtjax.runs.config import TrainConfig
from tests.nn.local import LocalNeighbours
from tests.nn.test_models import NODES

TYPES, INPUTS, OUTPUTS, HEADS = 3, 5, 8, 2


def dense_relational(params, x, way_e, senders, receivers):
    """One layer from its definition: way_e is a relation, of which the last is the self-loop's."""
    get = lambda name: params[name]["kernel"]  # noqa: E731
    value = (x @ get("value")).reshape(NODES, HEADS, -1)
    score = 8 * jnp.tanh(x @ get("score") / 8)
    of_loop = jnp.zeros((1, HEADS))
    bias = 8 * jnp.tanh(jnp.concatenate([get("edge_bias"), of_loop]) / 8)
    factor = jnp.concatenate([get("edge_factor"), of_loop]) + params["edge_factor"]["bias"]
    out = []
    for node in range(NODES):
        mine = np.flatnonzero(receivers == node)
        p = jax.nn.softmax(score[senders[mine]] + bias[way_e[mine]], axis=0)
        carried = (p * factor[way_e[mine]])[..., None] * value[senders[mine]]
        out.append(carried.sum(axis=0).reshape(-1))
    return jnp.stack(out) @ get("mix") + params["mix"]["bias"]


@pytest.fixture(scope="module")
def typed(edges):
    """A relation of every edge, and its row of features: types, their reverses, self-loops."""
    way_e = np.random.default_rng(2).integers(0, 2 * TYPES + 1, len(edges[0]))
    forth, back = np.eye(TYPES), -np.eye(TYPES)
    return way_e, np.concatenate([forth, back, np.zeros((1, TYPES))])[way_e].astype(np.float32)


def test_values_and_gradients_are_those_of_the_definition(edges, typed):
    way_e, edge_x = typed
    conv = RelationalConv(INPUTS, OUTPUTS, HEADS, TYPES, rngs=nnx.Rngs(params=0))
    graphdef, state = nnx.split(conv)
    params = nnx.to_pure_dict(state)
    rng = np.random.default_rng(4)
    x, target = rng.standard_normal((NODES, INPUTS)), rng.standard_normal((NODES, OUTPUTS))
    neighbours = LocalNeighbours(*edges, NODES)

    def ours(params, x):
        nnx.replace_by_pure_dict(state, params)
        out = nnx.merge(graphdef, state)(x, neighbours, jnp.asarray(edge_x))
        return (out * target).sum(), out

    def wanted(params, x):
        out = dense_relational(params, x, way_e, *edges)
        return (out * target).sum(), out

    x32 = jnp.asarray(x, jnp.float32)
    (_, got), grads = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(params, x32)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda p: jnp.asarray(np.asarray(p), jnp.float64), (params, x))
        (_, want), d_want = jax.jit(jax.value_and_grad(wanted, (0, 1), has_aux=True))(*exact)
        assert want.dtype == jnp.float64
        want, d_want = jax.tree.map(np.asarray, (want, d_want))
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert all(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(d_want))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-5), grads, d_want)


def test_parameters_are_those_of_the_definition():
    d, f, h = 8, 5, 2

    def count(edge_features=TYPES, **changes):
        config = RelationalConfig(hidden=d, layers=2, heads=h, **changes)
        model = MODELS["relational"].make(config, Sizes(f, edge_features), rngs=nnx.Rngs(params=0))
        return sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param)))

    def layer(i):
        return i * d + i * h + (d * d + d) + (i * d + d) + 2 * d  # values, scores, mix, own, norm

    untyped = layer(f) + layer(d)
    assert count(typed=False) == untyped == count(edge_features=0)
    assert count() == untyped + 2 * (2 * TYPES * h + 2 * TYPES * h + h)


def test_types_and_directions_matter_and_untyped_is_blind_to_them(edges, typed):
    x = jnp.asarray(np.random.default_rng(4).standard_normal((NODES, INPUTS)), jnp.float32)
    rows = jnp.asarray(typed[1])

    def run(edge_x, *, sees):
        config = RelationalConfig(hidden=8, layers=1, heads=2, typed=sees)
        model = MODELS["relational"].make(config, Sizes(INPUTS, TYPES), rngs=nnx.Rngs(params=0))
        return model(Inputs(x, edge_x_ef=edge_x), LocalNeighbours(*edges, NODES))

    seen = run(rows, sees=True)
    for other in (-rows, rows[:, ::-1]):
        assert np.abs(run(other, sees=True) - seen).max() > 0.01
        np.testing.assert_array_equal(run(other, sees=False), run(rows, sees=False))


def small_graph():
    types = np.eye(2, dtype=np.float32)
    # Both ways between 2 and 3; the rest one way.
    return Graph(
        [0, 1, 2, 3], [1, 2, 3, 2], np.ones((4, 1)), [0, 1, 0, 1], edge_x_ef=types[[0, 1, 0, 1]]
    )


def test_reverse_edges_have_the_opposite_type_where_the_model_tells_them_apart():
    graph = small_graph()

    def added(model, reverse="auto"):
        config = TrainConfig(model=model, prepare=PrepareConfig(reverse=reverse))
        made = prepare_graph(graph, config.preparation)
        return made.edge_x_ef[graph.num_edges :].tolist(), made

    loops = [[0.0, 0.0]] * 4
    (rows, made) = added(RelationalConfig())
    assert rows == [[-1.0, 0.0], [0.0, -1.0], *loops]  # 1 -> 0 and 2 -> 1
    assert made.senders_e[4:6].tolist() == [1, 2]
    assert made.receivers_e[4:6].tolist() == [0, 1]
    same = [[1.0, 0.0], [0.0, 1.0], *loops]
    assert added(RelationalConfig(typed=False))[0] == added(GCNConfig())[0] == same
    assert added(RelationalConfig(), "same")[0] == same
    assert added(GCNConfig(), "opposite")[0] == rows


def test_a_stored_graph_that_lost_the_direction_is_refused(tmp_path):
    gtjax.save_npz(small_graph(), tmp_path / "typed.npz")
    gtjax.convert(tmp_path / "typed.npz", tmp_path / "stored")
    stored = gtjax.load(tmp_path / "stored")
    prepare_graph(stored, PrepareConfig())
    with pytest.raises(UserError, match=r"to tell them apart.*--no-symmetrise"):
        prepare_graph(stored, PrepareConfig(reverse="opposite"))
