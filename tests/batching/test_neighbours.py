"""Sampled batches: exact where they see everything, unbiased where they promise it."""

from __future__ import annotations

import copy
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.batching import sampled as sampled_batches
from gtjax.batching.config import BatchesConfig
from gtjax.batching.neighbours import fan_outs
from gtjax.batching.prepare import prepare
from gtjax.batching.sampler import ALL
from gtjax.batching.source import Source
from gtjax.batching.store import make_batches
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn.config import (
    DecoupledConfig,
    GATConfig,
    GATv2Config,
    GCNConfig,
    GINConfig,
    SAGEConfig,
    TransformerConfig,
)
from gtjax.runs.config import TrainConfig, with_model
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from gtjax.tasks.config import TaskConfig

NODES = 61  # prime
TOLERANCE = 2e-5  # float32 sums in another order


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A hub, isolated nodes, self-loops, edges that are there twice, and edge features."""
    rng = np.random.default_rng(5)
    splits = rng.integers(0, 4, NODES)
    senders_e = rng.integers(0, NODES - 4, 300)
    receivers_e = np.where(rng.random(300) < 0.3, 7, rng.integers(0, NODES - 4, 300))
    senders_e[:20], receivers_e[:20] = senders_e[20:40], receivers_e[20:40]
    return Graph(
        senders_e,
        receivers_e,
        rng.standard_normal((NODES, 5)).astype(np.float32),
        np.where(splits < 3, rng.integers(0, 3, NODES), -1),
        {name: splits == number for number, name in enumerate(("train", "val", "test"))},
        rng.standard_normal((300, 3)).astype(np.float32),
    )


def sampled(**changes) -> BatchesConfig:
    return BatchesConfig(**{"batching": "neighbours", "fan_out": "all", **changes})


def made(graph, model, batches, devices=1, **more):
    """The program and the batches of a config."""
    parallel = ParallelConfig(devices=devices)
    config = TrainConfig(parallel=parallel, batches=batches, **more)
    config = with_model(config, model)
    graph = config.prepared(graph)
    program = Program(config, graph, config.task_of(graph))
    return program, make_batches(Source(graph), program.settings, program.spread)


def loss_and_gradient(program):
    return jax.jit(jax.value_and_grad(program.loss))


def assert_same(got, want, tolerance=TOLERANCE):
    jax.tree.map_with_path(
        lambda path, a, b: np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path)
        ),
        got,
        want,
    )


DROPPED = {"hidden": 8, "layers": 2, "dropout": 0.2, "input_dropout": 0.1}
MODELS = [
    GCNConfig(**DROPPED, residual=True),
    SAGEConfig(**DROPPED, aggregation="max"),
    GINConfig(**DROPPED, jumping="concat"),
    GATConfig(**DROPPED, heads=2, attention_dropout=0.2),
    GATv2Config(**DROPPED, heads=2, attention_dropout=0.2),
    TransformerConfig(**DROPPED, heads=2, attention_dropout=0.2, norm="layer"),
    DecoupledConfig(**DROPPED, heads=2),
]


class Own(nnx.Module):
    """A model that knows nothing of sampling: sums, weights of its own, and a message."""

    def __init__(self, sizes, *, rngs):
        self.first = nnx.Linear(sizes.features, 6, rngs=rngs)
        self.second = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, inputs, neighbours):
        x_nf = nnx.relu(self.first(inputs.x_nf))
        x_nf = x_nf + neighbours.sum(x_nf) / jnp.maximum(neighbours.degree_n, 1)[:, None]
        return neighbours.aggregate(
            lambda receiver, sender, edge, shared: jax.nn.tanh(receiver) * sender,
            receiver=x_nf,
            sender=self.second(x_nf),
        )


class Deeper(Own):
    """One hop more."""

    def __call__(self, inputs, neighbours):
        return neighbours.max(super().__call__(inputs, neighbours))


@pytest.mark.parametrize(
    "model", [*MODELS, Own], ids=lambda model: getattr(model, "__name__", type(model).__name__)
)
@pytest.mark.quick_every(6)
def test_with_all_edges_loss_and_gradients_are_those_of_the_whole_graph(graph, model):
    """On the seeds: here all training nodes; dropout included, which draws by node and edge."""
    program, batches = made(graph, model, sampled(batch_size=1000))
    full, whole = made(graph, model, BatchesConfig())
    params, step = program.initial_state().params, jnp.int32(4)
    got = loss_and_gradient(program)(params, batches.at(4), step)
    assert_same(got, loss_and_gradient(full)(params, whole.at(4), step))
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(got[1]))


def test_labels_are_shown_but_those_of_nodes_that_are_asked(graph):
    """As in a full batch that hides just these; what is not for training is never shown."""
    model = SAGEConfig(hidden=8, layers=2, dropout=0.0, label_input=True)
    program, batches = made(graph, model, sampled(batch_size=4))
    full, whole = made(graph, model, BatchesConfig())
    params, everything = program.initial_state().params, whole.at(0)
    batch = batches.at(1)
    ids, there = np.asarray(batch.inputs.node_ids_n), np.asarray(batch.inputs.valid_n)
    asked = np.isin(np.asarray(everything.inputs.node_ids_n), ids[: batches.bounds.nodes[0]])
    asked &= np.asarray(everything.targets["train"])
    shown = np.asarray(batch.inputs.shown_labels_n)
    assert (shown[there & ~graph.split_n["train"][np.where(there, ids, 0)]] == -1).all()
    assert (shown >= 0).any()
    labels, train = (np.asarray(everything.targets[name]) for name in ("labels", "train"))

    def loss(params):
        hidden = everything.inputs._replace(
            shown_labels_n=jnp.where(jnp.asarray(train & ~asked), labels, -1)
        )
        outputs = full.run(params, everything, hidden, full.spread).outputs
        targets = {**everything.targets, "train": jnp.asarray(asked)}
        return batch.weight_n[0] * full.task.loss(outputs, targets)

    got = loss_and_gradient(program)(params, batch, jnp.int32(1))
    assert_same(got, jax.jit(jax.value_and_grad(loss))(params))


@pytest.mark.parametrize("devices", [1, 4])
def test_an_epoch_is_one_pass_over_the_labelled_training_nodes(graph, devices):
    """The mean over its batches is the loss of the whole graph, and so is the gradient."""
    model = GCNConfig(hidden=8, layers=2, dropout=0.0)
    program, batches = made(graph, model, sampled(batch_size=4), devices)
    full, whole = made(graph, model, BatchesConfig())
    params = program.initial_state().params
    counted = np.flatnonzero(graph.split_n["train"] & (graph.labels_n >= 0))
    assert len(counted) % batches.steps_per_epoch  # batches differ in size
    want = loss_and_gradient(full)(full.initial_state().params, whole.at(0), 0)
    run, found = loss_and_gradient(program), []
    for epoch in range(2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        seen = np.concatenate([batches.items(step) for step in steps])
        np.testing.assert_array_equal(np.sort(seen), np.arange(len(counted)))
        found.append([run(params, batches.at(step), jnp.int32(0)) for step in steps])
        mean = jax.tree.map(lambda *each: sum(each) / len(each), *found[-1])
        assert_same(mean, want)
    assert not np.array_equal(batches.items(0), batches.items(batches.steps_per_epoch))


def test_many_devices_draw_what_one_does(graph):
    """The same seeds and edges, however they are shared out: the same gradients."""
    model = GATConfig(hidden=8, layers=2, heads=2, dropout=0.1)
    results = []
    for devices in (1, 3):
        batches = sampled(fan_out="3,2", batch_size=9)
        program, batches = made(graph, model, batches, devices)
        params = program.initial_state().params
        results.append(jax.device_get(loss_and_gradient(program)(params, batches.at(1), 1)))
    assert_same(*results)


class Linear(nnx.Module):
    """Two hops of sums with GCN's weights and a node's own row, and no bend in it."""

    def __init__(self, sizes, *, rngs):
        self.first = nnx.Linear(sizes.features, 4, use_bias=False, rngs=rngs)
        self.second = nnx.Linear(4, 4, use_bias=False, rngs=rngs)

    def __call__(self, inputs, neighbours):
        root_n1 = jax.lax.rsqrt(jnp.maximum(neighbours.degree_n, 1.0))[:, None]
        h_nf = self.first(inputs.x_nf)
        h_nf = 0.5 * h_nf + root_n1 * neighbours.sum(root_n1 * h_nf)
        return 0.5 * h_nf + neighbours.mean(self.second(h_nf))


def linear_loss(outputs, labels, counted):
    """Linear in the outputs, so that what is unbiased there is unbiased in the gradient."""
    sign = jnp.where(labels == 1, 1.0, -1.0)
    return (sign * outputs[:, 0] * counted).sum() / jnp.maximum(counted.sum(), 1)


DRAWS = 300
TASK = TaskConfig(loss="tests.batching.test_neighbours:linear_loss")


def bias_in_standard_errors(graph, draws=DRAWS, change=lambda batch: batch):
    """The largest, over parameters, of |mean gradient - exact one| over its standard error."""
    more = {"asked": TASK}
    train = graph.split_n["train"] & (graph.labels_n >= 0)
    batches = sampled(fan_out="2,2", batch_size=int(train.sum()))
    program, batches = made(graph, Linear, batches, **more)
    full, whole = made(graph, Linear, BatchesConfig(), **more)
    params = program.initial_state().params
    exact = jax.grad(full.loss)(params, whole.at(0), 0)
    gradient = jax.jit(jax.grad(program.loss))
    found = [gradient(params, change(batches.at(step)), 0) for step in range(draws)]

    def apart(exact, *drawn):
        drawn = np.stack(drawn)
        error = drawn.std(axis=0, ddof=1) / np.sqrt(draws)
        varies = error > 1e-6
        off = np.abs(drawn.mean(axis=0) - exact)
        np.testing.assert_allclose(off[~varies], 0, atol=1e-5)
        return (off[varies] / error[varies]).tolist()

    leaves = zip(*map(jax.tree.leaves, [exact, *found]), strict=True)
    return np.array(list(chain.from_iterable(apart(*each) for each in leaves)))


def test_expected_gradients_of_sums_and_means_are_the_exact_ones(graph):
    """Within 3 standard errors, for a model that is linear in what is drawn."""
    off = bias_in_standard_errors(graph)
    assert len(off) > 20
    assert off.max() < 3.5  # the largest of some forty
    assert np.sqrt((off**2).mean()) < 1.5


def test_sums_that_are_not_scaled_are_biased(graph):
    """Or the test above could not fail."""
    off = bias_in_standard_errors(graph, 100, lambda batch: batch._replace(sum_scale_n=None))
    assert off.max() > 6


def test_a_model_of_ones_own_is_asked_how_far_it_sees(graph):
    """Its two hops are found; fewer would give wrong numbers without a word."""
    program, batches = made(graph, Own, sampled(fan_out="4", batch_size=5))
    assert program.settings.layers == 2
    assert len(batches.bounds.edges) == 2
    with pytest.raises(UserError, match="3 hops"):
        made(graph, Deeper, sampled(fan_out="4,3", batch_size=5))


def test_one_number_is_for_every_layer_and_too_few_are_refused():
    assert fan_outs("10", 3) == (10, 10, 10)
    assert fan_outs("15,all,5", 3) == (15, ALL, 5)
    assert fan_outs("15,10,5", 2) == (15, 10)
    assert fan_outs("15,10", None) == (15, 10)
    with pytest.raises(UserError, match="3 hops"):
        fan_outs("15,10", 3)


@pytest.mark.parametrize("fan_out", ["0", "", "5,x", "-1"])
def test_fan_outs_that_are_none(fan_out):
    with pytest.raises(ValueError, match="fan_out is positive"):
        sampled(fan_out=fan_out)


def test_what_a_sampled_step_cannot_see_is_refused(graph):
    with pytest.raises(UserError, match="mixes all nodes"):
        made(graph, GCNConfig(norm="batch"), sampled())


def test_a_draw_that_exceeds_the_shapes_makes_them_grow_and_is_counted(graph, monkeypatch):
    model = GCNConfig(hidden=8, layers=2, dropout=0.0)
    program, batches = made(graph, model, sampled(fan_out="2,2", batch_size=5))
    params = program.initial_state().params
    want = [loss_and_gradient(program)(params, batches.at(step), step) for step in range(4)]
    assert batches.grown == 0
    monkeypatch.setattr(sampled_batches, "FIRST_DRAWS", 0)
    monkeypatch.setattr(sampled_batches, "MULTIPLE", 1)
    _, tight = made(graph, model, sampled(fan_out="2,2", batch_size=5))
    got = [loss_and_gradient(program)(params, tight.at(step), step) for step in range(4)]
    assert tight.grown > 0
    assert tight.facts(3)["shapes_grown"] == tight.grown
    assert_same(got, want, 1e-6)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.quick_every(4)
def test_pairs_with_all_edges_score_as_in_the_whole_graph(graph, devices):
    """The same edges and drawn pairs, given to a full batch by the rows of their nodes."""
    model = GCNConfig(hidden=8, layers=2, dropout=0.0)
    batches = sampled(batch_size=40)
    program, batches = made(graph, model, batches, devices, task="link")
    seen = program.config.prepared(graph)
    full, whole = made(seen, model, BatchesConfig(), task="link")
    batch = batches.at(3)
    params = program.initial_state().params
    key = jax.random.fold_in(jax.random.key(program.config.seed), 3)
    inputs, _ = program.task.training(batch.inputs, batch.targets, key)
    seeds = batch.hops.rows(batch.inputs.node_ids_n, 0)
    asked = {name: np.asarray(seeds)[pairs] for name, pairs in jax.device_get(inputs.asked).items()}
    there = np.asarray(batch.targets["train"])[:, 0] >= 0
    edges = {tuple(sorted(pair)) for pair in seen.links.train.tolist()}
    assert all(tuple(sorted(pair)) in edges for pair in asked["train"][there].tolist())
    assert there.sum() == len(batches.items(3))
    outputs = jax.jit(lambda params, batch: program.run(params, batch, inputs, program.training))
    got = outputs(params, batch).outputs
    given = whole.whole.inputs._replace(asked=asked)
    want = full.run(full.initial_state().params, whole.whole, given, full.training).outputs
    np.testing.assert_allclose(got["train"][there], want["train"][there], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(
        got["train_negative"][there], want["train_negative"][there], rtol=2e-5, atol=2e-5
    )


def test_true_negatives_need_all_edges(graph):
    with pytest.raises(UserError, match="true-negatives"):
        made(
            graph,
            GCNConfig(hidden=8, layers=2),
            sampled(),
            task="link",
            asked=TaskConfig(true_negatives=True),
        )


@pytest.mark.parametrize("cache", ["scored", "degree", "lru"])
def test_a_cache_of_rows_changes_no_number(graph, cache):
    model = GCNConfig(hidden=8, layers=2)
    _, plain = made(graph, model, sampled(fan_out="3,2", batch_size=5))
    _, cached = made(graph, model, sampled(fan_out="3,2", batch_size=5, cache=cache, cache_rows=9))
    for step in range(40):
        np.testing.assert_array_equal(cached.at(step).inputs.x_nf, plain.at(step).inputs.x_nf)
    facts = cached.facts(39)
    assert facts["cache_rows"] == 9
    assert 0 < facts["cache_hit_rate"] < 1
    assert facts["feature_bytes_read"] > 0
    assert "cache_hit_rate" not in plain.facts(39)


def test_features_in_a_file_are_cached_as_much_as_batches_ask(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.x_nf)
    model = GCNConfig(hidden=8, layers=2)
    _, plain = made(graph, model, sampled(fan_out="3,2", batch_size=5))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stored = copy.copy(graph)
    object.__setattr__(stored, "x_nf", mapped)
    _, batches = made(stored, model, sampled(fan_out="3,2", batch_size=5))
    np.testing.assert_array_equal(batches.at(2).inputs.x_nf, plain.at(2).inputs.x_nf)
    assert 0 < batches.cache.capacity <= NODES


@pytest.mark.parametrize("devices", [1, 2])
def test_some_clusters_a_step_are_their_induced_graph(graph, devices):
    """All clusters at once on one device are the whole graph; of some, the edges among them."""
    model = GCNConfig(hidden=8, layers=2, dropout=0.0)
    full, whole = made(graph, model, BatchesConfig())
    some = BatchesConfig(batching="clusters", clusters=6, batch_size=6)
    program, batches = made(graph, model, some, devices)
    got = loss_and_gradient(program)(program.initial_state().params, batches.at(0), 0)
    if devices == 1:
        want = loss_and_gradient(full)(full.initial_state().params, whole.at(0), 0)
        assert_same(got, want)
    batch = jax.device_get(batches.at(1))
    rows = len(batch.inputs.valid_n) // devices
    edges = full.settings and prepare(graph, full.settings).edges
    known = set(zip(edges.senders_e.tolist(), edges.receivers_e.tolist(), strict=True))
    for part in range(devices):
        ids = batch.inputs.node_ids_n[part * rows : (part + 1) * rows]
        mine = set(ids[batch.inputs.valid_n[part * rows : (part + 1) * rows]].tolist())
        offsets = batch.layout.offsets_r[part]
        receivers = ids[np.repeat(np.arange(rows), np.diff(offsets))].tolist()
        senders = ids[batch.layout.senders_e[part][: offsets[-1]]].tolist()
        found = set(zip(senders, receivers, strict=True))
        assert found == {(a, b) for a, b in known if a in mine and b in mine}
    steps = range(batches.steps_per_epoch)
    asked = np.concatenate([batches.items(step) for step in steps])
    np.testing.assert_array_equal(np.sort(asked), np.arange(6 * devices))


def test_kernels_that_need_other_forms_of_the_edges_give_the_same(graph):
    """Tiles are built batch by batch in shapes that all batches share; layers are not cut short."""
    model = GCNConfig(hidden=8, layers=2, dropout=0.0)
    batches = sampled(fan_out="3,2", batch_size=5)
    results = []
    for kernel in ("auto", "xla"):
        program, drawn = made(graph, model, batches, kernel=kernel)
        params, run = program.initial_state().params, loss_and_gradient(program)
        results.append([run(params, drawn.at(step), step) for step in range(6)])
        shapes = {drawn.at(step).layout.senders_e.shape for step in range(6)}
        assert len(shapes) == 1
    assert drawn.at(0).layout.tilings is not None
    assert_same(*results)
