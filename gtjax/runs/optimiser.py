"""The optimiser of a run: Adam with decay of one of two kinds, clipping, and a step size over time.

Decoupled decay (Loshchilov and Hutter 2019) shrinks matrices by a share of themselves, whatever
their gradient; coupled decay is an L2 penalty: it is added to the gradient of every parameter
before Adam sees it, as the `weight_decay` of torch's Adam, with which most published GNNs are
trained. Their recipe is `--optim.decay coupled --optim.schedule constant --optim.warmup 0
--optim.clip 0`.

All state is a function of the steps taken, so that it does not matter how they are grouped into
dispatches and a run that was stopped goes on bit by bit. That is why "plateau" watches the loss
of training, which every step has, and not a metric of validation.
"""

from __future__ import annotations

from typing import Any

import jax
import optax

from gtjax.runs.config import OptimConfig

WATCHED = 10  # steps of whose losses "plateau" takes the mean: one with dropout is noisy
LEAST = 1e-3  # of the step size that "plateau" leaves, so that training never stands still


def make_optimiser(config: OptimConfig, steps: int) -> optax.GradientTransformationExtraArgs:
    """The optimiser of a run of so many steps; `update` is given the loss as `value`."""
    rate = step_size(config, steps)
    chain: list[optax.GradientTransformation] = []
    if config.clip:
        chain.append(optax.clip_by_global_norm(config.clip))
    if config.decay == "coupled":
        chain += [optax.add_decayed_weights(config.weight_decay), optax.adam(rate)]
    else:
        chain.append(optax.adamw(rate, weight_decay=config.weight_decay, mask=_matrices))
    if config.schedule == "plateau":
        chain.append(
            optax.contrib.reduce_on_plateau(
                config.plateau_factor,
                patience=-(-config.plateau_steps // WATCHED),
                accumulation_size=WATCHED,
                min_scale=LEAST,
            )
        )
    return optax.with_extra_args_support(optax.chain(*chain))


def step_size(config: OptimConfig, steps: int) -> optax.Schedule:
    """The step size by the number of the step, as far as it depends on that alone."""
    warmup = min(config.warmup, steps // 2)
    after = optax.constant_schedule(config.learning_rate)
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(config.learning_rate, max(1, steps - warmup))
    if not warmup:
        return after
    rise = optax.linear_schedule(config.learning_rate / (warmup + 1), config.learning_rate, warmup)
    return optax.join_schedules([rise, after], [warmup])


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)
