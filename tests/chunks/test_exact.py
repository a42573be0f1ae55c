"""Chunk by chunk, loss, gradients, metrics and embeddings are those of the graph in memory."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.batching.chunked_graph import chunked_graph
from gtjax.batching.config import BatchesConfig, PrepareConfig
from gtjax.batching.prepare import make_batch
from gtjax.chunks import Sizes
from gtjax.core.errors import UserError
from gtjax.nn.config import (
    DecoupledConfig,
    GATConfig,
    GATv2Config,
    GCNConfig,
    GINConfig,
    SAGEConfig,
    TransformerConfig,
)
from gtjax.nn.models import MODELS
from gtjax.runs.chunked import ChunkedProgram
from gtjax.runs.config import TrainConfig, with_model
from gtjax.runs.program import Program
from tests.chunks.small_graphs import awkward

GATHERED = Sizes(32, 32, 32, 64)  # several chunks of each, and a hub that is larger than a block
IN_PLACE = dataclasses.replace(GATHERED, whole_bytes=1e12)
IN_FILES = dataclasses.replace(IN_PLACE, array_bytes=0)
AS_IT_IS = PrepareConfig(symmetrise=False, self_loops=False, reorder="never")
SMALL = {"hidden": 8, "dropout": 0.3}
# Sums of another order, in float32: as much as two ways of computing one op differ.
EXACT = 2e-5


class Own(nnx.Module):
    """A message of one's own with edge rows, what is shared and softmax; and one by maximum."""

    def __init__(self, sizes, *, rngs):
        self.up = nnx.Linear(sizes.features, 6, rngs=rngs)
        self.edge = nnx.Linear(sizes.edge_features, 6, rngs=rngs)
        self.vector = nnx.Param(rngs.params.normal((6,)))

    def __call__(self, inputs, neighbours):
        x_nf = inputs.noise.drop(self.up(inputs.x_nf), 0.2)

        def message(own, other, edge, vector):
            return (jnp.tanh(own + other + edge) * vector).sum(), other * edge

        rows = {"receiver": x_nf, "sender": x_nf, "edge": self.edge(inputs.edge_x_ef)}
        out_nf = neighbours.aggregate(
            message, **rows, shared=2 * self.vector[...], reduce="softmax"
        )
        ones_n1 = jnp.ones((x_nf.shape[0], 1))  # the same for all
        return x_nf + out_nf + neighbours.max(x_nf) + neighbours.sum(ones_n1)


class Centred(nnx.Module):
    """Takes the mean of all nodes away, which no chunk knows."""

    def __init__(self, sizes, *, rngs):
        self.up = nnx.Linear(sizes.features, 6, rngs=rngs)

    def __call__(self, inputs, neighbours):
        x_nf = neighbours.sum(self.up(inputs.x_nf))
        return x_nf - x_nf.mean(axis=0)


class Placed(nnx.Module):
    """Adds the place of a row among the rows."""

    def __init__(self, sizes, *, rngs):
        self.up = nnx.Linear(sizes.features, 6, rngs=rngs)

    def __call__(self, inputs, neighbours):
        places_n1 = jnp.arange(inputs.x_nf.shape[0], dtype=jnp.float32)[:, None]
        return neighbours.sum(self.up(inputs.x_nf) + places_n1)


@pytest.fixture
def own_models():
    yield
    for name in [name for name in MODELS if name.startswith(__name__)]:
        MODELS.pop(name)


def program_of(graph, model, **options) -> Program:
    config = with_model(TrainConfig(steps=5, prepare=AS_IT_IS, **options), model)
    return Program(config, graph, config.task_of(graph))


def assert_exact(graph, model, sizes=GATHERED, **options) -> None:
    program = program_of(graph, model, **options)
    params, batch = (
        program.initial_state().params,
        make_batch(graph, program.settings, program.spread),
    )
    chunked = ChunkedProgram(program, chunked_graph(graph, program.settings), sizes)
    step = jnp.int32(1)
    loss, grads = jax.jit(jax.value_and_grad(program.loss))(params, batch, step)
    chunked.loss_and_gradients(params, step)  # so that the next finds arrays that were used
    found, found_grads = chunked.loss_and_gradients(params, step)
    np.testing.assert_allclose(found, loss, rtol=EXACT)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(found_grads), strict=True):
        a = np.asarray(a)
        np.testing.assert_allclose(b, a, rtol=EXACT, atol=EXACT * (np.abs(a).max() + 1e-3))
    assert all(np.asarray(x).any() for x in jax.tree.leaves(grads))
    wanted, metrics = jax.jit(program.predict)(params, batch)
    outputs, found_metrics = chunked.predict(params)
    np.testing.assert_allclose(outputs.outputs, wanted.outputs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs.embeddings_nf, wanted.embeddings_nf, rtol=1e-5, atol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(found_metrics[name], value, rtol=1e-5)


def test_sums_with_gathered_tables():
    assert_exact(awkward(), GCNConfig(layers=1, **SMALL), GATHERED)


def test_sums_read_in_place_from_files():
    assert_exact(awkward(), SAGEConfig(layers=2, **SMALL), IN_FILES)


def test_attention_with_edge_rows_and_labels_as_input():
    model = GATConfig(layers=1, heads=2, attention_dropout=0.2, label_input=True, **SMALL)
    assert_exact(awkward(edge_features=3), model)


def test_messages_of_ones_own(own_models):
    assert_exact(awkward(edge_features=3), Own)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [GATHERED, IN_PLACE, IN_FILES])
@pytest.mark.parametrize(
    "model",
    [
        GCNConfig(layers=3, norm="layer", residual=True, **SMALL),
        SAGEConfig(layers=2, aggregation="max", **SMALL),
        GINConfig(layers=2, train_eps=True, **SMALL),
        GATConfig(layers=2, heads=2, attention_dropout=0.2, **SMALL),
        GATv2Config(layers=2, heads=2, attention_dropout=0.2, **SMALL),
        TransformerConfig(layers=2, heads=2, attention_dropout=0.2, **SMALL),
        TransformerConfig(layers=2, heads=2, remat="block", positional="random_walk", **SMALL),
        DecoupledConfig(heads=2, **SMALL),
    ],
    ids=lambda m: type(m).__name__.removesuffix("Config"),
)
def test_every_model_of_ours(model, sizes):
    assert_exact(awkward(), model, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("model", [GATv2Config, TransformerConfig, DecoupledConfig])
def test_every_model_with_edge_rows(model):
    assert_exact(awkward(edge_features=3), model(heads=2, **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["multi", "real"])
def test_other_tasks_of_nodes(labels):
    assert_exact(awkward(labels=labels), GCNConfig(layers=1, **SMALL))


@pytest.mark.slow
def test_kernels_that_need_forms_of_edges():
    assert_exact(awkward(), GCNConfig(layers=1, **SMALL), kernel="xla")


@pytest.mark.slow
def test_a_stored_graph_has_edges_numbered_as_they_stand(tmp_path):
    """Features mapped, and no ids of edges by receiver."""
    graph = awkward(edge_features=3)
    order = graph.by_receiver.edge_ids_e
    assert graph.edge_x_ef is not None
    graph = dataclasses.replace(
        graph,
        senders_e=graph.senders_e[order],
        receivers_e=graph.receivers_e[order],
        edge_x_ef=graph.edge_x_ef[order],
    )
    np.save(tmp_path / "x.npy", graph.x_nf)
    model = GATConfig(layers=1, heads=2, attention_dropout=0.2, **SMALL)
    program = program_of(graph, model)
    known = chunked_graph(graph, program.settings)
    csr = known.by_receiver
    without = SimpleNamespace(offsets=csr.offsets, neighbours_e=csr.neighbours_e, edge_ids_e=None)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stored = dataclasses.replace(known, by_receiver=without, x_nf=mapped)
    params = program.initial_state().params
    step = jnp.int32(1)
    wanted = ChunkedProgram(program, known, GATHERED).loss_and_gradients(params, step)
    found = ChunkedProgram(program, stored, GATHERED).loss_and_gradients(params, step)
    for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)


def own_loss(outputs, labels_n, counted_n):
    """No mean over rows: the largest."""
    picked = jnp.take_along_axis(outputs, jnp.maximum(labels_n, 0)[:, None], axis=1)[:, 0]
    return jnp.where(counted_n, -picked, -jnp.inf).max()


@pytest.mark.slow
def test_a_loss_that_is_no_mean_sees_all_outputs():
    from gtjax.tasks.config import TaskConfig

    asked = TaskConfig(loss=f"{__name__}:own_loss")
    assert_exact(awkward(), GCNConfig(layers=1, **SMALL), asked=asked)


@pytest.mark.parametrize(("model", "what"), [(Centred, "other rows"), (Placed, "place")])
def test_what_mixes_nodes_is_refused(own_models, model, what):
    graph = awkward()
    program = program_of(graph, model)
    chunked = ChunkedProgram(program, chunked_graph(graph, program.settings), GATHERED)
    with pytest.raises(UserError, match=what):
        chunked.evaluate(program.initial_state().params)


def test_settings_that_mix_nodes_are_refused_by_name():
    chunks = BatchesConfig(batching="chunks")
    with pytest.raises(UserError, match="norm batch"):
        program_of(awkward(), GCNConfig(norm="batch"), batches=chunks)
