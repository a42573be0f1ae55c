"""Steps: the same whatever their grouping, harmless when not finite, blind to hidden labels."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.prepare import make_batch
from gtjax.runs.program import Program, find_not_finite
from tests.runs.small_run import MODEL, OPTIM, small_config

AVERAGE = 0.15


class Runner:
    """A program with its compiled step, and the batch it runs on."""

    def __init__(self, graph, config):
        self.program = Program(config, graph, config.task_of(graph))
        self.batch = make_batch(graph, self.program.settings, self.program.spread)
        self._advance = jax.jit(self.program.advance, static_argnums=3)

    def advance(self, state, count, batch=None):
        return self._advance(state, batch or self.batch, np.int32(count), 5)


@pytest.fixture(scope="module")
def runner(graph):
    return Runner(graph, small_config(optim=replace(OPTIM, average=AVERAGE)))


def with_labels(batch, labels_n):
    return batch._replace(targets={**batch.targets, "labels": labels_n})


def equal(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in leaves)


def test_the_grouping_of_steps_changes_no_bit(runner):
    ends = []
    for groups in ((5,), (2, 3), (1, 1, 1, 1, 1)):
        state, losses = runner.program.initial_state(), []
        for count in groups:
            state, some = runner.advance(state, count)
            assert np.isnan(some[count:]).all()
            losses += np.asarray(some)[:count].tolist()
        assert np.isfinite(losses).all()
        assert int(state.step) == 5
        ends.append((state, np.array(losses)))
    assert equal(ends[0], ends[1])
    assert equal(ends[0], ends[2])


def test_steps_change_the_state_and_differ_from_each_other(runner):
    start = runner.program.initial_state()
    state, losses = runner.advance(start, 5)
    assert not equal(start.params, state.params)
    assert len(set(np.asarray(losses).tolist())) == 5
    assert bool(state.healthy)


def test_the_seed_decides_the_parameters_and_the_dropout(graph, runner):
    config = runner.program.config
    again = Program(config, graph, runner.program.task)
    other = Program(replace(config, seed=1), graph, runner.program.task)
    params = runner.program.initial_state().params
    assert equal(params, again.initial_state().params)
    assert not equal(params, other.initial_state().params)
    losses = [p.loss(params, runner.batch, jnp.int32(0)) for p in (runner.program, again, other)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_the_average_follows_the_parameters_quickly_at_first(runner):
    state = runner.program.initial_state()
    want = state.params
    for step in range(3):
        state, _ = runner.advance(state, 1)
        decay = min(AVERAGE, (1 + step) / (10 + step))
        want = jax.tree.map(lambda a, p, d=decay: d * a + (1 - d) * p, want, state.params)
    assert 1 / 10 < AVERAGE < 2 / 11  # both branches of the minimum were taken
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
                 state.average, want)  # fmt: skip
    assert not equal(state.average, state.params)


def test_a_step_that_is_not_finite_changes_nothing_but_the_verdict(runner):
    before, _ = runner.advance(runner.program.initial_state(), 2)
    node = int(np.flatnonzero(runner.batch.targets["train"])[0])
    inputs = runner.batch.inputs._replace(x_nf=runner.batch.inputs.x_nf.at[node, 0].set(jnp.nan))
    after, losses = runner.advance(before, 3, runner.batch._replace(inputs=inputs))
    assert not np.isfinite(losses[0])
    assert not bool(after.healthy)
    assert equal(after._replace(healthy=before.healthy), before)
    still, _ = runner.advance(after, 2)  # what is broken stays so until someone looks
    assert equal(still, after)


def test_no_training_node_sees_its_own_label_when_it_is_predicted(graph):
    config = small_config(model=replace(MODEL, label_input=True))
    program = Program(config, graph, config.task_of(graph))
    batch = make_batch(graph, program.settings, program.spread)
    params = program.initial_state().params
    predict = jax.jit(lambda batch: program.predict(params, batch)[0].outputs)
    before = np.asarray(predict(batch))
    others_changed = 0
    for node in np.flatnonzero(graph.split_n["train"])[:8]:
        label = (int(batch.targets["labels"][node]) + 1) % 4
        after = np.asarray(predict(with_labels(batch, batch.targets["labels"].at[node].set(label))))
        np.testing.assert_array_equal(after[node], before[node])
        others_changed += (after != before).any(axis=1).sum()
    assert others_changed > 0  # the labels do reach the neighbours


def test_labels_of_validation_and_test_nodes_reach_nobody(graph):
    config = small_config(model=replace(MODEL, label_input=True))
    program = Program(config, graph, config.task_of(graph))
    batch = make_batch(graph, program.settings, program.spread)
    params = program.initial_state().params
    outputs, _ = program.predict(params, batch)
    changed = jnp.where(
        batch.targets["train"], batch.targets["labels"], (batch.targets["labels"] + 1) % 4
    )
    again, _ = program.predict(params, with_labels(batch, changed))
    np.testing.assert_array_equal(outputs.outputs, again.outputs)


def not_finite(loss, **params):
    state = SimpleNamespace(params=jax.tree.map(jnp.asarray, params), step=jnp.int32(3))
    return find_not_finite(SimpleNamespace(loss=loss), state, None)  # type: ignore[arg-type]


def test_what_is_not_finite_is_named():
    def loss(params, batch, step, watch):
        watch("input", params["a"]["w"])
        watch("blocks.0.attention", jnp.log(params["a"]["w"]))
        watch("output", jnp.log(params["a"]["w"]) * 2)
        return jnp.sqrt(params["b"]) + params["a"]["w"]

    assert not_finite(loss, a={"w": np.inf}, b=1.0) == "parameter a.w"
    assert not_finite(loss, a={"w": 0.0}, b=1.0) == "activation blocks.0.attention"
    assert not_finite(loss, a={"w": 1.0}, b=-1.0) == "the loss"
    assert not_finite(loss, a={"w": 1.0}, b=0.0) == "gradient of parameter b"
    huge = lambda params, batch, step, watch: (params["b"] * 3e38).sum()  # noqa: E731
    assert not_finite(huge, b=np.zeros(9, np.float32)) == "the norm of the gradient"
