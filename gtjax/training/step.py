"""One training step and one evaluation, as pure functions of state and batch.

Several steps run in one dispatch (`advance`), so a small graph is not bound by Python. Their
number is an argument and not a shape: any number of steps uses the same compiled program, and what
is computed does not depend on how the steps are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding

from gtjax.graph import Graph
from gtjax.nn import (
    ARCHITECTURES,
    Inputs,
    ModelConfig,
    Outputs,
    hide_labels,
    show_labels,
    uniform_bits,
)
from gtjax.sharding.abstract import abstract_everywhere
from gtjax.sharding.attention import EVERYWHERE, Attention
from gtjax.sharding.mesh import Spread, exact_spread, spread
from gtjax.sharding.place import place_everywhere
from gtjax.strategies import ModelShape
from gtjax.training.config import OptimConfig, TrainConfig
from gtjax.training.facts import GraphFacts
from gtjax.training.prepare import Batch
from gtjax.training.task import Task

Params = dict[str, Any]


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
        self.model_shape = model_shape(config.model, graph.num_edge_features)
        self.spread = spread(config.parallel, self.model_shape, devices)
        self.exact = exact_spread(self.spread)  # for evaluation and prediction
        self._sizes = (graph.num_features, task.num_classes, graph.num_edge_features)
        self._graphdef = nnx.graphdef(nnx.eval_shape(self._new_model))
        self._optimiser = make_optimiser(config.optim, config.steps)

    def _new_model(self) -> nnx.Module:
        """With parameters drawn from the seed."""
        rngs = nnx.Rngs(params=self.config.seed)
        return ARCHITECTURES[self.config.model.architecture](
            self.config.model, *self._sizes, rngs=rngs
        )

    def initial_state(self) -> State:
        """Parameters drawn from the seed, and an optimiser that has seen nothing."""
        return place_everywhere(self.spread.mesh, self._first_state())

    def abstract_state(self) -> State:
        """The shapes of a state: nothing is drawn, and the devices need not be there."""
        return abstract_everywhere(self.spread.mesh, jax.eval_shape(self._first_state))

    def _first_state(self) -> State:
        drawn = nnx.state(self._new_model(), nnx.Param)
        params = _string_keys(nnx.to_pure_dict(drawn))
        average = jax.tree.map(jnp.copy, params) if self.config.optim.average else None
        start = jnp.zeros((), jnp.int32)
        return State(params, average, self._optimiser.init(params), start, jnp.array(True))

    def model(self, params: Params) -> Any:
        """The model with these parameters."""
        return nnx.merge(self._graphdef, _integer_keys(params))

    def run(
        self, params: Params, batch: Batch, inputs: Inputs, spread: Spread, **options: Any
    ) -> Outputs:
        """The model over the batch's edges, as they are laid out for the strategy of `spread`."""
        attend = Attention(spread, batch.layout, self.config.kernel)
        return self.model(params)(inputs, attend, **options)

    def loss(self, params: Params, batch: Batch, step: jax.Array, **options: Any) -> jax.Array:
        """Training loss of one step; its randomness is a function of the seed and the step."""
        key = jax.random.fold_in(jax.random.key(self.config.seed), step)
        inputs, counted_n = batch.inputs, batch.split_n["train"]
        if self.config.model.label_input:
            seed = jax.random.bits(key, (), jnp.uint32)
            share, ids_n = self.config.optim.hidden_labels, _node_ids(inputs)
            shown_n, counted_n = hide_labels(ids_n, batch.labels_n, counted_n, share, seed)
            inputs = inputs._replace(shown_labels_n=shown_n)
        logits_nc = self.run(params, batch, inputs, self.spread, key=key, **options).logits_nc
        return self.task.loss(logits_nc, batch.labels_n, counted_n, batch.weight_n)

    def compiled(self, state: State, batch: Batch, most: int) -> Any:
        """`advance` as a program for the devices of the mesh, which overwrites its state."""
        replicated = NamedSharding(self.spread.mesh, EVERYWHERE)
        step = jax.jit(self.advance, static_argnums=3, donate_argnums=0, out_shardings=replicated)
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
            loss, grads = jax.value_and_grad(self.loss)(state.params, batch, state.step)
            finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(grads))
            healthy = state.healthy & finite
            moved = self._updated(state, grads)
            state = jax.tree.map(lambda new, old: jnp.where(healthy, new, old), moved, state)
            return state._replace(healthy=healthy), losses.at[i].set(loss)

        losses = jnp.full(most, jnp.nan)
        return jax.lax.fori_loop(0, count, one, (state, losses))

    def _updated(self, state: State, grads: Params) -> State:
        updates, optimiser = self._optimiser.update(grads, state.optimiser, state.params)
        params = cast("Params", optax.apply_updates(state.params, updates))
        average = state.average
        if average is not None:
            # Short at first, so that the average forgets the initial parameters.
            decay = jnp.minimum(self.config.optim.average, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, params)
        return State(params, average, optimiser, state.step + 1, state.healthy)

    def evaluate(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Metrics of val and test; training nodes may see their own label, so they are left out."""
        outputs = self.run(params, batch, self._shown(batch), self.exact)
        return self._metrics(outputs.logits_nc, batch, ("val", "test"))

    def predict(self, params: Params, batch: Batch) -> tuple[Outputs, dict[str, jax.Array]]:
        """Outputs and metrics of all nodes, where no node has seen its own label.

        With labels as input, training nodes are predicted in two halves, each while its labels
        are hidden; all others see every training label.
        """
        outputs = self.run(params, batch, self._shown(batch), self.exact)
        if self.config.model.label_input:
            half_n = uniform_bits(_node_ids(batch.inputs), 1, jnp.uint32(0))[:, 0] >> 31 == 1
            for hidden_n in (half_n, ~half_n):
                part = self.run(params, batch, self._shown(batch, hidden_n), self.exact)
                own_n1 = (batch.split_n["train"] & hidden_n)[:, None]
                outputs = Outputs(
                    *(jnp.where(own_n1, a, b) for a, b in zip(part, outputs, strict=True))
                )
        return outputs, self._metrics(outputs.logits_nc, batch, ("train", "val", "test"))

    def _shown(self, batch: Batch, hidden_n: jax.Array | None = None) -> Inputs:
        if not self.config.model.label_input:
            return batch.inputs
        train_n = batch.split_n["train"]
        hidden_n = jnp.zeros_like(train_n) if hidden_n is None else hidden_n
        shown_n = show_labels(batch.labels_n, train_n, hidden_n)
        return batch.inputs._replace(shown_labels_n=shown_n)

    def _metrics(
        self, logits_nc: jax.Array, batch: Batch, splits: tuple[str, ...]
    ) -> dict[str, jax.Array]:
        return {
            f"{split}_{name}": value
            for split in splits
            for name, value in self.task.metrics(
                logits_nc, batch.labels_n, batch.split_n[split]
            ).items()
        }


def make_optimiser(config: OptimConfig, steps: int) -> optax.GradientTransformation:
    """AdamW with warm-up, schedule, clipping, and decay of matrices only."""
    warmup = min(config.warmup, steps // 2)
    after = optax.constant_schedule(config.learning_rate)
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(config.learning_rate, max(1, steps - warmup))
    rise = optax.linear_schedule(config.learning_rate / (warmup + 1), config.learning_rate, warmup)
    chain = [optax.clip_by_global_norm(config.clip)] if config.clip else []
    chain.append(
        optax.adamw(
            optax.join_schedules([rise, after], [warmup]) if warmup else after,
            weight_decay=config.weight_decay,
            mask=lambda params: jax.tree.map(lambda p: p.ndim > 1, params),
        )
    )
    return optax.chain(*chain)


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


def model_shape(model: ModelConfig, num_edge_features: int) -> ModelShape:
    """What strategies have to know of the model."""
    return ModelShape(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        edge_bias=num_edge_features > 0,
        bytes_per_value=jnp.dtype(model.attention_dtype).itemsize,
        # With dropout every round draws anew, and is attention of its own.
        propagates=model.architecture == "decoupled" and not model.attention_dropout,
        couples_nodes=_couples_nodes(model),
    )


def _couples_nodes(model: ModelConfig) -> str | None:
    """The setting by which a node depends on nodes that it has no path of edges to, if any."""
    if model.norm == "batch":
        return '--model.norm batch (others are "layer", "rms" and "none")'
    if model.architecture == "transformer" and model.global_attention:
        return "--model.global-attention"
    return None


def _node_ids(inputs: Inputs) -> jax.Array:
    if inputs.node_ids_n is None:
        raise ValueError("hiding labels draws by node id; the batch has no node_ids_n")
    return inputs.node_ids_n


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
