"""Link prediction: nothing that is asked for is shown, and negatives are what they should be."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import from_edges, hold_out_links
from gtjax.tasks.link import LinkPrediction
from tests.tasks.asked import Steps, config_of, one_graph


def keys(pairs, both=True):
    pairs = np.asarray(pairs)
    pairs = np.sort(pairs, axis=1) if both else pairs
    return set(map(tuple, pairs.tolist()))


def edges_of(graph):
    return np.stack([graph.senders_e, graph.receivers_e], axis=1)


@pytest.mark.parametrize("directed", [False, True])
def test_held_out_edges_are_no_messages_in_either_direction(directed):
    whole = one_graph()
    graph = hold_out_links(whole, val=0.1, test=0.2, directed=directed, seed=3)
    links, both = graph.links, not directed
    every = keys(edges_of(whole), both) - {(n, n) for n in range(whole.num_nodes)}
    parts = [keys(getattr(links, name), both) for name in ("train", "val", "test")]
    assert set.union(*parts) == every
    assert sum(map(len, parts)) == len(every)
    assert [len(part) for part in parts[1:]] == [round(s * len(every)) for s in (0.1, 0.2)]
    messages = keys(edges_of(graph), both)
    assert not messages & (parts[1] | parts[2])
    assert parts[0] <= messages
    negatives = keys(links.val_negative, both) | keys(links.test_negative, both)
    assert len(negatives) == len(parts[1]) + len(parts[2])
    assert not negatives & every
    assert all(u != v for u, v in negatives)
    again = hold_out_links(whole, val=0.1, test=0.2, directed=directed, seed=3)
    other = hold_out_links(whole, val=0.1, test=0.2, directed=directed, seed=4)
    assert graph.fingerprint == again.fingerprint != other.fingerprint


def test_self_loops_multi_edges_and_edge_features_survive():
    pairs = [(0, 0), (0, 1), (0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 5)]
    graph = from_edges(pairs, num_nodes=9, edge_x_ef=np.arange(8.0)[:, None])
    held = hold_out_links(graph, val=0.2, test=0.2)
    kept = {int(x): pair for x, pair in zip(held.edge_x_ef[:, 0], edges_of(held), strict=True)}
    assert 0 in kept
    assert all(tuple(pair) == pairs[number] for number, pair in kept.items())
    assert len({n in kept for n in (1, 2, 3)}) == 1  # the three between 0 and 1 go together


@pytest.mark.parametrize(
    ("graph", "shares", "text"),
    [
        (from_edges([(0, 1), (1, 2)], num_nodes=4), {}, "at least 3 pairs .* has 2"),
        (from_edges([(0, 0)] * 5), {}, "has 0"),
        (one_graph(), {"val": 0.5, "test": 0.5}, "below 1 together"),
        (one_graph(), {"val": 0.0}, "above 0"),
        (from_edges([(0, 1), (0, 2), (1, 2)]), {}, "too dense"),
    ],
)
def test_what_cannot_be_held_out_is_refused(graph, shares, text):
    with pytest.raises(UserError, match=text):
        hold_out_links(graph, **shares)


@pytest.fixture(scope="module")
def drawn():
    """Training pairs and negatives of a step, as node numbers, and the training edges."""
    options = {"true_negatives": True, "negatives": 3}
    graph = config_of("link", **options).prepared(one_graph())
    task = config_of("link", **options).task_of(graph)
    targets = {name: jnp.asarray(table.values) for name, table in task.targets(graph).items()}
    pairs = [task._train_pairs(targets, jnp.uint32(seed)) for seed in range(20)]
    return pairs, graph


def test_negatives_keep_an_end_of_their_edge_and_are_no_training_edges(drawn):
    pairs, graph = drawn
    train, wrong, count = keys(graph.links.train), 0, 0
    for step in pairs:
        np.testing.assert_array_equal(step["train"], graph.links.train)
        edges, negatives = (
            np.repeat(graph.links.train, 3, axis=0),
            np.asarray(step["train_negative"]),
        )
        assert (negatives[:, :1] == edges).any(axis=1).all()
        wrong += sum(tuple(sorted(pair)) in train for pair in negatives.tolist())
        count += len(negatives)
    assert wrong < 1e-3 * count  # the last of four draws is taken as it is
    both = [step["train_negative"] for step in pairs[:2]]
    assert (both[0] != both[1]).any()


def test_the_validation_loss_is_that_of_held_out_edges_and_their_negatives():
    task = LinkPrediction(negatives=3)
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=5).astype(np.float32) for name in ("val", "val_negative")}
    pairs = {name: np.tile([[0, 1]], (5, 1)) for name in scores}
    pairs["val"][3:], pairs["val_negative"][4:] = -1, -1  # padding
    wanted = np.mean(np.log1p(np.exp(-scores["val"][:3])))
    wanted += np.mean(np.log1p(np.exp(scores["val_negative"][:4])))
    assert task.validation_loss(scores, pairs) == pytest.approx(wanted / 2, rel=1e-5)


def test_drawn_nodes_are_uniform(drawn):
    pairs, graph = drawn
    nodes = np.concatenate([np.asarray(step["train_negative"])[:, 1] for step in pairs])
    counts = np.bincount(nodes, minlength=graph.num_nodes)
    mean = len(nodes) / graph.num_nodes
    # Nodes of many edges are drawn again somewhat more often; otherwise a Poisson count.
    assert abs(counts / mean - 1).max() < 6 / np.sqrt(mean) + 0.25


def test_held_out_pairs_that_were_shuffled_are_found_by_chance():
    config = dataclasses.replace(config_of("link"), steps=40)
    graph = config.prepared(one_graph())
    rng = np.random.default_rng(0)

    def shuffled(name, pairs):
        if name not in ("val", "test"):
            return pairs
        return rng.integers(0, graph.num_nodes, (4000, 2))

    mixed = dataclasses.replace(graph, links=graph.links.changed(shuffled))
    real, chance = Steps(graph, config).metrics, Steps(mixed, config).metrics
    assert real["val_roc_auc"] > 0.6
    assert real["train_roc_auc"] > 0.7
    negatives = len(graph.links.test_negative)
    assert abs(chance["test_roc_auc"] - 0.5) < 4 / np.sqrt(12 * negatives)


@pytest.mark.parametrize("decoder", ["dot", "bilinear", "mlp"])
@pytest.mark.parametrize("directed", [False, True])
def test_direction_counts_only_where_it_means_something(decoder, directed):
    from flax import nnx

    from gtjax.nn import Inputs

    task = LinkPrediction(decoder=decoder, directed=directed)
    head = task.head(6, dropout=0.0, rngs=nnx.Rngs(0))
    x_nf = jax.random.normal(jax.random.key(0), (5, 6))
    pairs = jnp.array([[0, 1], [2, 4], [-1, -1]])
    inputs = Inputs(x_nf, asked={"one": pairs, "other": pairs[:, ::-1]})
    scores = head(x_nf, inputs)
    same = np.allclose(scores["one"], scores["other"], rtol=1e-5)
    assert same == (not directed or decoder == "dot")
