"""A plan: the choice, and every candidate with its price and the reason it was not taken."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from gtjax.hardware.profile import HardwareProfile
from gtjax.partition import Partition
from gtjax.planner.beyond import Way
from gtjax.planner.candidates import Option, exchange_of
from gtjax.planner.cuts import Parts
from gtjax.planner.price import Price
from gtjax.strategies import Refusal


@dataclass(frozen=True)
class Candidate:
    """A way of running a step, its price, and why it was not taken."""

    option: Option
    price: Price | None
    parts: Parts | None
    reason: str = ""  # empty for the one that is taken
    low: float | None = None  # seconds, at best and at worst, where the cut is only supposed
    high: float | None = None
    refusal: Refusal | None = None  # why it cannot run, where it cannot

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        option = self.option
        known: dict[str, Any] = {
            "name": option.name,
            "strategy": option.strategy.name,
            "inner": option.inner,
            "exchange": exchange_of(option.strategy),
            "mesh": dataclasses.asdict(option.mesh),
            "partitioner": option.partitioner,
            "remat": option.remat,
            "wire": option.wire.name,
            "reason": self.reason,
        }
        if self.refusal is not None:
            known["advice"] = self.refusal.advice
        if self.price is not None:
            known |= self.price.to_json()
        if self.low is not None:
            known["seconds_range"] = [self.low, self.high]
        if self.parts is not None:
            cut = self.parts.cut
            known["cut"] = cut.cut
            known["halo_share"] = halo_share(self)
            known["edge_imbalance"] = cut.edge_imbalance
        return known


def halo_share(candidate: Candidate) -> float:
    """The halo of the part that needs most, over the nodes of a part."""
    assert candidate.parts is not None
    cut = candidate.parts.cut
    return float(cut.halo_p.max()) / max(1.0, float(cut.nodes_p.max()))


@dataclass(frozen=True)
class Plan:
    """The choice, and every candidate with its price, the cheapest first."""

    chosen: Candidate | None  # None if nothing fits
    candidates: tuple[Candidate, ...]
    hardware: HardwareProfile
    devices: int
    memory_bytes: float  # that a device may use
    kernel: str
    supposed: bool  # the cut was supposed and not counted
    # Seconds of a step on one device, as predicted; None if it does not fit, or is not known.
    one_device_seconds: float | None = None
    beyond: tuple[Way, ...] = ()  # what would run, where nothing of this does
    flip: str = ""  # the decisive comparison, and where the choice would change
    # The graph as it was prepared for planning, so that a run of the plan need not do it again.
    prepared: Any = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def partition(self) -> Partition | None:
        """Of the choice, where there is a graph."""
        return None if self.chosen is None or not self.chosen.parts else self.chosen.parts.partition

    @property
    def runner_up(self) -> Candidate | None:
        """The fastest that fits after the choice, on another strategy or mesh."""
        if self.chosen is None:
            return None
        first = self.chosen.option
        for each in self.candidates:
            other = (each.option.name, each.option.mesh) != (first.name, first.mesh)
            if other and each.price is not None and self.fits(each.price):
                return each
        return None

    def fits(self, price: Price) -> bool:
        """Whether a device has the memory."""
        return price.peak_bytes <= self.memory_bytes

    def to_json(self) -> dict[str, Any]:
        """Plain types, for machines."""
        return {
            "chosen": None if self.chosen is None else self.chosen.to_json(),
            "why": self.flip,
            "candidates": [each.to_json() for each in self.candidates],
            "devices": self.devices,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
            "cut_is_supposed": self.supposed,
            "one_device_seconds": self.one_device_seconds,
            "beyond": [dataclasses.asdict(each) for each in self.beyond],
            "hardware": {
                "name": self.hardware.name,
                "preset": self.hardware.preset,
                "source": self.hardware.source,
                "date": self.hardware.date,
            },
        }
