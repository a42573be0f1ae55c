"""The whole graph in every step: exact gradients, and nothing to place more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gtjax.batching.base import Batches, Whole
from gtjax.batching.config import BatchingSettings
from gtjax.core.progress import Progress
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Refusal


@dataclass(frozen=True)
class OneBatch:
    """The same for training and evaluation: a `Batch`, or a `ChunkedGraph`."""

    whole: Any
    partition_id: str

    def at(self, step: int) -> Any:
        """The one batch."""
        return self.whole

    def changes(self, step: int) -> bool:
        """Never."""
        return False

    def span(self, step: int) -> int | None:
        """All."""
        return None

    def facts(self, step: int) -> dict[str, float]:
        """Nothing is left out."""
        return {}


@dataclass(frozen=True)
class Full:
    """Every step sees everything."""

    name: str = "full"
    sees_all: bool = True
    reads_stored: bool = False

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """Always."""
        return None

    def training(self, evaluation: Spread) -> Spread:
        """As evaluation."""
        return evaluation

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """What is there."""
        return OneBatch(whole.batch, whole.partition.fingerprint)
