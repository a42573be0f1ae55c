"""Label propagation and Correct & Smooth: their formulas in float64, and that no label leaks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gtjax
from gtjax.batching.prepare import in_graph_order, make_batch
from gtjax.core.errors import UserError
from gtjax.nn import GCNConfig
from gtjax.recipes.config import SmoothConfig
from gtjax.recipes.smooth import TRIED, Smoother
from gtjax.runs.chunked import ChunkedProgram
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from tests.marks import slow
from tests.nn.local import LocalNeighbours, drawn_edges

NODES, CLASSES, ROUNDS = 23, 3, 7
RNG = np.random.default_rng(1)
LOGITS = RNG.standard_normal((NODES, CLASSES))
LABELS = RNG.integers(0, CLASSES, NODES)
SPLIT = np.arange(NODES) % 3  # training, validation, test
GIVEN = {"correct": 0.7, "smooth": 0.6, "rounds": ROUNDS}
METHODS = [
    SmoothConfig("labels", **GIVEN),
    SmoothConfig("correct_and_smooth", **GIVEN),
    SmoothConfig("correct_and_smooth", scale=1.5, **GIVEN),
]


@pytest.fixture(scope="module")
def edges():
    return drawn_edges()


def targets(labels=LABELS):
    masks = {name: jnp.asarray(number == SPLIT) for number, name in enumerate(("train", "val"))}
    return {"labels": jnp.asarray(labels), **masks}


def run(config, edges, known=None, goodness=jnp.sum):
    neighbours = LocalNeighbours(*edges, NODES)
    call = jax.jit(lambda x, known: Smoother(config)(x, known, neighbours, goodness))
    return jax.tree.map(np.asarray, call(jnp.asarray(LOGITS, jnp.float32), known or targets()))


def symmetric(senders, receivers):
    adjacency = np.zeros((NODES, NODES))
    np.add.at(adjacency, (receivers, senders), 1.0)
    degree = adjacency.sum(axis=1)
    root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    return root[:, None] * adjacency * root


def expected(config, edges):
    """By the papers, round by round; of nodes that are not trained on."""
    s, train = symmetric(*edges), SPLIT == 0
    known = np.eye(CLASSES)[LABELS] * train[:, None]

    def spread(start, share, held=None):
        x = start
        for _ in range(ROUNDS):
            x = (1 - share) * start + share * s @ x
            if held is not None:
                x = np.where(held[:, None], start, x)
        return x

    if config.method == "labels":
        return spread(known, config.smooth)
    z = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    error = np.where(train[:, None], known - z, 0)
    if config.scale:
        z = z + config.scale * spread(error, config.correct, train)
    else:
        spread_error, usual = spread(error, config.correct), np.abs(error[train]).sum(axis=1).mean()
        for node in range(NODES):
            size = np.abs(spread_error[node]).sum()
            z[node] += usual * spread_error[node] / size if size else 0
    return spread(np.where(train[:, None], known, z), config.smooth)


@pytest.mark.parametrize("config", METHODS)
def test_answers_are_those_of_the_papers(config, edges):
    got, shares = run(config, edges)
    want = np.log(np.maximum(expected(config, edges), 1e-9))
    asked = SPLIT > 0
    np.testing.assert_allclose(got[asked], want[asked], atol=1e-4)
    np.testing.assert_allclose(got[~asked], LOGITS[~asked], rtol=1e-6)  # they hold their labels
    np.testing.assert_allclose(shares, [0.7, 0.6], rtol=1e-6)


@pytest.mark.parametrize("config", METHODS)
def test_labels_of_others_than_training_nodes_change_nothing(config, edges):
    other = np.where(SPLIT == 0, LABELS, (LABELS + 1) % CLASSES)
    got, want = run(config, edges, targets(other))[0], run(config, edges)[0]
    np.testing.assert_array_equal(got, want)
    changed = np.where(SPLIT == 0, (LABELS + 1) % CLASSES, LABELS)
    assert (run(config, edges, targets(changed))[0] != want).any()


def test_shares_are_chosen_by_validation(edges):
    asked = SPLIT == 1

    def goodness(outputs):  # of one that would rather not be smoothed
        return -abs((outputs - LOGITS.astype(np.float32))[asked]).sum()

    config = dataclasses.replace(METHODS[1], choose=True)
    got, shares = run(config, edges, goodness=goodness)
    options = [(0.7, 0.6), (0, 0), *((a, b) for a in TRIED for b in TRIED)]
    each = [expected(dataclasses.replace(config, correct=a, smooth=b), edges) for a, b in options]
    each = [np.log(np.maximum(p, 1e-9)) for p in each]
    best = max(range(len(each)), key=lambda k: goodness(each[k]))
    assert best != 0
    np.testing.assert_allclose(shares, options[best], rtol=1e-6)
    np.testing.assert_allclose(got[asked], each[best][asked], atol=1e-4)


def test_answers_of_the_model_stay_where_smoothing_does_not_help(edges):
    asked, log_p = SPLIT > 0, jax.nn.log_softmax(jnp.asarray(LOGITS, jnp.float32))

    def goodness(outputs):
        return -abs((outputs - log_p)[asked]).sum()

    for config in METHODS[1:]:
        got, shares = run(dataclasses.replace(config, choose=True), edges, goodness=goodness)
        np.testing.assert_array_equal(shares, [0, 0])
        np.testing.assert_allclose(got[asked], log_p[asked], atol=1e-6)


def test_shares_that_cannot_be_chosen_are_as_the_settings_say(edges):
    config = dataclasses.replace(METHODS[0], choose=True)
    shares = run(config, edges, goodness=lambda outputs: outputs.sum() * jnp.nan)[1]
    np.testing.assert_allclose(shares, [0.7, 0.6], rtol=1e-6)


def predicted(graph, parallel):
    config = TrainConfig(
        model=GCNConfig(hidden=4, layers=1), smooth=METHODS[1], parallel=parallel, seed=1
    )
    program = Program(config, graph, config.task_of(graph))
    batch = make_batch(graph, program.settings, program.spread)
    outputs, metrics = jax.jit(program.predict)(program.initial_state().params, batch)
    return in_graph_order(batch, np.asarray(outputs.smoothed)), metrics


@pytest.mark.parametrize(
    ("strategy", "mesh"),
    [
        slow("node_halo", "node=4"),
        ("node_ring", "node=3"),
        slow("node_all_gather", "node=4"),
        slow("feature_all_to_all", "feature=2"),
        slow("node_by_feature", "node=2,feature=2"),
    ],
)
def test_it_is_the_same_on_many_devices(graph, strategy, mesh):
    want, metrics = predicted(graph, ParallelConfig())
    parallel = ParallelConfig(strategy=strategy, mesh=mesh, partitioner="random")
    got, others = predicted(graph, parallel)
    np.testing.assert_allclose(got, want, atol=1e-4)
    assert others.keys() == metrics.keys()
    for name in ("val_smoothed_accuracy", "test_smoothed_accuracy"):
        np.testing.assert_allclose(others[name], metrics[name])
    assert "train_smoothed_accuracy" not in metrics


def test_a_run_reports_both_and_predicts_what_is_smoothed(tmp_path):
    graph = gtjax.load("synthetic-citation:nodes=200,classes=3,seed=2")
    config = TrainConfig(steps=2, eval_every=2, out=tmp_path / "run", smooth=METHODS[1])
    result = gtjax.fit(graph, GCNConfig(hidden=4, layers=1), config)
    answers = gtjax.load_run(result.folder).predict()
    for name in ("val_accuracy", "test_accuracy", "val_smoothed_accuracy"):
        assert answers.metrics[name] == pytest.approx(result[name])
    test_n = graph.split_n["test"]
    right = (answers.chosen_n == graph.labels_n)[test_n].mean()
    assert right == pytest.approx(result["test_smoothed_accuracy"])
    assert result["test_smoothed_accuracy"] != result["test_accuracy"]


def test_what_makes_no_sense_is_refused(graph):
    config = TrainConfig(smooth=METHODS[0], model=GCNConfig(), task="link")
    seen = config.prepared(graph)
    with pytest.raises(UserError, match=r"--smooth.method labels .*it is for --task node"):
        Program(config, seen, config.task_of(seen))
    config = TrainConfig(smooth=METHODS[1], model=GCNConfig())
    program = Program(config, graph, config.task_of(graph))
    with pytest.raises(UserError, match="goes over all edges 7 times and more"):
        ChunkedProgram(program, graph)
    for name, value in (("correct", 1.5), ("smooth", -0.1), ("rounds", 0), ("scale", -1.0)):
        with pytest.raises(ValueError, match=f"smooth.{name}"):
            SmoothConfig(**{name: value})
