"""Tasks of whole graphs: pooling, batches of graphs, parts of whole graphs, and what is refused."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.batching.config import BatchesConfig
from gtjax.core.errors import UserError
from gtjax.nn import Inputs, SAGEConfig
from gtjax.partition import partition_graph
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from gtjax.tasks.graphs import GraphClassification, Membership
from gtjax.tasks.heads import PooledHead
from tests.tasks.asked import config_of, many_graphs, one_graph


@pytest.mark.parametrize("pool", ["mean", "sum", "max", "attention"])
def test_pooling_is_that_of_a_loop_over_graphs(pool):
    rng = np.random.default_rng(0)
    x_nf = rng.normal(size=(9, 4)).astype(np.float32)
    graph_n = np.array([2, 1, 0, 2, 2, 0, 4, 1, 4])  # 0 is padding; graph 2 (number 3) is empty
    head = PooledHead(pool, 4, 3, 0.0, "float32", rngs=nnx.Rngs(0))
    size_g = np.bincount(graph_n, minlength=5)[1:].astype(np.float32)
    asked = Membership(jnp.asarray(graph_n), jnp.asarray(size_g))
    found = head(jnp.asarray(x_nf), Inputs(jnp.asarray(x_nf), asked=asked))
    rows = []
    for number in range(1, 5):
        own = x_nf[graph_n == number].astype(np.float64)
        if not len(own):
            rows.append(np.zeros(4))
        elif pool == "attention":
            logit = own @ np.asarray(head.score.kernel[...], np.float64)[:, 0]
            weight = np.exp(logit - logit.max())
            rows.append(weight @ own / weight.sum())
        else:
            rows.append(getattr(own, pool)(axis=0))
    linear = head.head.linear
    wanted = np.stack(rows) @ np.asarray(linear.kernel[...]) + np.asarray(linear.bias[...])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_parts_have_whole_graphs_and_no_edge_between_them(parts):
    graph = many_graphs()
    partition = partition_graph(graph, parts)
    owners = [np.unique(partition.owner_n[graph.graphs.ids_n == g]) for g in range(30)]
    assert all(len(owner) == 1 for owner in owners)
    assert partition.cut(graph).cut == 0
    work_p = np.bincount(partition.owner_n, minlength=parts) + np.bincount(
        partition.owner_n[graph.receivers_e], minlength=parts
    )
    assert work_p.max() - work_p.min() <= 30  # less than the largest graph


def test_whole_graphs_are_dealt_out_of_many_only():
    with pytest.raises(UserError, match="is one graph"):
        partition_graph(one_graph(), 2, "graphs")


def test_a_batch_of_all_training_graphs_is_the_whole(tmp_path):
    quiet = dataclasses.replace(config_of("auto"), model=SAGEConfig(hidden=8, dropout=0.0))
    losses = {}
    for batching in ("full", "graphs"):
        size = 10 if batching == "graphs" else None
        batches = BatchesConfig(batching=batching, batch_size=size)
        config = dataclasses.replace(quiet, out=tmp_path / batching, batches=batches)
        losses[batching] = fit(many_graphs(), config=config, show_progress=False)["losses"]
    np.testing.assert_allclose(losses["graphs"], losses["full"], rtol=2e-5)


def test_batches_of_graphs_learn(tmp_path):
    batches = BatchesConfig(batching="graphs", batch_size=4)
    config = dataclasses.replace(
        config_of("auto", 4), out=tmp_path / "run", steps=40, eval_every=20, batches=batches
    )
    result = fit(many_graphs(), config=config, show_progress=False)
    assert result["batching"] == "graphs"
    assert result["val_accuracy"] > 0.8
    rows = RunFolder.open(result.folder)[0].metrics()
    assert rows[5]["epoch"] == pytest.approx(5 * 4 / 10)


def test_a_batch_is_a_function_of_the_seed_and_the_step():
    from gtjax.batching.source import Source
    from gtjax.batching.store import make_batches
    from gtjax.runs.program import Program

    graph = many_graphs()
    batches = BatchesConfig(batching="graphs", batch_size=4)
    config = dataclasses.replace(config_of("graph"), batches=batches)
    program = Program(config, graph, config.task_of(graph))
    made = [make_batches(Source(graph), program.settings, program.spread) for _ in range(2)]
    forth = [np.asarray(made[0].at(step).inputs.x_nf) for step in range(5)]
    back = [np.asarray(made[1].at(step).inputs.x_nf) for step in reversed(range(5))][::-1]
    for one, other in zip(forth, back, strict=True):
        np.testing.assert_array_equal(one, other)
    train = set(np.flatnonzero(graph.graphs.split_g["train"]))
    for epoch in range(3):
        seen = [g for step in (2 * epoch, 2 * epoch + 1) for g in made[0]._draw(step)]
        assert len(set(seen)) == 8
        assert set(seen) <= train


def test_one_graph_alone_can_be_predicted_of(tmp_path):
    graph = many_graphs()
    config = dataclasses.replace(config_of("graph"), out=tmp_path / "run", steps=2)
    folder, read = RunFolder.open(fit(graph, config=config, show_progress=False).folder)
    every = TrainedRun(folder, read).predict(graph)
    assert every.answers_nc.shape == (30, 2)
    ids_n = graph.graphs.ids_n
    edges_e = np.flatnonzero(ids_n[graph.senders_e] == 7)
    first = int(np.flatnonzero(ids_n == 7)[0])
    alone = dataclasses.replace(
        graph,
        senders_e=graph.senders_e[edges_e] - first,
        receivers_e=graph.receivers_e[edges_e] - first,
        x_nf=graph.x_nf[ids_n == 7],
        labels_n=graph.labels_n[ids_n == 7],
        graphs=None,
    )
    np.testing.assert_allclose(
        TrainedRun(folder, read).predict(alone).answers_nc[0], every.answers_nc[7], rtol=1e-4
    )


def test_what_does_not_fit_says_what_would():
    with pytest.raises(UserError, match=r"one\. Join yours with gtjax\.many_graphs"):
        GraphClassification.of(one_graph())
    with pytest.raises(UserError, match="use --task graph"):
        config_of("node").task_of(many_graphs())
    with pytest.raises(UserError, match=r"are real numbers\. Use --task graph_regression"):
        config_of("graph").task_of(many_graphs(real=True))
    bare = dataclasses.replace(one_graph(), labels_n=np.full(151, -1), split_n={})
    with pytest.raises(UserError, match=r"no labels, so --task has to say.*--task link"):
        config_of("auto").task_of(bare)
    with pytest.raises(UserError, match="is validated by mae, rmse, r2"):
        dataclasses.replace(config_of("auto"), metric="accuracy").task_of(many_graphs(real=True))
