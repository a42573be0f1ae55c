"""A batch that was stored comes back as `place_batch` gives it, without the graph."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.prepare import open_batch, place_batch, prepare, store_batch, whole_layout
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn import DecoupledConfig, TransformerConfig
from gtjax.partition import partition_graph
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import Spread, make_mesh
from gtjax.sharding.stored import open_store
from gtjax.strategies import STRATEGIES, MeshShape, number_nodes
from gtjax.strategies.node_halo import NodeHalo
from pallas_kernels.edges import EDGE_FORMS
from tests.runs.small_run import MODEL, small_config
from tests.sharding.test_stored import all_files, assert_as_placed

MESHES = {
    "single": "node=1",
    "node_all_gather": "node=3",
    "node_halo": "node=4",
    "node_ring": "node=4",
    "feature_all_to_all": "feature=2",
    "node_by_feature": "node=2,feature=2",
}
CASES = [(name, "") for name in MESHES] + [("node_by_feature", "node_ring")]
CASES += [("node_by_feature", "node_all_gather")]


def with_edge_features(graph: Graph) -> Graph:
    edge_x_ef = np.linspace(-1, 1, 3 * graph.num_edges).reshape(graph.num_edges, 3)
    return replace(graph, edge_x_ef=edge_x_ef.astype(np.float32))


def laid_out(graph: Graph, config: TrainConfig):
    """What `store_batch` and `place_batch` take, and the program that it is for."""
    program = Program(config, graph, config.task_of(graph))
    host = prepare(graph, program.settings)
    layout, _ = whole_layout(host, program.settings, program.spread)
    return program, (host, layout, program.spread)


def halo_config(**model):
    parallel = ParallelConfig(strategy="node_halo", devices=4)
    return small_config(parallel=parallel, model=replace(MODEL, **model))


def test_every_exact_strategy_is_here():
    assert set(MESHES) == set(STRATEGIES)


@pytest.mark.parametrize(
    ("edge_features", "positional", "architecture"),
    [(False, "none", "transformer"), (True, "random_walk", "decoupled")],
)
@pytest.mark.parametrize(("strategy", "inner"), CASES)
@pytest.mark.quick_every(6)
def test_a_stored_batch_is_the_placed_one(
    graph, tmp_path, strategy, inner, edge_features, positional, architecture
):
    graph = with_edge_features(graph) if edge_features else graph
    parallel = ParallelConfig(strategy=strategy, mesh=MESHES[strategy], inner=inner or "node_halo")
    kind = DecoupledConfig if architecture == "decoupled" else TransformerConfig
    sizes = {"hidden": MODEL.hidden, "layers": MODEL.layers, "heads": MODEL.heads}
    model = kind(**sizes, positional=positional, positional_size=3)
    program, arguments = laid_out(graph, small_config(parallel=parallel, model=model))
    store_batch(tmp_path / "batch", *arguments, about={"graph": graph.name})
    opened, placed = open_batch(tmp_path / "batch", program.spread), place_batch(*arguments)
    assert type(opened) is type(placed)
    assert_as_placed(opened, placed)
    assert (opened.inputs.edge_x_ef is not None) == edge_features
    assert (opened.inputs.positional_np is not None) == (positional != "none")
    assert open_store(tmp_path / "batch").about == {"graph": graph.name}
    if edge_features and positional != "none" and not inner:
        loss = jax.jit(program.loss)
        state = program.initial_state()
        losses = [float(loss(state.params, each, state.step)) for each in (placed, opened)]
        assert np.isfinite(losses[0])
        assert losses[0] == losses[1]
        assert loss._cache_size() == 1  # they are the same to the compiler too


@pytest.mark.parametrize("forms", [(), EDGE_FORMS])
@pytest.mark.parametrize(
    "strategy",
    [NodeHalo(), NodeHalo(exchange="ragged"), STRATEGIES["node_ring"], STRATEGIES["single"]],
    ids=lambda strategy: strategy.name,
)
def test_layouts_of_all_kernels_and_weights_come_back(graph, tmp_path, strategy, forms):
    spread = Spread(strategy, MeshShape(4), make_mesh(MeshShape(4)))
    host = prepare(graph, small_config().batching(forms, small_config().task_of(graph)))
    numbering = number_nodes(partition_graph(host.edges, 4, "random"))
    layout = strategy.layout(host.edges, numbering, numbering, spread.shape, forms=forms)
    weight_n = np.linspace(0, 1, graph.num_nodes).astype(np.float32)
    store_batch(tmp_path / "batch", host, layout, spread, weight_n, about={})
    opened = open_batch(tmp_path / "batch", spread)
    assert_as_placed(opened, place_batch(host, layout, spread, weight_n))
    assert opened.weight_n is not None


def test_a_step_learns_the_same_from_it(graph, tmp_path):
    program, arguments = laid_out(graph, halo_config())
    store_batch(tmp_path / "batch", *arguments, about={})
    placed, start = place_batch(*arguments), program.initial_state()
    run = program.compiled(start, placed, 2)
    results = [  # the step overwrites its state, so each is given one of its own
        run(jax.tree.map(jnp.copy, start), batch, np.int32(2))
        for batch in (placed, open_batch(tmp_path / "batch", program.spread))
    ]
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_batch_for_another_spread_is_refused(graph, tmp_path):
    parallel = ParallelConfig(strategy="node_all_gather", devices=4)
    program, arguments = laid_out(graph, small_config(parallel=parallel))
    store_batch(tmp_path / "batch", *arguments, about={})
    # Its tree would be the same, with senders by other numbers: nothing else would notice.
    other = replace(program.spread, strategy=STRATEGIES["single"])
    with pytest.raises(UserError, match=r"batch for node_all_gather; .* for single\. Remove"):
        open_batch(tmp_path / "batch", other)
    two = Spread(program.spread.strategy, MeshShape(2), make_mesh(MeshShape(2)))
    with pytest.raises(UserError, match="for a mesh of node=4,feature=1; this mesh is node=2"):
        open_batch(tmp_path / "batch", two)
    with pytest.raises(UserError, match="new folder"):
        store_batch(tmp_path / "batch", *arguments, about={})


def test_every_file_of_a_batch_is_needed_and_checked(graph, tmp_path):
    program, arguments = laid_out(graph, halo_config())
    store_batch(tmp_path / "batch", *arguments, about={})
    rng = np.random.default_rng(0)
    for path in rng.permutation(all_files(tmp_path / "batch"))[:12]:
        good = path.read_bytes()
        for bad in (good[: len(good) // 2], good[:-1] + bytes([good[-1] ^ 4]), None):
            path.unlink() if bad is None else path.write_bytes(bad)
            with pytest.raises(UserError, match=f"{path} .*Remove {tmp_path / 'batch'}: it is"):
                open_batch(tmp_path / "batch", program.spread)
        path.write_bytes(good)
    open_batch(tmp_path / "batch", program.spread)


def test_small_graphs_without_edges(tmp_path):
    nothing = np.zeros(0, np.int32)
    split_n = {"train": np.array([1, 0, 0], bool), "val": np.array([0, 1, 1], bool)}
    graph = Graph(nothing, nothing, np.eye(3, dtype=np.float32), np.array([0, 1, 1]), split_n)
    graph = with_edge_features(graph)
    for strategy in ("node_halo", "node_ring", "node_all_gather"):
        parallel = ParallelConfig(strategy=strategy, devices=8)
        config = TrainConfig(model=TransformerConfig(hidden=8, heads=2), parallel=parallel)
        program, arguments = laid_out(graph, config)
        store_batch(tmp_path / strategy, *arguments, about={})
        opened = open_batch(tmp_path / strategy, program.spread)
        assert_as_placed(opened, place_batch(*arguments))
