"""What orbax writes and reads of a checkpoint; imported with the first, since that takes time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from gtjax.runs.checkpoint_files import MANIFEST

ARRAYS = "arrays"
BYTES = "bytes"


def save(folder: Path, step: int, data: np.ndarray, manifest: dict[str, Any]) -> None:
    """Write bytes and a manifest as FOLDER/STEP.

    By a manager of its own, since one that has failed remembers what is not there.
    """
    options = ocp.CheckpointManagerOptions(
        create=False,  # it is there
        enable_async_checkpointing=False,  # this is a thread of its own already
        save_root_metadata=False,
        lightweight_initialize=True,  # other checkpoints may be damaged
        multiprocessing_options=_alone(),
    )
    handlers = {
        ARRAYS: _array_handler(),
        MANIFEST: ocp.JsonCheckpointHandler(multiprocessing_options=_alone()),
    }
    args = {ARRAYS: ocp.args.PyTreeSave({BYTES: data}), MANIFEST: ocp.args.JsonSave(manifest)}
    with (
        _quiet(),
        ocp.CheckpointManager(folder, options=options, item_handlers=handlers) as manager,
    ):
        manager.save(step, args=ocp.args.Composite(**args), force=True)


def restore(path: Path) -> np.ndarray:
    """The bytes of a checkpoint."""
    args = ocp.args.PyTreeRestore(restore_args={BYTES: ocp.RestoreArgs(restore_type=np.ndarray)})
    with (
        _quiet(),
        ocp.Checkpointer(_array_handler(), multiprocessing_options=_alone()) as checkpointer,
    ):
        return np.asarray(checkpointer.restore(path, args=args)[BYTES])


def _array_handler() -> ocp.PyTreeCheckpointHandler:
    return ocp.PyTreeCheckpointHandler(use_compression=False, multiprocessing_options=_alone())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orbax logs, with its traceback, what it raises all the same."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return "orbax" not in Path(record.pathname).parts

    logger = logging.getLogger("absl")
    logger.addFilter(is_of_others)
    try:
        yield
    finally:
        logger.removeFilter(is_of_others)


def _alone() -> ocp.options.MultiprocessingOptions:
    """This process waits for no other."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
