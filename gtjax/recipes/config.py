"""The settings of all recipes; free of jax, so that `--help` is instant.

A recipe is used where its first number is above 0; any of them go together.
"""

from __future__ import annotations

from dataclasses import dataclass


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
