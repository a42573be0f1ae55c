"""The settings of all recipes; free of jax, so that `--help` is instant.

A recipe is used where its first number is above 0; any of them go together. What is done after
training has settings of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RecipeConfig:
    """What training does beyond the loss of the task; see `gtjax/recipes/README.md`."""

    consistency: float = 0.0
    """Weight of the squared distance of several forward passes from their sharpened mean (GRAND);
    above 0 uses it."""
    consistency_passes: int = 4
    """Forward passes of a step, each with dropout of its own."""
    consistency_temperature: float = 0.5
    """How much their mean is sharpened: the less, the more; 1 does not sharpen."""
    sharpening: float = 0.0
    """Weight of the entropy of unlabelled nodes minus that of labelled ones; above 0 uses it."""
    flag_steps: int = 0
    """Passes over features that are moved to where the loss is larger (FLAG), 3 in the paper; above
    0 uses it."""
    flag_size: float = 1e-3
    """How far each pass moves a feature, and the first draw at most."""
    flag_unlabelled: float = 1.0
    """How much further those of nodes that are not trained on."""

    def __post_init__(self) -> None:
        for name in ("consistency", "sharpening", "flag_steps", "flag_unlabelled"):
            if getattr(self, name) < 0:
                raise ValueError(f"recipe.{name} is not negative; found {getattr(self, name)}")
        if self.consistency_passes < 2:
            raise ValueError(
                f"recipe.consistency_passes is at least 2, to have what to compare; found "
                f"{self.consistency_passes}"
            )
        if not 0 < self.consistency_temperature <= 1:
            raise ValueError(
                f"recipe.consistency_temperature is above 0 and at most 1; found "
                f"{self.consistency_temperature}"
            )
        if self.flag_size <= 0:
            raise ValueError(f"recipe.flag_size is positive; found {self.flag_size}")


@dataclass(frozen=True)
class SmoothConfig:
    """What is done to the answers of the best parameters; see `gtjax/recipes/smooth.py`."""

    method: Literal["none", "labels", "correct_and_smooth"] = "none"
    """"correct_and_smooth" spreads the errors on training nodes, then answers and labels, along
    edges (Huang et al. 2020); "labels" spreads training labels alone, for comparison."""
    correct: float = 0.8
    """Share of neighbours in each round of spreading errors."""
    smooth: float = 0.8
    """Share of neighbours in each round of spreading answers, or labels."""
    rounds: int = 50
    """Rounds of each."""
    scale: float = 0.0
    """What spread errors are multiplied by, those of training nodes held in each round; 0 makes
    them as large as errors on training nodes are on average."""
    choose: bool = False
    """Choose both shares among a few, by the metric of validation."""

    def __post_init__(self) -> None:
        for name in ("correct", "smooth"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"smooth.{name} is in 0..1; found {getattr(self, name)}")
        if self.rounds < 1:
            raise ValueError(f"smooth.rounds is at least 1; found {self.rounds}")
        if self.scale < 0:
            raise ValueError(f"smooth.scale is not negative; found {self.scale}")
