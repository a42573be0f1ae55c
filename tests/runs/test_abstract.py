"""A step can be compiled before there is data on the devices: shapes alone are enough."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.prepare import abstract_batch, place_batch, prepare, whole_layout
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from tests.runs.small_run import OPTIM, small_config

STRATEGIES = [
    ("single", 1),
    ("node_all_gather", 3),
    ("node_halo", 4),
    ("node_ring", 4),
    ("feature_all_to_all", 2),
    ("node_by_feature", 4),
]


def program_and_batches(graph: Graph, config, devices=None):
    program = Program(config, graph, config.task_of(graph), devices)
    spread = program.spread
    host = prepare(graph, program.settings)
    layout, _ = whole_layout(host, program.settings, spread)
    arguments = (host, layout, spread)
    return program, place_batch(*arguments), abstract_batch(*arguments)


def description(x):
    return x.shape, x.dtype, x.sharding, x.weak_type


def with_edge_features(graph: Graph) -> Graph:
    edge_x_ef = np.linspace(-1, 1, 3 * graph.num_edges).reshape(graph.num_edges, 3)
    return replace(graph, edge_x_ef=edge_x_ef.astype(np.float32))


@pytest.mark.parametrize(("strategy", "devices"), STRATEGIES)
@pytest.mark.quick_every(6)
def test_shapes_types_and_places_are_those_of_the_real_thing(graph, strategy, devices):
    parallel = ParallelConfig(strategy=strategy, devices=devices)
    config = small_config(parallel=parallel, optim=replace(OPTIM, average=0.5))
    program, placed, abstract = program_and_batches(with_edge_features(graph), config)
    assert jax.tree.structure(placed) == jax.tree.structure(abstract)
    assert jax.tree.map(description, placed) == jax.tree.map(description, abstract)
    state = program.initial_state()
    assert jax.tree.map(description, state) == jax.tree.map(description, program.abstract_state())


def test_a_step_compiled_from_shapes_runs_on_arrays(graph):
    config = small_config(parallel=ParallelConfig(strategy="node_halo", devices=4))
    program, placed, abstract = program_and_batches(graph, config)
    start, results = program.initial_state(), []
    for state, batch in ((program.abstract_state(), abstract), (program.initial_state(), placed)):
        run = program.compiled(state, batch, 2)
        # The step overwrites its state, so each is given one of its own.
        results.append(run(jax.tree.map(jnp.copy, start), placed, np.int32(2)))
    assert np.isfinite(results[0][1]).all()
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(a, b)


def test_devices_may_be_given(graph):
    config = small_config(parallel=ParallelConfig(strategy="node_halo"))
    given = jax.devices()[2:5]
    program, placed, _ = program_and_batches(graph, config, given)
    assert str(program.spread.shape) == "node=3,feature=1"
    assert placed.targets["labels"].sharding.device_set == set(given)
    assert program.spread.platform == "cpu"
    config = small_config(parallel=ParallelConfig(strategy="node_halo", devices=4))
    with pytest.raises(UserError, match="4 devices are asked for, and 3 are given"):
        Program(config, graph, config.task_of(graph), given)
