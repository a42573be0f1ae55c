"""What one device would take for the same step, for those who spread a graph that needs it not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gtjax.hardware.profile import HardwareProfile
from gtjax.partition import EvenCut
from gtjax.planner.price import Locality, price
from gtjax.planner.step_work import Work
from gtjax.strategies import STRATEGIES, MeshShape

REMARKABLE = 1.1  # times as long as one device, from which on it is said: less is within the error


def one_device_seconds(
    nodes: int,
    edges: int,
    works: Mapping[str, Work],
    hardware: HardwareProfile,
    *,
    capacity: float,
    kernel: str = "auto",
    locality: Locality | None = None,
) -> float | None:
    """Predicted seconds of a step while the other devices idle; None where it does not fit.

    capacity: bytes that a device may use. Simulated devices share what their processor has.
    """
    shared = hardware.devices_per_host if hardware.platform == "cpu" else 1
    cut, found = EvenCut(1, nodes, edges, 0.0, 0.0), []
    for work in works.values():
        alone = price(STRATEGIES["single"], cut, work, MeshShape(), hardware, locality, kernel)
        if alone.peak_bytes <= shared * capacity:
            found.append((alone.dense + alone.ops) / hardware.compute.alone + alone.memory)
    return min(found, default=None)


def slower_than_one(
    plan: Mapping[str, Any] | None, devices: int, processes: int, measured: float | None = None
) -> str | None:
    """A remark on steps that take longer than on one device, as the stored plan knows it.

    measured: seconds of a step as it ran; without it what the plan predicts. Published figures of
    other hardware are compared with predictions only.
    """
    alone = None if plan is None else plan.get("one_device_seconds")
    if plan is None or plan["chosen"] is None or alone is None or devices == 1:
        return None
    if measured is not None and plan["hardware"]["preset"]:
        return None
    seconds = plan["chosen"]["seconds"] if measured is None else measured
    if seconds <= REMARKABLE * alone:
        return None
    many = f"{devices} devices" + (f" in {processes} processes" if processes > 1 else "")
    take = "are predicted to take" if measured is None else "took"
    return (
        f"{many} {take} {seconds:.3g} s/step, {seconds / alone:.1f}x as long as one device alone, "
        f"which is predicted to take {alone:.3g} s/step: try one device in one process"
    )
