"""A whole step of training in jax: gtjax's graph transformer, its gradient, and Adam."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import gtjax
from contenders.case import Case, CaseFolder
from contenders.jax_attention import PACKAGES, Attend, needs, temporary
from contenders.work import Work
from gtjax.nn import Inputs

LEARNING_RATE = 1e-3


def step(
    folder: CaseFolder,
    layout: Any,
    attend: Attend,
    *,
    order_n: np.ndarray | None = None,
    facts: dict[str, Any] | None = None,
) -> Work:
    """Steps of training from the same parameters, which are stored for the other contenders.

    `order_n` puts the nodes in another order before the clock starts; the losses are the same.
    """
    case = folder.case
    graphdef, initial = nnx.split(make_model(case), nnx.Param)
    initial = nnx.to_pure_dict(initial)
    store_parameters(folder, initial)
    optimiser = optax.adam(LEARNING_RATE)
    order = slice(None) if order_n is None else order_n
    names = ("x_nf", "labels_n", "train_n")
    batch = {name: jnp.asarray(folder.array(name)[order]) for name in names}
    layout = jax.device_put(layout)

    def loss(params: Any, layout: Any, batch: dict[str, jax.Array]) -> jax.Array:
        def over_edges(
            q_nhd: Any, k_nhd: Any, v_nhd: Any, bias_eh: Any, *, dropout: Any = None
        ) -> jax.Array:
            del bias_eh, dropout  # the graph has no edge features, the model no dropout
            return attend(layout, q_nhd, k_nhd, v_nhd)

        model = nnx.merge(graphdef, params)
        logits_nc = model(Inputs(batch["x_nf"]), over_edges).logits_nc
        losses = optax.softmax_cross_entropy_with_integer_labels(logits_nc, batch["labels_n"])
        return losses.mean(where=batch["train_n"])

    @partial(jax.jit, donate_argnums=(0, 1))
    def advance(params: Any, state: Any, layout: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, layout, batch)
        updates, state = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    def start() -> list[Any]:
        params = jax.tree.map(jnp.copy, initial)  # a step takes its inputs' memory
        return [params, optimiser.init(params)]

    current = start()
    compiled = advance.lower(*current, layout, batch).compile()

    def once() -> float:
        *current[:], value = compiled(*current, layout, batch)
        jax.block_until_ready(current)
        return float(value)

    def results() -> dict[str, np.ndarray]:
        current[:] = start()
        return {"losses": np.array([once(), once(), once()])}

    return Work(
        operations={"step": once},
        results=results,
        needs_bytes=needs(compiled),
        packages=(*PACKAGES, "flax", "optax"),
        facts={"xla_temporary_bytes": temporary(compiled), **(facts or {})},
    )


def make_model(case: Case) -> gtjax.GraphTransformer:
    """The model of the case, without dropout, so that all contenders compute the same losses."""
    config = gtjax.ModelConfig(
        hidden=case.hidden, layers=case.layers, heads=case.heads, dropout=0.0
    )
    return gtjax.GraphTransformer(config, case.features, case.classes, rngs=nnx.Rngs(params=0))


def store_parameters(folder: CaseFolder, params: Any) -> None:
    """Write the initial parameters, named by their path in the model, if no one has."""
    if (folder.path / "parameters.npz").exists():
        return
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named: dict[str, Any] = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
    }
    np.savez(folder.path / "parameters.npz", **named)
