"""One training step and one evaluation, as pure functions of state and batch.

Several steps run in one dispatch (`advance`), so a small graph is not bound by Python. Their
number is an argument and not a shape: any number of steps uses the same compiled program, and what
is computed does not depend on how the steps are grouped.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding

from gtjax.batching.config import BatchingSettings
from gtjax.batching.features import Scaling
from gtjax.batching.prepare import Batch
from gtjax.batching.sparse import readable, sparse_forms
from gtjax.batching.table import BATCHINGS
from gtjax.core.errors import UserError, one_of
from gtjax.graph import Graph
from gtjax.nn import Inputs
from gtjax.nn.config import setting_of
from gtjax.nn.inputs import Watch
from gtjax.nn.models import model_name
from gtjax.nn.streams import Streams
from gtjax.recipes.base import Loss, Pass
from gtjax.recipes.recipes import recipes_of
from gtjax.recipes.smooth import smoother_of
from gtjax.runs.config import TrainConfig
from gtjax.runs.facts import GraphFacts
from gtjax.runs.makers import Makers
from gtjax.runs.optimiser import make_optimiser
from gtjax.runs.receptive_field import receptive_field, says_how_far
from gtjax.sharding.abstract import abstract_everywhere
from gtjax.sharding.mesh import Spread, spread
from gtjax.sharding.neighbours import BoundNeighbours
from gtjax.sharding.place import place_everywhere
from gtjax.sharding.recording import RecordingNeighbours, forms_of
from gtjax.sharding.sparse import SpreadRows
from gtjax.sharding.specs import EVERYWHERE
from gtjax.strategies import WIRES
from gtjax.tasks.base import Task

Params = dict[str, Any]


class Outputs(NamedTuple):
    """What the head gives for every node, and the embeddings that it gives it from."""

    outputs: Any
    embeddings_nf: jax.Array
    smoothed: Any = None  # the outputs after what `--smooth` does, if it does

    @property
    def answers(self) -> Any:
        """What a prediction is made from."""
        return self.outputs if self.smoothed is None else self.smoothed


class State(NamedTuple):
    """All that training changes. `healthy` is False once a loss or gradient was not finite."""

    params: Params
    average: Params | None
    optimiser: Any
    step: jax.Array
    healthy: jax.Array


class Program:
    """The model, task and optimiser of a run, as functions to compile.

    `devices` are by default those that jax finds; see `spread`.
    """

    def __init__(
        self,
        config: TrainConfig,
        graph: Graph | GraphFacts,
        task: Task,
        devices: Sequence[Any] | None = None,
    ):
        self.config, self.task = config, task
        self._seed: int | jax.Array = config.seed
        self._group: str | None = None
        self.phases = len(setting_of(config.model, "phase_steps"))
        self.phase = self.phases  # the last, unless it is `in_phase` another
        fitted = graph.scaling if isinstance(graph, GraphFacts) else None
        self._scaling = None if fitted is None else Scaling.from_json(fitted)
        self._makers = Makers(config, graph, task)
        self.calls = self._makers.calls
        self._smoother = smoother_of(config.smooth, task, config.batches.batching)
        if self._smoother is not None:
            self._record_smoothing(graph.num_classes)
        works = [call.work for call in self.calls]
        self.spread = spread(config.parallel, works, devices)  # for evaluation and prediction
        self.batching = one_of(BATCHINGS, config.batches.batching, "--batching")
        if refused := self.batching.refusal(self.spread, couples_nodes(config.model)):
            raise UserError(str(refused))
        self.training = self.batching.training(self.spread)  # of a step: on the same mesh
        self._recipes = recipes_of(config.recipe)
        self._recipes.check(task, self.batching.name)
        self.wire = one_of(WIRES, config.parallel.wire, "--wire")
        self._graphdef = nnx.graphdef(nnx.eval_shape(self._new_model))
        self._optimiser = make_optimiser(config.optim, config.steps)

    def in_phase(self, phase: int) -> Program:
        """The same in another phase of training (`phases.py`)."""
        if phase == self.phase:
            return self
        other = copy.copy(self)  # another object, so that jax compiles its methods anew
        other.phase = phase
        return other

    @property
    def exact(self) -> bool:
        """Whether steps have the gradients of the whole graph on one device."""
        return self.batching.sees_all and self.wire.exact

    @property
    def settings(self) -> BatchingSettings:
        """What batches for this program depend on."""
        strategies = (self.training.strategy, self.spread.strategy)
        kernel, platform = self.config.kernel, self.spread.platform
        forms = forms_of(self.calls, kernel, platform, strategies)
        settings = self.config.batching(forms, self.task)
        able = self._makers.reads_sparse and not self._recipes.reads_features
        sparse = sparse_forms(settings, kernel, platform, reads_sparse=able)
        settings = dataclasses.replace(settings, scaling=self._scaling, sparse_forms=sparse)
        if self.batching.name == "neighbours" and not says_how_far(self.config.model):
            encoder = self._makers.encoder(Streams(0))
            far = receptive_field(encoder, self._makers.sizes, settings)
            settings = dataclasses.replace(settings, layers=far)
        return settings

    def _new_model(self) -> nnx.Dict:
        """Encoder and head, with parameters drawn from the seed in that order."""
        rngs = Streams(jax.random.key(self._seed))
        encoder = self._makers.encoder(rngs)
        return nnx.Dict(encoder=encoder, head=self._makers.head(rngs))

    def of_seed(self, seed: jax.Array, group: str | None = None) -> Program:
        """The same with another seed, which may be traced: one of several under `jax.vmap`.

        `group` is the axis of that: where a number of one is not finite, none goes on.
        """
        other = copy.copy(self)
        other._seed, other._group = seed, group
        return other

    def initial_state(self) -> State:
        """Parameters drawn from the seed, and an optimiser that has seen nothing."""
        return place_everywhere(self.spread.mesh, jax.jit(self.first_state)())

    def abstract_state(self) -> State:
        """The shapes of a state: nothing is drawn, and the devices need not be there."""
        return abstract_everywhere(self.spread.mesh, jax.eval_shape(self.first_state))

    def first_state(self) -> State:
        """Of a run that has not begun; to be traced."""
        drawn = nnx.state(self._new_model(), nnx.Param)
        params = _string_keys(nnx.to_pure_dict(drawn))
        average = jax.tree.map(jnp.copy, params) if self.config.optim.average else None
        start = jnp.zeros((), jnp.int32)
        return State(params, average, self._optimiser.init(params), start, jnp.array(True))

    def model(self, params: Params) -> Any:
        """Encoder and head with these parameters."""
        return nnx.merge(self._graphdef, _integer_keys(params))

    def run(self, params: Params, batch: Batch, inputs: Inputs, spread: Spread) -> Outputs:
        """The model over the batch's edges, as they are laid out for the strategy of `spread`."""
        model, neighbours = self.model(params), self._neighbours(batch, spread)
        times = partial(SpreadRows.times, spread=spread, kernel=self.config.kernel)
        inputs = readable(inputs, times)._replace(phase=self.phase)
        embeddings_nf = model.encoder(inputs, neighbours)
        if (hops := batch.hops) is not None:  # of the seeds alone, whatever it has computed
            embeddings_nf = hops.rows(embeddings_nf, 0)
            inputs.noise.keep(lambda rows: hops.rows(rows, 0))
        outputs = model.head(embeddings_nf, inputs)
        for name, value in _named("output", outputs):
            inputs.see(name, value)
        return Outputs(outputs, embeddings_nf)

    def _neighbours(self, batch: Batch, spread: Spread) -> BoundNeighbours:
        assert batch.inputs.degree_n is not None
        return BoundNeighbours(
            spread,
            batch.layout,
            batch.inputs.degree_n,
            self.config.kernel,
            self.wire,
            batch.sum_scale_n,
            batch.hops,
        )

    def loss(
        self, params: Params, batch: Batch, step: jax.Array, watch: Watch | None = None
    ) -> jax.Array:
        """Training loss of one step; its randomness is a function of the seed and the step."""
        return self._loss_of(batch, watch)(params, batch.inputs, self._key(step))

    def gradient(self, params: Params, batch: Batch, step: jax.Array) -> tuple[jax.Array, Params]:
        """The loss of one step, and what the parameters move by: its gradient, but for recipes."""
        gradient = self._recipes.gradient(self._loss_of(batch), batch.targets)
        return gradient(params, batch.inputs, self._key(step))

    def _key(self, step: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.key(self._seed), step)

    def _loss_of(self, batch: Batch, watch: Watch | None = None) -> Loss:
        def loss(params: Params, given: Inputs, key: jax.Array) -> jax.Array:
            def run(key: jax.Array, number: int) -> Pass:
                inputs, targets = self.task.training(given, batch.targets, key)
                inputs = inputs.live(key, _of_pass(watch, number))
                outputs = self.run(params, batch, inputs, self.training).outputs
                return Pass(outputs, targets, self.task.loss(outputs, targets, batch.weight_n))

            return self._recipes.loss(run, given, batch.targets, key)

        return loss

    def compiled(self, state: State, batch: Batch, most: int) -> Any:
        """`advance` as a program for the devices of the mesh, which overwrites its state."""
        return self.compiled_as(self.advance, state, batch, most)

    def compiled_as(self, advance: Any, state: State, batch: Batch, most: int) -> Any:
        """The same of another function than `advance` with its arguments."""
        replicated = NamedSharding(self.spread.mesh, EVERYWHERE)
        step = jax.jit(advance, static_argnums=3, donate_argnums=0, out_shardings=replicated)
        with jax.set_mesh(self.spread.mesh):  # for kernels that ask what chip they are made for
            return step.lower(state, batch, np.int32(1), most).compile()

    def advance(
        self, state: State, batch: Batch, count: jax.Array, most: int
    ) -> tuple[State, jax.Array]:
        """Take `count` steps, at most `most`; the losses fill the first `count` places.

        A step whose loss or gradient is not finite changes nothing but `healthy`, and so do those
        after it.
        """

        def one(i: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, losses = carry
            loss, grads = self.gradient(state.params, batch, state.step)
            return self.updated_if_finite(state, loss, grads), losses.at[i].set(loss)

        losses = jnp.full(most, jnp.nan)
        return jax.lax.fori_loop(0, count, one, (state, losses))

    def updated_if_finite(self, state: State, loss: jax.Array, grads: Params) -> State:
        """The state after a step; nothing but `healthy` changes where something is not finite."""
        finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(grads))
        if self._group is not None:
            finite = jax.lax.pmin(finite.astype(jnp.int32), self._group) == 1
        healthy = state.healthy & finite
        moved = self._updated(state, loss, grads)
        state = jax.tree.map(lambda new, old: jnp.where(healthy, new, old), moved, state)
        return state._replace(healthy=healthy)

    def _updated(self, state: State, loss: jax.Array, grads: Params) -> State:
        updates, optimiser = self._optimiser.update(
            grads, state.optimiser, state.params, value=loss
        )
        if self.phase < self.phases:  # what this phase does not use stays as it was drawn
            updates = jax.tree.map(lambda u, g: jnp.where((g != 0).any(), u, 0.0), updates, grads)
        params = cast("Params", optax.apply_updates(state.params, updates))
        average = state.average
        if average is not None:
            # Short at first, so that the average forgets the initial parameters.
            decay = jnp.minimum(self.config.optim.average, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, params)
        return State(params, average, optimiser, state.step + 1, state.healthy)

    def evaluate(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Metrics of val and test, and the loss of val, where the task has one.

        Training nodes may see their own label, so they are left out.
        """
        inputs = self.task.evaluation(batch.inputs, batch.targets)
        outputs = self.run(params, batch, inputs, self.spread).outputs
        loss = self.task.validation_loss(outputs, batch.targets)
        known = {} if loss is None else {"val_loss": loss}
        return known | self.metrics_of(outputs, batch.targets, ("val", "test"))

    def predict(self, params: Params, batch: Batch) -> tuple[Outputs, dict[str, jax.Array]]:
        """Outputs and metrics of all nodes, where no node has seen what is asked of it."""

        def run(inputs: Inputs) -> tuple[Any, jax.Array]:
            return self.run(params, batch, inputs, self.spread)[:2]

        outputs = Outputs(*self.task.predictions(run, batch.inputs, batch.targets))
        metrics = self.metrics_of(outputs.outputs, batch.targets, ("train", "val", "test"))
        if self._smoother is not None:
            smoothed, shares = self._smoothed(outputs.outputs, batch)
            outputs = outputs._replace(smoothed=smoothed)
            metrics |= self.metrics_of(smoothed, batch.targets, ("val", "test"), called="smoothed_")
            metrics |= {"smooth_correct": shares[0], "smooth_smooth": shares[1]}
        return outputs, metrics

    def _smoothed(self, outputs: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        assert self._smoother is not None
        targets, task = batch.targets, self.task

        def goodness(outputs: jax.Array) -> jax.Array:
            return task.goodness(task.metrics(outputs, targets, "val")[task.metric])

        return self._smoother(outputs, targets, self._neighbours(batch, self.spread), goodness)

    def _record_smoothing(self, classes: int) -> None:
        """Note what it asks of edges, as is noted of the model."""

        def run() -> tuple[jax.Array, jax.Array]:
            degree_n, logits_nc = jnp.ones(2), jnp.zeros((2, classes))
            targets = {"train": degree_n > 0, "labels": jnp.zeros(2, jnp.int32)}
            neighbours = RecordingNeighbours(degree_n, self.calls)
            assert self._smoother is not None
            return self._smoother(logits_nc, targets, neighbours, jnp.sum)

        jax.eval_shape(run)

    def metrics_of(
        self,
        outputs: Any,
        targets: dict[str, jax.Array],
        splits: tuple[str, ...],
        called: str = "",
    ) -> dict[str, jax.Array]:
        """Metrics of some splits, from the outputs of all nodes; their names begin as `called`."""
        return {
            f"{split}_{called}{name}": value
            for split in splits
            for name, value in self.task.metrics(outputs, targets, split).items()
        }


def _of_pass(watch: Watch | None, number: int) -> Watch | None:
    """One who tells apart what several forward passes of a step compute."""
    if watch is None or number == 0:
        return watch
    return lambda name, value: watch(f"{name} (pass {number + 1})", value)


def _named(name: str, tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(name + jax.tree_util.keystr(path), value) for path, value in leaves]


def find_not_finite(program: Program, state: State, batch: Batch) -> str:
    """Run the step that failed again, and name the first thing in it that is not finite."""
    seen: dict[str, jax.Array] = {}

    def loss(params: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        watched: dict[str, jax.Array] = {}

        def watch(name: str, value: jax.Array) -> None:
            watched[name] = ~jnp.isfinite(value).all()

        result = program.loss(params, batch, state.step, watch=watch)
        watched["loss"] = ~jnp.isfinite(result)
        seen.update(dict.fromkeys(watched, jnp.array(False)))
        return result, watched

    (_, activations), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(state.params)
    for path, value in jax.tree_util.tree_leaves_with_path(state.params):
        if not np.isfinite(value).all():
            return f"parameter {_name(path)}"
    for name in seen:  # in the order in which the model computes them
        if activations[name]:
            return f"activation {name}" if name != "loss" else "the loss"
    for path, value in jax.tree_util.tree_leaves_with_path(grads):
        if not np.isfinite(value).all():
            return f"gradient of parameter {_name(path)}"
    return "the norm of the gradient"


def couples_nodes(model: Any) -> str | None:
    """The setting by which a node depends on nodes that it has no path of edges to, if any."""
    if setting_of(model, "norm") == "batch":
        return '--model.norm batch (others are "layer", "rms" and "none")'
    if setting_of(model, "global_attention"):
        if (layers := getattr(model, "global_layers", None)) is not None:
            return f"--model.global-layers {layers}"
        known = "global_attention" in {each.name for each in dataclasses.fields(model)}
        return "--model.global-attention" if known else f"--model {model_name(model)}"
    return None


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _string_keys(tree: Any) -> Any:
    """Checkpoints name everything by strings; Flax numbers the blocks by integers."""
    if isinstance(tree, dict):
        return {str(key): _string_keys(value) for key, value in tree.items()}
    return tree


def _integer_keys(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            int(key) if key.isdigit() else key: _integer_keys(value) for key, value in tree.items()
        }
    return tree
