"""Checkpoints of a run, written by orbax: atomic, so a run killed at any moment leaves whole ones.

A checkpoint holds all that training changes and the best parameters so far, so one is enough both
to continue and to predict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from gtjax.graph import UserError
from gtjax.training.step import Params, State

KEPT = 2


class Best(NamedTuple):
    """The parameters with the best validation metric so far."""

    params: Params
    metric: jax.Array
    step: jax.Array

    @staticmethod
    def none_yet(params: Params) -> Best:
        """Worse than anything."""
        return Best(jax.tree.map(jnp.copy, params), jnp.array(-jnp.inf), jnp.array(0, jnp.int32))


class Snapshot(NamedTuple):
    """What a checkpoint holds."""

    state: State
    best: Best

    @property
    def chosen(self) -> Best:
        """The best parameters, or the newest as long as none have validated."""
        if self.best.step:
            return self.best
        newest = self.state.params if self.state.average is None else self.state.average
        return self.best._replace(params=newest, step=self.state.step)


class Checkpoints:
    """The checkpoints in a run's folder, the newest few of them."""

    def __init__(self, run: Path):
        self.folder = run.resolve() / "checkpoints"
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, create=True)
        self._manager = ocp.CheckpointManager(
            self.folder, item_handlers=ocp.StandardCheckpointHandler(), options=options
        )

    def save(self, snapshot: Snapshot) -> None:
        """Write in the background; earlier checkpoints stay until this one is whole."""
        step = int(snapshot.state.step)
        if step != self._manager.latest_step():
            # A copy, since training goes on in the same buffers while this is being written.
            still = jax.tree.map(jnp.copy, _as_dict(snapshot))
            self._manager.save(step, args=ocp.args.StandardSave(still))

    @property
    def any(self) -> bool:
        """Whether there is a checkpoint."""
        return self._manager.latest_step() is not None

    def restore(self, like: Snapshot) -> Snapshot:
        """The newest checkpoint, in the shape of `like`."""
        step = self._manager.latest_step()
        if step is None:
            raise UserError(f"{self.folder}: no checkpoint yet; run `gtjax resume` first")
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _as_dict(like))
        if self._shapes(step) != {name: (x.shape, x.dtype) for name, x in shapes.items()}:
            raise UserError(
                f"{self.folder / str(step)} is damaged, or config.json is not the one it was "
                f"written with. If an older checkpoint is whole, removing this one may help."
            )
        tree = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(tree))

    def _shapes(self, step: int) -> dict[str, Any]:
        """Shape and type of everything in a checkpoint, or nothing if it cannot be read."""
        try:
            leaves = self._manager.item_metadata(step).tree
            return {name: (tuple(leaf.shape), leaf.dtype) for name, leaf in leaves.items()}
        except (ValueError, KeyError, OSError, AttributeError):
            return {}

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self._manager.wait_until_finished()
        self._manager.close()


def _as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Leaves by number: the structure is the program's to know, not the file's."""
    leaves = jax.tree.leaves(snapshot)
    return {f"{number:05d}": leaf for number, leaf in enumerate(leaves)}
