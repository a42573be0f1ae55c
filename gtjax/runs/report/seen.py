"""What the best parameters say of nodes, brought to the host as far as a report looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from gtjax.batching.prepare import Batch
from gtjax.graph import Names
from gtjax.runs.program import Outputs
from gtjax.tasks.base import Task


@dataclass(frozen=True)
class Seen:
    """The outputs for a batch of the whole graph, in the batch's order and on the devices."""

    task: Task
    outputs: Outputs
    batch: Batch
    names: Names = field(default_factory=Names)

    @property
    def is_here(self) -> bool:
        """Whether this process can read it: devices of others keep what they have."""
        arrays = jax.tree.leaves((self.outputs, self.batch.targets, self.batch.inputs.node_ids_n))
        return all(getattr(each, "is_fully_addressable", True) for each in arrays)

    def target(self, name: str) -> np.ndarray:
        """One of the task's targets."""
        return np.asarray(self.batch.targets[name])

    def places(self, wanted_n: np.ndarray | None = None) -> np.ndarray:
        """Where the wanted nodes stand, or all of them, in the order of the user's graph."""
        valid_n, ids_n = self.batch.inputs.valid_n, np.asarray(self.batch.inputs.node_ids_n)
        there_n = np.ones(len(ids_n), bool) if valid_n is None else np.asarray(valid_n)
        at = np.flatnonzero(there_n if wanted_n is None else there_n & wanted_n)
        return at[np.argsort(ids_n[at])]

    def node_ids(self, at: np.ndarray) -> np.ndarray:
        """The numbers in the user's graph of the nodes that stand there."""
        return np.asarray(self.batch.inputs.node_ids_n)[at]

    def read(self, rows_n: Any, at: np.ndarray) -> np.ndarray:
        """The rows that stand there."""
        return np.asarray(rows_n[at]).astype(np.float32)
