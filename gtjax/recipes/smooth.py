"""After training: label propagation, and Correct & Smooth (Zhu et al. 2003; Huang et al. 2020).

Neighbours tend to share labels, and errors of a model as well. "correct_and_smooth" spreads the
errors that the model makes on training nodes along edges and adds them to its probabilities, then
puts labels in the place of those of training nodes and spreads the whole. "labels" spreads the
labels alone: what the graph says without a model. Choose them for graphs whose neighbours are
alike; they cost some rounds of sums as wide as there are classes, once.

With `choose` the shares of neighbours are those that validate best, none at all among them: where
smoothing does not help, the answers of the model stay.

Nothing leaks: of all labels those of training nodes alone are read, to spread them, and those of
validation nodes if they are to choose how far. Training nodes, which hold their own labels, keep
the answer of the model. Edges are those that the model saw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp

from gtjax.core.errors import UserError
from gtjax.nn.gcn import symmetric_sum
from gtjax.nn.neighbours import Neighbours
from gtjax.recipes.base import Targets, is_one_class
from gtjax.recipes.config import SmoothConfig
from gtjax.tasks.base import Task

TRIED = (0.2, 0.5, 0.8, 0.95)  # shares of neighbours to choose among
LARGEST = 1000.0  # a residual that would be scaled up more than this is left as it is
LEAST = 1e-9  # probability: what is spread may be negative


@dataclass(frozen=True)
class Smoother:
    """What is done to the outputs of a model with one class a node."""

    config: SmoothConfig

    def __call__(
        self,
        logits_nc: jax.Array,
        targets: Targets,
        neighbours: Neighbours,
        goodness: Callable[[jax.Array], jax.Array],
    ) -> tuple[jax.Array, jax.Array]:
        """The outputs after it, and the two shares of neighbours that they are by.

        `goodness` of some outputs on validation is the better the larger.
        """

        def smoothed(shares: jax.Array) -> jax.Array:
            return self._smoothed(logits_nc, targets, neighbours, shares)

        shares = jnp.array([self.config.correct, self.config.smooth])
        if not self.config.choose:
            return smoothed(shares), shares
        tried_k2 = jnp.concatenate([shares[None], jnp.array(self._tried())])
        found_k = jax.lax.map(lambda each: goodness(smoothed(each)), tried_k2)
        # Without labels to choose by it is what the settings say, which stands first.
        best = tried_k2[jnp.argmax(jnp.where(jnp.isnan(found_k), -jnp.inf, found_k))]
        return smoothed(best), best

    def _tried(self) -> list[tuple[float, float]]:
        """Shares to choose among; with none of neighbours, answers are those of the model."""
        if self.config.method == "labels":
            return list(product(TRIED[:1], TRIED))
        return [(0.0, 0.0), *product(TRIED, TRIED)]

    def _smoothed(
        self, logits_nc: jax.Array, targets: Targets, neighbours: Neighbours, shares: jax.Array
    ) -> jax.Array:
        config = self.config
        labelled_n1 = (targets["train"] & (targets["labels"] >= 0))[:, None]
        known_nc = jax.nn.one_hot(targets["labels"], logits_nc.shape[1]) * labelled_n1
        if config.method == "labels":
            p_nc = spread(known_nc, shares[1], config.rounds, neighbours)
        else:
            p_nc = jax.nn.softmax(logits_nc)
            p_nc = corrected(p_nc, known_nc, labelled_n1, shares[0], config, neighbours)
            start_nc = jnp.where(labelled_n1, known_nc, p_nc)
            p_nc = spread(start_nc, shares[1], config.rounds, neighbours)
        # As outputs of a model are: of which the task takes a softmax.
        return jnp.where(labelled_n1, logits_nc, jnp.log(jnp.maximum(p_nc, LEAST)))


def smoother_of(config: SmoothConfig, task: Task, batching: str) -> Smoother | None:
    """What the settings ask for, if anything; refuses tasks that it is not for."""
    if config.method == "none":
        return None
    if not is_one_class(task):
        raise UserError(
            f"--smooth.method {config.method} spreads classes of nodes: it is for --task node with "
            f"one class a node. Leave it out for this task."
        )
    if batching == "chunks":
        raise UserError(no_chunks(config))
    return Smoother(config)


def no_chunks(config: SmoothConfig) -> str:
    """Why a graph that is read in chunks is refused."""
    return (
        f"--smooth.method {config.method} goes over all edges {config.rounds} times and more, with "
        f"the graph in memory; here it is read in chunks. Leave it out, or use --batching full "
        f"without --memory."
    )


def spread(
    start_nc: jax.Array,
    share: jax.Array | float,
    rounds: int,
    neighbours: Neighbours,
    held_n1: jax.Array | None = None,
) -> jax.Array:
    """`x <- (1 - share) start + share S x` with symmetric weights S; rows that are held stay."""

    def once(_: Any, x_nc: jax.Array) -> jax.Array:
        x_nc = (1 - share) * start_nc + share * symmetric_sum(x_nc, neighbours)
        return x_nc if held_n1 is None else jnp.where(held_n1, start_nc, x_nc)

    return jax.lax.fori_loop(0, rounds, once, start_nc)


def corrected(
    p_nc: jax.Array,
    known_nc: jax.Array,
    labelled_n1: jax.Array,
    share: jax.Array | float,
    config: SmoothConfig,
    neighbours: Neighbours,
) -> jax.Array:
    """Probabilities plus what the errors on training nodes say of those of other nodes."""
    error_nc = jnp.where(labelled_n1, known_nc - p_nc, 0)
    if config.scale:
        held = spread(error_nc, share, config.rounds, neighbours, labelled_n1)
        return p_nc + config.scale * held
    spread_nc = spread(error_nc, share, config.rounds, neighbours)
    # Errors fade on their way: each node's are made as large as those of training nodes are.
    usual = jnp.abs(error_nc).sum() / jnp.maximum(labelled_n1.sum(), 1)
    factor_n1 = usual / jnp.abs(spread_nc).sum(axis=1, keepdims=True)
    return p_nc + jnp.where(factor_n1 <= LARGEST, factor_n1, 1.0) * spread_nc
