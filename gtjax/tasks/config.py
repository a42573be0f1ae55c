"""What tasks leave open, as it is configured; free of jax, so that `--help` is instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TaskConfig:
    """What is asked beside the name of the task."""

    loss: str = "auto"
    """What training makes smaller: that of the task, or your own function, module:function."""
    pool: Literal["mean", "sum", "max", "attention"] = "mean"
    """Tasks of whole graphs: how the nodes of a graph become one row."""
    decoder: Literal["dot", "bilinear", "mlp"] = "dot"
    """Links: how two embeddings become a score."""
    val_links: float = 0.05
    """Links: share of the edges held out for validation."""
    test_links: float = 0.1
    """Links: share of the edges held out for test."""
    negatives: int = 1
    """Links: pairs that are drawn as negatives for each edge, anew in each step."""
    true_negatives: bool = False
    """Links: draw again what turns out to be a training edge, with its list on every device."""

    def __post_init__(self) -> None:
        for name in ("val_links", "test_links"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is above 0 and below 1; found {getattr(self, name)}")
        if self.val_links + self.test_links >= 1:
            together = self.val_links + self.test_links
            raise ValueError(f"val_links and test_links are below 1 together; found {together}")
        if self.negatives < 1:
            raise ValueError(f"negatives is at least 1; found {self.negatives}")
