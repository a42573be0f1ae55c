"""What a batching is: which part of the graph each step of a run sees, and how it is laid out.

A batching is a file and a line in `BATCHINGS`. It makes the `Batches` of a run: what step number n
trains on, as a function of the seed and the number alone, so that a run that is resumed goes on as
if it had not stopped; all in the same shapes, so that a step is compiled once. Evaluation always
sees the whole graph, laid out for the strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from gtjax.batching.chunked_graph import ChunkedGraph
from gtjax.batching.config import BatchingSettings
from gtjax.batching.prepare import Prepared, place_batch
from gtjax.core.progress import Progress
from gtjax.partition import Partition
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Layout, Refusal


class Batches(Protocol):
    """What the steps of a run see."""

    @property
    def whole(self) -> Any:
        """All of the graph, for evaluation: a `Batch`, or a `ChunkedGraph` to be read in chunks."""
        ...

    @property
    def partition_id(self) -> str:
        """Hash of which part owns each node."""
        ...

    def at(self, step: int) -> Any:
        """What step number `step` trains on, counted from 0: as `whole`."""
        ...

    def changes(self, step: int) -> bool:
        """Whether a new batch has to be placed for this step."""
        ...

    def span(self, step: int) -> int | None:
        """How many steps from this one on see the same; None if all."""
        ...

    def facts(self, step: int) -> dict[str, float]:
        """What there is to say of the batch that begins with this step, for the metrics."""
        ...


@dataclass(frozen=True)
class Whole:
    """A graph that is prepared, to make batches from; laid out for evaluation when that is asked.

    lay_out: shares out the nodes and lays out the edges, as evaluation needs them.
    chunked: the graph to be read in chunks, where evaluation is to go through it that way.
    """

    host: Prepared
    evaluation: Spread
    lay_out: Callable[[], tuple[Layout, Partition]]
    chunked: ChunkedGraph | None = None

    @cached_property
    def _laid_out(self) -> tuple[Layout, Partition]:
        return self.lay_out()

    @property
    def partition(self) -> Partition:
        """Which part owns each node."""
        return self._laid_out[1]

    @cached_property
    def batch(self) -> Any:
        """All of the graph on the devices, a `Batch`; or the `ChunkedGraph`."""
        if self.chunked is not None:
            return self.chunked
        return place_batch(self.host, self._laid_out[0], self.evaluation)


class Batching(Protocol):
    """One way of choosing what steps see."""

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether every step sees the whole graph: then its gradients are exact."""
        ...

    @property
    def reads_stored(self) -> bool:
        """Whether it reads a stored graph piece by piece; others read all of it into memory."""
        ...

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """Why it cannot be, if it cannot.

        couples_nodes: a setting by which a node depends on all others, edges or not.
        """
        ...

    def training(self, evaluation: Spread) -> Spread:
        """How a training step is spread over the devices that evaluate with this."""
        ...

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """The batches of a run, of which the first are placed."""
        ...
