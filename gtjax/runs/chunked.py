"""A run's program over chunks of a graph: the loss and its gradients, metrics and predictions.

The same model, task and randomness as `Program` compiles, traced once for a chunk and run by
`gtjax.chunks`. Losses that are means over rows are summed up chunk by chunk; a loss that is not,
and every metric, sees the outputs of all nodes at once (`[nodes, classes]` numbers, mapped where in
a file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.batching.chunked_graph import ChunkedGraph
from gtjax.batching.prepare import Batch
from gtjax.chunks import (
    ArrayRows,
    ChangedRows,
    ChunkedFunction,
    CountedRows,
    Edged,
    Given,
    Scratch,
    Sizes,
    sizes_for,
)
from gtjax.chunks.blocks import has_ids
from gtjax.chunks.engine import traced_flow
from gtjax.chunks.pipeline import on_device, padded
from gtjax.chunks.rows import PermutedRows
from gtjax.chunks.segments import cut
from gtjax.chunks.sizes import row_and_table_bytes
from gtjax.core.errors import UserError
from gtjax.nn import Inputs
from gtjax.nn.recompute import nothing_recomputed
from gtjax.recipes.smooth import no_chunks
from gtjax.runs.program import Outputs, Params, Program, State

Told = Callable[[str], None]


def ignored(text: str) -> None:
    """For those who do not want to hear how far it is."""
    del text


class ChunkedProgram:
    """What a program computes, over a graph that is read chunk by chunk."""

    def __init__(self, program: Program, graph: ChunkedGraph, sizes: Sizes | None = None):
        self._program, self._graph = program, graph
        if program.task.OF != "node":
            raise UserError(
                f"--batching chunks (and --memory) answer a question of each node; this task asks "
                f"of each {program.task.OF}. Use --batching full, or --task node."
            )
        if program.config.smooth.method != "none":
            raise UserError(no_chunks(program.config.smooth))
        self._nodes, self._edges = _given(graph)
        self._functions: dict[str, ChunkedFunction] = {}
        self.sizes = sizes or self._fitting_sizes()
        self.scratch = Scratch(graph.scratch, self.sizes.array_bytes)
        self._edged = Edged(graph.by_receiver, graph.by_sender, self.sizes, self.scratch)
        self._updated = jax.jit(self._update)

    def _fitting_sizes(self) -> Sizes:
        example = (self._program.abstract_state().params, jax.ShapeDtypeStruct((), jnp.int32))
        small = Sizes(node_rows=64, edge_rows=64)
        flow, _ = traced_flow(self._train, example, self._nodes, self._edges, small)
        graph = self._graph
        of_row, of_table = row_and_table_bytes(cut(flow))
        return sizes_for(graph.memory, of_row, of_table, graph.num_nodes, graph.num_edges)

    def _function(self, mode: str) -> ChunkedFunction:
        if mode not in self._functions:
            program = self._program
            function = {"train": self._train, "evaluate": self._evaluate, "predict": self._predict}
            example = (program.abstract_state().params, jax.ShapeDtypeStruct((), jnp.int32))
            self._functions[mode] = ChunkedFunction(
                function[mode],
                example,
                self._nodes,
                self._edges,
                self._edged,
                program.config.kernel,
                program.spread.platform,
            )
        return self._functions[mode]

    # What is traced, for a chunk of rows.

    def _inputs(self, nodes: dict[str, Any], edges: dict[str, Any]) -> tuple[Inputs, Any]:
        inputs = Inputs(
            x_nf=nodes["x"],
            positional_np=nodes.get("positional"),
            edge_x_ef=edges.get("x"),
            degree_n=nodes["degree"],
            node_ids_n=nodes["ids"],
            phase=self._program.phase,
        )
        prefix = "target "
        targets = {k.removeprefix(prefix): v for k, v in nodes.items() if k.startswith(prefix)}
        return inputs, targets

    def _train(self, shared: Any, nodes: Any, edges: Any, neighbours: Any) -> Any:
        params, step = shared
        inputs, targets = self._inputs(nodes, edges)
        program = self._program
        key = jax.random.fold_in(jax.random.key(program.config.seed), step)
        inputs, targets = program.task.training(inputs, targets, key)
        inputs, model = inputs.live(key), program.model(params)
        with nothing_recomputed():  # all that is between two ops is, anyway
            return model.head(model.encoder(inputs, neighbours), inputs), targets

    def _evaluate(self, shared: Any, nodes: Any, edges: Any, neighbours: Any) -> Any:
        inputs, targets = self._inputs(nodes, edges)
        inputs = self._program.task.evaluation(inputs, targets)
        model = self._program.model(shared[0])
        return model.head(model.encoder(inputs, neighbours), inputs)

    def _predict(self, shared: Any, nodes: Any, edges: Any, neighbours: Any) -> Any:
        inputs, targets = self._inputs(nodes, edges)
        model = self._program.model(shared[0])

        def run(inputs: Inputs) -> tuple[Any, jax.Array]:
            embeddings_nf = model.encoder(inputs, neighbours)
            return model.head(embeddings_nf, inputs), embeddings_nf

        return self._program.task.predictions(run, inputs, targets)

    # What is run.

    def loss_and_gradients(
        self, params: Params, step: Any, told: Told = ignored
    ) -> tuple[jax.Array, Params]:
        """As `jax.value_and_grad(Program.loss)` of the whole graph; `told` hears how far it is."""
        function = self._function("train")
        shared = (params, jnp.asarray(step, jnp.int32))
        with function.run(shared, keep=True, told=told) as run:
            outputs, targets = function.result_tree(run.results())
            loss, gradients = self._loss(outputs, targets)
            given = [*jax.tree.leaves(gradients), *[None] * len(jax.tree.leaves(targets))]
            totals = run.backward(given)
        for each in jax.tree.leaves(gradients):
            self.scratch.free(each)
        leaves, treedef = jax.tree.flatten(params)
        found = [g.astype(x.dtype) for g, x in zip(totals, leaves, strict=False)]
        return loss, treedef.unflatten(found)

    def _loss(self, outputs: Any, targets: Any) -> tuple[jax.Array, Any]:
        """The loss, and its gradient by the outputs of all nodes."""
        task, count, rows = self._program.task, self._graph.num_nodes, self.sizes.node_rows
        gradients = jax.tree.map(lambda x: self.scratch.array(x.shape, np.float32), outputs)
        chunks = [(start, min(start + rows, count)) for start in range(0, count, rows)]
        counted = jax.eval_shape(task.counted, targets)
        if counted is None:  # no mean: it has to see everything at once
            chunks, rows = [(0, count)], count

        def part(tree: Any, start: int, end: int) -> Any:
            return jax.tree.map(lambda x: on_device(padded(x[start:end], rows)), tree)

        total = jnp.float32(1.0)
        if counted is not None:
            sums = [self._counted(part(targets, *chunk)) for chunk in chunks]
            total = jnp.maximum(jnp.asarray(sum(map(float, sums)), jnp.float32), 1.0)
        loss = jnp.float32(0.0)
        for start, end in chunks:
            given = (part(outputs, start, end), part(targets, start, end), total)
            more, found = self._part_of_loss(*given)
            loss += more
            for into, each in zip(jax.tree.leaves(gradients), jax.tree.leaves(found), strict=True):
                into[start:end] = np.asarray(each)[: end - start]
        return loss, gradients

    def _counted(self, targets: Any) -> jax.Array:
        if not hasattr(self, "_count"):
            self._count = jax.jit(lambda t: jnp.asarray(self._program.task.counted(t), jnp.float32))
        return self._count(targets)

    def _part_of_loss(self, outputs: Any, targets: Any, total: jax.Array) -> Any:
        if not hasattr(self, "_part"):
            task = self._program.task

            def part(outputs: Any, targets: Any, total: jax.Array) -> jax.Array:
                loss = task.loss(outputs, targets, None)
                count = task.counted(targets)
                # The mean of this chunk, as a share in the mean of all.
                return loss if count is None else loss * jnp.maximum(count, 1) / total

            self._part = jax.jit(jax.value_and_grad(part))
        return self._part(outputs, targets, total)

    def advance(self, state: State, count: int, told: Told = ignored) -> tuple[State, np.ndarray]:
        """Take `count` steps: as `Program.advance`, one after the other."""
        losses = np.full(count, np.nan, np.float32)
        for number in range(count):
            loss, grads = self.loss_and_gradients(state.params, state.step, told)
            state = self._updated(state, loss, grads)
            losses[number] = loss
            if not bool(state.healthy):
                break
        return state, losses

    def find_not_finite(self, state: State) -> str:
        """Run the step that failed again, and name what is not finite, as far as it is kept."""

        def first(what: str, tree: Any) -> str | None:
            for path, value in jax.tree_util.tree_leaves_with_path(tree):
                if not np.isfinite(np.asarray(value)).all():
                    name = jax.tree_util.keystr(path, simple=True, separator=".")
                    return f"{what} {name}"
            return None

        if found := first("parameter", state.params):
            return found
        loss, grads = self.loss_and_gradients(state.params, state.step)
        if not np.isfinite(np.asarray(loss)):
            return "the loss"
        return first("gradient of parameter", grads) or "the norm of the gradient"

    def _update(self, state: State, loss: jax.Array, grads: Params) -> State:
        return self._program.updated_if_finite(state, loss, grads)

    def evaluate(self, params: Params) -> dict[str, jax.Array]:
        """As `Program.evaluate`."""
        function = self._function("evaluate")
        with function.run((params, jnp.int32(0)), keep=False) as run:
            outputs = function.result_tree(run.results())
            return self._metrics(outputs, ("val", "test"))

    def predict(self, params: Params) -> tuple[Outputs, dict[str, jax.Array]]:
        """As `Program.predict`; results are arrays of the host, mapped where they are in files."""
        function = self._function("predict")
        with function.run((params, jnp.int32(0)), keep=False) as run:
            outputs, embeddings_nf = function.result_tree(run.results())
            metrics = self._metrics(outputs, ("train", "val", "test"))
            run.give_away_results()
        return Outputs(outputs, embeddings_nf), metrics

    def _metrics(self, outputs: Any, splits: tuple[str, ...]) -> dict[str, jax.Array]:
        placed = jax.tree.map(on_device, outputs)
        targets = jax.tree.map(on_device, self._graph.targets)
        run = jax.jit(lambda o, t: self._program.metrics_of(o, t, splits))
        return jax.block_until_ready(run(placed, targets))

    @property
    def batch(self) -> Batch:
        """What a report looks at of a batch: targets, and the numbers of nodes."""
        count = self._graph.num_nodes
        ids_n: Any = np.arange(count, dtype=np.uint32)
        none: Any = np.zeros((count, 0), np.float32)
        targets: Any = self._graph.targets
        return Batch(Inputs(none, node_ids_n=ids_n), None, targets)


def _given(graph: ChunkedGraph) -> tuple[dict[str, Given], dict[str, Given]]:
    """The rows that a model reads."""
    x_nf, scale = graph.x_nf, graph.scale
    plain = scale.how == "none" and isinstance(x_nf, np.ndarray)
    rows = ArrayRows(x_nf) if plain else ChangedRows(x_nf, scale)
    degree_n = np.diff(graph.by_receiver.offsets).astype(np.float32)
    nodes = {
        "x": Given(rows, (x_nf.shape[1],)),
        "degree": Given(ArrayRows(degree_n)),
        "ids": Given(CountedRows(graph.num_nodes)),
    }
    if graph.positional_np is not None:
        positional_np = graph.positional_np
        nodes["positional"] = Given(ArrayRows(positional_np), positional_np.shape[1:])
    for name, target in graph.targets.items():
        nodes[f"target {name}"] = Given(ArrayRows(target), target.shape[1:])
    edges = {}
    if graph.edge_x_ef is not None:
        csr, table = graph.by_receiver, ArrayRows(graph.edge_x_ef)
        edge_rows = PermutedRows(table, csr.edge_ids_e) if has_ids(csr) else table
        edges["x"] = Given(edge_rows, tuple(graph.edge_x_ef.shape[1:]))
    return nodes, edges
