"""Checkpoints of a run: written in the background, checked by hashes when they are read.

A checkpoint holds all that training changes and the best parameters so far, so one is enough both
to continue and to predict. A run that is killed at any moment leaves whole ones; one that is
damaged later is passed over for an older one. Of a run in an object store a checkpoint counts once
it is there: written on this machine only, it is none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.core.errors import UserError
from gtjax.remote.problems import DamagedError, StoreError
from gtjax.remote.run_store import RunStore
from gtjax.runs import several_seeds
from gtjax.runs.checkpoint_files import (
    DamagedCheckpointError,
    Packed,
    layout,
    layouts,
    pack,
    read_arrays,
    read_manifest,
    reason,
    remove_checkpoint,
    steps_in,
    write_checkpoint,
)
from gtjax.runs.program import Params, Program, State
from gtjax.sharding.abstract import abstract_everywhere

KEPT = 2


class CheckpointError(UserError):
    """A checkpoint could not be written; the ones before it are as they were."""


@jax.jit
def copied(tree: Any) -> Any:
    """Arrays of their own, all by one program: one for each shape would be compiled else."""
    return jax.tree.map(jnp.copy, tree)


class Best(NamedTuple):
    """The parameters with the best validation metric so far."""

    params: Params
    metric: jax.Array
    step: jax.Array

    @staticmethod
    def none_yet(params: Params) -> Best:
        """Worse than anything."""
        return Best(copied(params), jnp.array(-jnp.inf), jnp.array(0, jnp.int32))

    @staticmethod
    def none_of(params: Params, seeds: int) -> Best:
        """The same of several seeds, each with a row in every array."""
        none = Best.none_yet(params)
        return none._replace(
            metric=jnp.full(seeds, none.metric), step=jnp.full(seeds, none.step, jnp.int32)
        )


class Snapshot(NamedTuple):
    """What a checkpoint holds."""

    state: State
    best: Best

    @staticmethod
    def first(state: State, seeds: int = 1) -> Snapshot:
        """Of a run that has not begun; of several seeds if it trains so many."""
        if seeds > 1:
            return Snapshot(state, Best.none_of(state.params, seeds))
        return Snapshot(state, Best.none_yet(state.params))

    @staticmethod
    def shapes(program: Program) -> Snapshot:
        """What the checkpoints of a run hold, without computing any of it."""
        seeds = program.config.seeds
        state = program.abstract_state() if seeds == 1 else several_seeds.abstract_state(program)
        shapes = jax.eval_shape(lambda state: Snapshot.first(state, seeds), state)
        return abstract_everywhere(program.spread.mesh, shapes)

    @property
    def chosen(self) -> Best:
        """The best parameters, or the newest as long as none have validated."""
        newest = self.state.params if self.state.average is None else self.state.average
        if np.ndim(self.best.step):
            has_one = self.best.step > 0
            params = several_seeds.chosen(has_one, self.best.params, newest)
            return self.best._replace(
                params=params, step=jnp.where(has_one, self.best.step, self.state.step)
            )
        if self.best.step:
            return self.best
        return self.best._replace(params=newest, step=self.state.step)


class Checkpoints:
    """The checkpoints in a run's folder, the newest `keep` of them.

    `about` is JSON that each checkpoint is to say of its run; it may be replaced at any time. Of
    several processes the first writes, and each reads for itself: none ever waits for another.
    `store` is where the run is kept, if that is not its folder. `allowed` raises what is to be
    raised where this process may no longer write.
    """

    def __init__(
        self,
        run: Path,
        *,
        keep: int = KEPT,
        about: Mapping[str, Any] | None = None,
        store: RunStore | None = None,
        allowed: Callable[[], None] = lambda: None,
    ):
        self._allowed = allowed
        self.folder = run.resolve() / "checkpoints"
        self._store = store
        self.about = about or {}
        self.damaged: list[str] = []
        """What `restore` passed over, and why."""
        self._keep = keep
        self._whole: frozenset[int] = frozenset()  # those read or written here
        self._bad: frozenset[int] = frozenset()
        self._background = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

    @property
    def shown(self) -> str:
        """Where they are, as a user would name it."""
        return str(self.folder) if self._store is None else f"{self._store.address}/checkpoints"

    @property
    def durable(self) -> int | None:
        """The step of the newest checkpoint that is known to be complete."""
        return max(self._whole, default=None)

    @property
    def is_writing(self) -> bool:
        """Whether one is being written at the moment."""
        return self._pending is not None and not self._pending.done()

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, newest first; some may be damaged."""
        return steps_in(self.folder) if self._store is None else self._store.steps()

    def save(self, snapshot: Snapshot) -> None:
        """Copy to the host, and write in the background, once what is being written is done.

        Raises CheckpointError if an earlier one could not be written.
        """
        self._wait()
        step = int(snapshot.state.step)
        if jax.process_index() or step in self._whole:
            return
        about = json.loads(json.dumps(self.about))  # as it will be read
        packed = pack(jax.tree.leaves(snapshot))  # training goes on in the same buffers
        self._pending = self._background.submit(self._write, step, packed, about)

    def check(self) -> None:
        """Raise CheckpointError if a checkpoint could not be written in the background."""
        if self._pending is not None and self._pending.done():
            self._wait()

    def read(self, step: int, like: Snapshot) -> Snapshot:
        """A checkpoint as arrays of the host, in the structure of `like`.

        Raises DamagedCheckpointError if it does not hold what was written.
        """
        self._finish_writing()
        try:
            return self._read(step, like)
        except DamagedCheckpointError:
            self._bad |= {step}
            raise

    def _read(self, step: int, like: Snapshot) -> Snapshot:
        if self._store is not None:
            try:
                self._store.fetch_checkpoint(step)
            except DamagedError as error:
                raise DamagedCheckpointError(str(error)) from error
        manifest = self.manifest(step)
        if layouts(manifest) != [layout(leaf) for leaf in jax.tree.leaves(like)]:
            raise UserError(
                f"{self.shown}/{step} is of another model or optimiser: config.json is not "
                f"the one it was written with. Put that back, or start a new run."
            )
        arrays = read_arrays(self.folder, step, manifest)
        self._whole |= {step}
        return jax.tree.unflatten(jax.tree.structure(like), arrays)

    def manifest(self, step: int) -> dict[str, Any]:
        """What a checkpoint says of itself, "about" included."""
        return read_manifest(self.folder, step)

    def restore(self, like: Snapshot) -> Snapshot:
        """The newest checkpoint that is whole, with its arrays where those of `like` are."""
        self._finish_writing()
        self.damaged = []
        for step in self.steps():
            try:
                found = self.read(step, like)
            except DamagedCheckpointError as error:
                self.damaged.append(str(error))
            else:
                return jax.tree.map(_placed_like, found, like)
        if not self.damaged:
            raise UserError(f"{self.shown}: no checkpoint yet; run `gtjax resume` first")
        raise UserError("\n".join(["there is no checkpoint that is whole:", *self.damaged]))

    def _finish_writing(self) -> None:
        if self._pending is not None:
            wait([self._pending])

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, step: int, packed: Packed, about: dict[str, Any]) -> None:
        self._allowed()
        try:
            write_checkpoint(self.folder, step, packed, about)
            if self._store is not None:
                self._store.push_checkpoint(step)
        except Exception as error:
            last = "There is none before it."
            if self.durable is not None:
                last = f"The last good checkpoint (step {self.durable}) is intact."
            why = str(error) if isinstance(error, StoreError) else f"{reason(error)}."
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.shown}: {why} {last}"
            ) from error
        self._whole, self._bad = self._whole | {step}, self._bad - {step}
        self._allowed()  # writing may have taken long
        self._remove_others(step)

    def _remove_others(self, step: int) -> None:
        """Keep the newest up to this step: training went on from before those after it."""
        there = self.steps()
        kept = [each for each in there if each <= step and each not in self._bad][: self._keep]
        for each in set(there) - set(kept):
            self._whole -= {each}
            with contextlib.suppress(OSError):  # it is tried again after the next one
                remove_checkpoint(self.folder, each)
        if self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.remove_checkpoints(set(there) - set(kept))

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._background.shutdown()
        if kind is None:
            self._wait()


def _placed_like(array: np.ndarray, like: Any) -> Any:
    """`like` may also be of the host, or a shape with a place."""
    sharding = getattr(like, "sharding", None)
    return array if sharding is None else jax.device_put(array, sharding)
