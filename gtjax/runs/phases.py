"""Phases of a run: so many steps of a part of the model, then more of it, from the best so far.

A model asks for them by `phase_steps` in its settings, the steps at which a phase begins; it finds
the number of the phase it is in as `inputs.phase`. Polynormer trains its local layers that way
before the global ones (Deng et al. 2024). Where a phase begins:

- the parameters are those that validated best in the phase before;
- Adam starts anew, for moments that are zero because a parameter was not used would make its first
  steps several times too large; schedules go on;
- the best so far counts no more: what a run keeps is of its last phase.

Parameters that a phase does not use stay as they were drawn: no decay moves them. All of it is a
function of the state at that step, so that a run that is stopped there, before or after, goes on
bit by bit.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gtjax.nn.config import setting_of
from gtjax.runs.checkpoint import Snapshot, copied


def phase_after(model: Any, step: int) -> int:
    """The number of the phase that the step after so many belongs to."""
    return sum(start <= step for start in setting_of(model, "phase_steps"))


def phase_until(model: Any, step: int) -> int:
    """The number of the phase that parameters of this step were trained in."""
    return phase_after(model, max(step - 1, 0))


def begins_phase(model: Any, step: int) -> bool:
    """Whether a phase begins after so many steps."""
    return step in setting_of(model, "phase_steps")


def steps_left_in_phase(model: Any, step: int) -> int | None:
    """How many steps until the next phase; None in the last."""
    return min(
        (start - step for start in setting_of(model, "phase_steps") if start > step), default=None
    )


def last_phase_begins(model: Any) -> int:
    """The step from which on a run may lose its patience."""
    return max(setting_of(model, "phase_steps"), default=0)


def entered(snapshot: Snapshot) -> Snapshot:
    """What a phase begins with; entering it again changes nothing."""
    state, params = snapshot.state, snapshot.chosen.params
    state = state._replace(
        params=copied(params),
        average=None if state.average is None else copied(params),
        optimiser=_restarted(state.optimiser),
    )
    return Snapshot.first(state, np.size(snapshot.best.step))  # as many seeds


def _restarted(optimiser: Any) -> Any:
    def is_adam(state: Any) -> bool:
        return isinstance(state, optax.ScaleByAdamState)

    def restart(state: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, state) if is_adam(state) else state

    return jax.tree.map(restart, optimiser, is_leaf=is_adam)
