"""What is tried on a graph follows from its traits, and every choice makes a config."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gtjax
from gtjax.core.errors import UserError
from gtjax.runs.config import TrainConfig, read_config
from gtjax.tasks.scores import roc_auc
from gtjax.tuning.baselines import baselines, scored
from gtjax.tuning.config import TuneConfig, seconds_of
from gtjax.tuning.hidden_labels import without_test
from gtjax.tuning.space import as_suggested, choices, config_of, families, recipes
from gtjax.tuning.toml_file import write_config
from gtjax.tuning.traits import Traits

FEW = Traits(2708, 5278, 1433, 7, 0.05, 0.8, words=True)
MANY = dataclasses.replace(FEW, labelled=0.6, words=False)
ODD = dataclasses.replace(FEW, labelled=0.5, homophily=0.01, words=False)
HUGE = dataclasses.replace(MANY, nodes=10**6, edges=10**7)
TYPED = dataclasses.replace(MANY, edge_features=18)
REAL = dataclasses.replace(FEW, classes=0, homophily=None)


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=211,seed=3")


@pytest.mark.parametrize("traits", [FEW, MANY, ODD, HUGE, TYPED, REAL])
def test_every_choice_makes_a_config(traits):
    models = families(traits)
    assert models
    for model in models:
        able = choices(model, traits)
        for name, values in able.items():
            first = {key: each[0] for key, each in able.items()}
            for value in values:
                config_of({"model": model, **first, name: value}, TrainConfig())


@pytest.mark.parametrize("traits", [FEW, MANY, ODD, REAL])
def test_recipes_are_within_the_space_and_suit_the_graph(traits):
    found = dict(recipes(traits, families(traits)))
    assert found
    for params in found.values():
        able = choices(params["model"], traits)
        assert set(params) == {"model", *able}
        assert all(params[name] in values for name, values in able.items())
        assert len(as_suggested(params)) == len(params)
    assert ("GRAND" in found) == (traits is FEW)
    assert ("tuned GCN, deep" in found) == (traits is ODD)


def test_traits_are_measured_on_training_labels_alone(graph):
    traits = Traits.of(graph)
    others_n = ~graph.split_n["train"]
    labels_n = np.where(others_n, 0, graph.labels_n)
    same = Traits.of(dataclasses.replace(graph, labels_n=labels_n, names=gtjax.Names()))
    assert same.homophily == traits.homophily
    assert same.labelled == traits.labelled


def test_homophily_tells_alike_from_unlike():
    rng = np.random.default_rng(0)
    labels_n = rng.integers(0, 3, 600)
    ends = rng.integers(0, 600, (2, 20_000))
    alike_e = labels_n[ends[0]] == labels_n[ends[1]]
    for kept_e, low, high in ((alike_e, 0.99, 1.01), (~alike_e, -0.6, -0.4), (None, -0.1, 0.1)):
        edges = ends if kept_e is None else ends[:, kept_e]
        graph = gtjax.from_edges(edges, x_nf=np.ones((600, 2)), labels_n=labels_n)
        homophily = Traits.of(graph.with_random_splits()).homophily
        assert homophily is not None
        assert low < homophily < high


def test_trials_cannot_see_test_labels(graph):
    hidden, test_n = without_test(graph), graph.split_n["test"]
    assert "test" not in hidden.split_n
    assert (hidden.labels_n[test_n] == -1).all()
    assert hidden.num_classes == graph.num_classes
    train_n = graph.split_n["train"]
    assert (hidden.labels_n[train_n] == graph.labels_n[train_n]).all()
    only_test = np.array(graph.labels_n)
    only_test[np.flatnonzero(test_n)[0]] = graph.num_classes  # a class that nobody else has
    rare = without_test(dataclasses.replace(graph, labels_n=only_test))
    assert rare.num_classes == graph.num_classes + 1


def test_baselines_are_better_than_chance_and_scored_as_tasks_are(graph):
    found = baselines(without_test(graph), "accuracy", seconds=5)
    assert [each.name.split()[0] for each in found] == ["label", "linear"]
    chance = np.bincount(graph.labels_n).max() / graph.num_nodes
    for each in found:
        test = scored(each.scores_nc, graph.labels_n, graph.split_n["test"], "accuracy")
        assert test > chance + 0.1, each.name
    rng = np.random.default_rng(1)
    scores_nc, labels_n = rng.integers(0, 5, (50, 2)).astype(np.float32), rng.integers(-1, 2, 50)
    mask_n = rng.random(50) < 0.8
    expected = roc_auc(scores_nc[:, 1] - scores_nc[:, 0], labels_n == 1, mask_n & (labels_n >= 0))
    assert scored(scores_nc, labels_n, mask_n, "roc_auc") == pytest.approx(float(expected))


def test_budgets_are_times():
    assert [seconds_of(each) for each in ("90s", "30m", "1.5h")] == [90, 1800, 5400]
    with pytest.raises(UserError, match="such as 90s, 30m or 2h; found 'soon'"):
        TuneConfig(budget="soon")


def test_a_written_config_reads_back(tmp_path):
    params = dict(recipes(FEW, families(FEW)))["GRAND"]
    config = config_of(params, TrainConfig(data="some graph", steps=7, seeds=3))
    write_config(tmp_path / "best.toml", config, "two\nlines")
    assert read_config(tmp_path / "best.toml") == config


def test_a_model_that_is_not_known_is_named():
    with pytest.raises(UserError, match="--models: unknown model 'gnc'"):
        families(FEW, "gnc")
