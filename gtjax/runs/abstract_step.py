"""A run's training step on shapes alone: what the planner traces, before there is a mesh."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gtjax.batching.sparse import count_values, keeps_sparse, readable, sparse_forms
from gtjax.core.errors import UserError
from gtjax.graph import Graph, Table
from gtjax.nn import Inputs
from gtjax.nn.config import setting_of
from gtjax.nn.streams import Streams
from gtjax.planner import Work, trace_step
from gtjax.planner.traced_rows import traced_rows, traced_times
from gtjax.recipes.base import Pass
from gtjax.recipes.recipes import recipes_of
from gtjax.runs.config import TrainConfig
from gtjax.runs.makers import Makers
from gtjax.runs.optimiser import make_optimiser

STEP = 1  # any: a step's shapes do not depend on it


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A graph of which only numbers are known."""

    nodes: int
    edges: int  # that messages flow along, each direction counted
    features: int = 128
    classes: int = 40
    edge_features: int = 0
    cut: float | None = None  # share of edges between parts, in as many parts as devices

    def __post_init__(self) -> None:
        for name in ("nodes", "edges"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is at least 1; found {getattr(self, name)}")
        if self.cut is not None and not 0 <= self.cut <= 1:
            raise UserError(f"--cut is a share of the edges in 0..1; found {self.cut}")

    def stand_in(self) -> Graph:
        """A few nodes with features and labels of these widths, every class in every split."""
        nodes = 3 * max(2, self.classes)
        third_n = np.arange(nodes) % 3
        edge_x_ef = np.zeros((1, self.edge_features), np.float32) if self.edge_features else None
        return Graph(
            np.zeros(1, np.int64),
            np.ones(1, np.int64),
            np.zeros((nodes, self.features), np.float32),
            np.arange(nodes) // 3 % max(1, self.classes),
            edge_x_ef=edge_x_ef,
            split_n={"train": third_n == 0, "val": third_n == 1, "test": third_n == 2},
        )


def work_of(config: TrainConfig, graph: Graph | Sizes, platform: str = "cpu") -> Work:
    """What a step of this config on such a graph does and holds."""
    known = config.prepared(graph.stand_in() if isinstance(graph, Sizes) else graph)
    task = config.task_of(known)
    makers = Makers(config, known, task)

    def new_model() -> nnx.Dict:
        rngs = Streams(config.seed)
        return nnx.Dict(encoder=makers.encoder(rngs), head=makers.head(rngs))

    graphdef, params = nnx.split(nnx.eval_shape(new_model), nnx.Param)
    recipes = recipes_of(config.recipe)
    optimiser = make_optimiser(config.optim, config.steps)

    def state(drawn: Any) -> Any:
        return drawn, optimiser.init(drawn), drawn if config.optim.average else None

    def loss(params: Any, given: Any, neighbours: Any) -> jax.Array:
        seen, known = given
        seen = seen._replace(degree_n=neighbours.degree_n)
        model = nnx.merge(graphdef, params)

        def run(key: jax.Array, number: int) -> Pass:
            del number
            inputs, targets = task.training(seen, known, key)
            inputs = readable(inputs, traced_times).live(key)
            outputs = model.head(model.encoder(inputs, neighbours), inputs)
            return Pass(outputs, targets, task.loss(outputs, targets, None))

        key = jax.random.fold_in(jax.random.key(config.seed), STEP)
        return recipes.loss(run, seen, known, key)

    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(state, params)))
    able = makers.reads_sparse and not recipes.reads_features
    settings = config.batching((), task)
    forms = sparse_forms(settings, config.kernel, platform, reads_sparse=able)
    sparse = forms is not None and keeps_sparse(known.x_nf, config.prepare)
    inputs_of = _inputs_of(config, known, task, sparse=sparse)
    return trace_step(loss, params, inputs_of, state_bytes=float(size), platform=platform)


def _inputs_of(config: TrainConfig, graph: Graph, task: Any, *, sparse: bool) -> Any:
    """Shapes of what a batch has of so many nodes and edges."""
    targets = task.targets(graph)
    values = max(1, round(count_values(graph.x_nf) / graph.num_nodes)) if sparse else 0
    positions = setting_of(config.model, "positional") != "none"
    width = setting_of(config.model, "positional_size")

    def rows(count: int, array: np.ndarray) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        return jax.ShapeDtypeStruct((count, *array.shape[1:]), dtype)

    def target(nodes: int, known: np.ndarray | Table) -> Any:
        """Pairs and the like are shared out as nodes are, in proportion."""
        if not isinstance(known, Table):
            return rows(nodes, known)
        count = len(known.values)
        return rows(-(-count * nodes // graph.num_nodes) if known.spread else count, known.values)

    def inputs_of(nodes: int, edges: int) -> tuple[Inputs, dict[str, Any]]:
        def numbers(dtype: Any, *shape: int) -> Any:
            return jax.ShapeDtypeStruct((nodes, *shape), dtype)

        def features() -> Any:
            if not sparse:
                return rows(nodes, graph.x_nf)
            return traced_rows(nodes, graph.num_features, values)

        inputs = Inputs(
            x_nf=features(),
            positional_np=numbers(jnp.float32, width) if positions else None,
            edge_x_ef=None if graph.edge_x_ef is None else rows(edges, graph.edge_x_ef),
            valid_n=numbers(jnp.bool_),
            node_ids_n=numbers(jnp.uint32),
        )
        return inputs, {name: target(nodes, known) for name, known in targets.items()}

    return inputs_of
