"""How fast devices compute and talk: measured, or published for hardware one does not have."""

from gtjax.hardware.presets import PRESETS, preset
from gtjax.hardware.profile import (
    COLLECTIVES,
    AttentionPoint,
    Compute,
    Curve,
    HardwareProfile,
    read_profile,
)

__all__ = [
    "COLLECTIVES",
    "PRESETS",
    "AttentionPoint",
    "Compute",
    "Curve",
    "HardwareProfile",
    "preset",
    "read_profile",
]
