"""How fast devices compute and talk: measured, or published for hardware one does not have."""

from gtjax.hardware.presets import PRESETS, preset
from gtjax.hardware.profile import (
    COLLECTIVES,
    Compute,
    Curve,
    HardwareProfile,
    OpPoint,
    read_profile,
)

__all__ = [
    "COLLECTIVES",
    "PRESETS",
    "Compute",
    "Curve",
    "HardwareProfile",
    "OpPoint",
    "preset",
    "read_profile",
]
