"""Several seeds in one program: `--seeds 5` starts, traces and compiles once for all.

On a small graph that is most of a run. Parameters and the optimiser's state get a first axis, a row
a seed, and `jax.vmap` runs them side by side; ops along edges go through the edges once, with the
seeds as further heads (`pallas_kernels/native/call.py`). Steps themselves were not seen to become
cheaper, and memory grows with the number of seeds. Every seed takes the steps that it would take
alone, keeps its own best parameters, and stops choosing when it would have stopped.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.batching.prepare import Batch
from gtjax.runs.program import Params, Program, State, find_not_finite
from gtjax.sharding.abstract import abstract_everywhere
from gtjax.sharding.place import place_everywhere

AXIS = "seeds"
_ROWS: Any = 0
_NO_ROWS: Any = None
_AXES = State(_ROWS, _ROWS, _ROWS, _NO_ROWS, _NO_ROWS)


def seeds_of(program: Program) -> jax.Array:
    """The seeds of a run."""
    first = np.uint32(program.config.seed)
    return jnp.asarray(first + np.arange(program.config.seeds, dtype=np.uint32))


def initial_state(program: Program) -> State:
    """The state that each seed begins with, stacked; step and health are those of all."""
    draw = jax.jit(lambda seed: program.of_seed(seed).first_state())
    states = [draw(seed) for seed in seeds_of(program)]
    return place_everywhere(program.spread.mesh, stacked(states))


def abstract_state(program: Program) -> State:
    """The shapes of that."""
    one = jax.eval_shape(program.first_state)
    shapes = jax.eval_shape(lambda state: stacked([state] * program.config.seeds), one)
    return abstract_everywhere(program.spread.mesh, shapes)


def stacked(states: list[State]) -> State:
    """States that are equally far, as one."""
    first = states[0]
    params, average, optimiser = joined([state[:3] for state in states])
    return State(params, average, optimiser, first.step, first.healthy)


def joined(trees: list[Any]) -> Any:
    """Trees of arrays as one with a row each."""
    return jax.tree.map(lambda *each: jnp.stack(each), *trees)


def member(tree: Any, number: int) -> Any:
    """What one of the seeds has, of a tree of stacked arrays."""
    return jax.tree.map(lambda x: x[number], tree)


def advance(
    program: Program, state: State, batch: Batch, count: jax.Array, most: int
) -> tuple[State, jax.Array]:
    """As `Program.advance`; losses are `[most, seeds]`."""

    def one(state: State, seed: jax.Array) -> tuple[State, jax.Array]:
        return program.of_seed(seed, AXIS).advance(state, batch, count, most)

    run = jax.vmap(one, in_axes=(_AXES, 0), out_axes=(_AXES, 1), axis_name=AXIS)
    return run(state, seeds_of(program))


def evaluate(program: Program, params: Params, batch: Batch) -> dict[str, jax.Array]:
    """As `Program.evaluate`, a number a seed."""
    return jax.vmap(lambda own: program.evaluate(own, batch))(params)


@jax.jit
def chosen(better_s: jax.Array, new: Any, old: Any) -> Any:
    """Of two trees with a row a seed, the first where it is better."""

    def of_leaf(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(better_s.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(of_leaf, new, old)


def still_choosing(best_step_s: Any, step: int, eval_every: int, patience: int) -> Any:
    """Which seeds would be training alone: those whose patience the last evaluation left some of.

    Training goes on for the others; what they keep stays as it was when they would have stopped.
    """
    last = (step - 1) // eval_every * eval_every
    if not patience or not last:
        return jnp.ones(jnp.shape(best_step_s), bool)
    return last - best_step_s < patience


def find_not_finite_seed(program: Program, state: State, batch: Batch) -> str:
    """The first seed whose step fails, and the first thing in it that is not finite."""
    for number, seed in enumerate(seeds_of(program)):
        params, average, optimiser = member(state[:3], number)
        own = State(params, average, optimiser, state.step, state.healthy)
        one = program.of_seed(seed)
        loss, grads = jax.jit(jax.value_and_grad(one.loss))(params, batch, state.step)
        if not all(np.isfinite(each).all() for each in jax.tree.leaves((params, loss, grads))):
            return f"seed {int(seed)}: {find_not_finite(one, own, batch)}"
    return "the norm of the gradient"
