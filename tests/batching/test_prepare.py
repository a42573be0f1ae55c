"""From the graph on the host to the batch: scaling, edges, labels and masks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gtjax.batching.config import PrepareConfig
from gtjax.batching.features import Scaling
from gtjax.batching.prepare import Batch, in_graph_order, make_batch, node_order, prepare_graph
from gtjax.datasets import load
from gtjax.graph import Graph
from gtjax.nn import TransformerConfig
from gtjax.runs.loop import fit
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from tests.runs.small_run import MODEL, small_config


def batch_of(graph: Graph, **changes) -> Batch:
    config = small_config(**changes)
    program = Program(config, graph, config.task_of(graph))
    return make_batch(graph, program.settings, program.spread)


def scaled(x_nf, how):
    return Scaling.of(x_nf, how)(x_nf)


def test_rows_are_scaled_to_sum_one_and_empty_rows_stay_empty():
    got = scaled(np.array([[1.0, 3.0], [0.0, 0.0], [-1.0, 1.0]]), "row")
    np.testing.assert_allclose(got, [[0.25, 0.75], [0, 0], [-0.5, 0.5]])


def test_columns_are_standardised_and_constant_columns_become_zero(rng):
    x = np.stack([rng.normal(5e4, 0.5, 1000), np.full(1000, 7.0)], axis=1)
    got = scaled(x.astype(np.float32), "standard")
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.mean(axis=0), [0, 0], atol=1e-3)
    np.testing.assert_allclose(got.std(axis=0), [1, 0], atol=1e-3)


def test_auto_scales_rows_of_bags_of_words_and_columns_of_all_else(rng):
    words = (rng.random((50, 20)) < 0.1).astype(np.float32)
    np.testing.assert_array_equal(scaled(words, "auto"), scaled(words, "row"))
    for other in (rng.normal(0, 1, (50, 20)), -words, np.ones((3, 2)) - np.eye(3, 2)):
        np.testing.assert_array_equal(scaled(other, "auto"), scaled(other, "standard"))


def test_features_are_left_alone_on_request_and_if_there_are_none(rng):
    x = rng.normal(0, 1, (4, 3))
    assert scaled(x, "none") is x
    for how in ("auto", "row", "standard"):
        assert scaled(np.zeros((4, 0)), how).shape == (4, 0)


def test_edges_are_symmetrised_and_looped_as_asked():
    graph = Graph([0, 1], [1, 2], np.zeros((3, 1)), [0, 1, 0])
    pairs = {
        (both, loops): sorted(
            zip(*map(np.ndarray.tolist, (made.senders_e, made.receivers_e)), strict=True)
        )
        for both in (False, True)
        for loops in (False, True)
        for made in [prepare_graph(graph, PrepareConfig(symmetrise=both, self_loops=loops))]
    }
    loops = [(0, 0), (1, 1), (2, 2)]
    assert pairs[False, False] == [(0, 1), (1, 2)]
    assert pairs[True, False] == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert pairs[False, True] == sorted([(0, 1), (1, 2), *loops])
    assert pairs[True, True] == sorted([(0, 1), (1, 0), (1, 2), (2, 1), *loops])


@pytest.mark.parametrize("positional", ["none", "random_walk"])
def test_a_batch_holds_the_labels_masks_and_positions_of_the_graph(graph, positional):
    model = TransformerConfig(positional=positional, positional_size=5)
    batch = batch_of(graph, model=model)
    n = graph.num_nodes
    np.testing.assert_array_equal(batch.targets["labels"][:n], graph.labels_n)
    assert set(batch.targets) == {"labels", "train", "val", "test"}
    for name, mask in ((name, batch.targets[name]) for name in graph.split_n):
        np.testing.assert_array_equal(mask[:n], graph.split_n[name])
    if positional == "none":
        assert batch.inputs.positional_np is None
    else:
        assert batch.inputs.positional_np is not None
        assert batch.inputs.positional_np.shape[1] == 5


def test_a_split_that_the_graph_lacks_counts_nobody(graph):
    masks = {name: graph.split_n[name] for name in ("train", "val")}
    batch = batch_of(graph.with_splits(**masks))
    assert not batch.targets["test"].any()
    assert batch.targets["train"].any()


@pytest.mark.slow
def test_reordering_changes_nothing_that_the_user_sees(graph, tmp_path):
    results = {}
    for reorder in ("always", "never"):
        config = small_config(
            tmp_path / reorder,
            prepare=PrepareConfig(reorder=reorder),
            model=dataclasses.replace(MODEL, positional="random_walk", attention_dropout=0.2),
        )
        run = fit(graph, config=config)
        results[reorder] = TrainedRun(*RunFolder.open(run.folder)).predict(graph)
    moved = batch_of(graph, prepare=PrepareConfig(reorder="always"))
    assert not np.array_equal(moved.targets["labels"], graph.labels_n)  # or nothing was tested
    np.testing.assert_array_equal(
        in_graph_order(moved, np.asarray(moved.targets["labels"])), graph.labels_n
    )
    np.testing.assert_allclose(results["always"].answers_nc, results["never"].answers_nc, atol=1e-4)


def test_a_graph_that_fits_the_cache_keeps_its_order(graph):
    batch = batch_of(graph)
    np.testing.assert_array_equal(batch.inputs.node_ids_n, np.arange(graph.num_nodes))


def test_only_an_order_that_is_better_replaces_the_graphs_own(monkeypatch):
    monkeypatch.setattr("gtjax.batching.prepare.CACHE_BYTES", 0)
    grid = load("grid:rows=50,columns=60")
    assert node_order(grid, PrepareConfig(), MODEL.hidden) is None
    shuffled = grid.reordered(np.random.default_rng(0).permutation(grid.num_nodes))
    assert node_order(shuffled, PrepareConfig(), MODEL.hidden) is not None
