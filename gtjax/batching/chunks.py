"""The whole graph in every step, chunk by chunk from disk: exact, in as much memory as one says.

For graphs whose step does not fit into memory. A step goes layer by layer over chunks of nodes,
with activations in files where they do not fit (`gtjax/chunks`); gradients are those of `full`. It
costs reading and writing every activation a few times a step: choose it where nothing else fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gtjax.batching.base import Batches, Whole
from gtjax.batching.chunked_graph import chunked_graph
from gtjax.batching.config import BatchingSettings
from gtjax.batching.full import OneBatch
from gtjax.core.progress import Progress
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Refusal


@dataclass(frozen=True)
class Chunks:
    """Every step sees everything, a chunk at a time."""

    name: str = "chunks"
    sees_all: bool = True
    reads_stored: bool = True

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """On one device, with models that compute each node from its neighbours alone."""
        if spread.shape.devices > 1:
            return Refusal(
                f"--batching chunks runs on one device; there are {spread.shape.devices}",
                "Use --devices 1, or --batching full",
            )
        if couples_nodes is not None:
            return Refusal(
                f"--batching chunks computes nodes a chunk at a time, and with {couples_nodes} a "
                f"node depends on all others",
                "Change that setting, or use --batching full",
            )
        return None

    def training(self, evaluation: Spread) -> Spread:
        """As evaluation."""
        return evaluation

    def open(
        self, graph: Any, settings: BatchingSettings, progress: Progress | None = None
    ) -> OneBatch:
        """The graph to be read chunk by chunk."""
        return OneBatch(chunked_graph(graph, settings, progress), "one part")

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """Nothing is placed on a device, so there is nothing to make it from."""
        raise TypeError("chunks are opened, and not made of a graph on the devices")
