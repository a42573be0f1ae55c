"""`make_plan`: prices everything that could be done, and takes the fastest that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gtjax.hardware.profile import HardwareProfile
from gtjax.planner.candidates import Option
from gtjax.planner.cuts import Parts
from gtjax.planner.fastest import fastest
from gtjax.planner.plan import Candidate, Plan
from gtjax.planner.price import Locality, price
from gtjax.planner.reasons import decisive, with_reason
from gtjax.planner.step_work import Work

SAFE = 0.9  # share of a device's memory that a plan may fill: compilers and runtimes need some


class Cuts(Protocol):
    """Where cuts come from: a graph at hand, or numbers."""

    def parts(self, partitioner: str, count: int, most: int) -> Parts:
        """What `count` parts cut, of a graph that is cut into at most `most`."""
        ...

    def exact(self, partitioner: str, count: int) -> Parts:
        """The same as the partitioner makes them."""
        ...


def make_plan(
    choices: Sequence[Option],
    cuts: Cuts,
    works: Mapping[str, Work],
    hardware: HardwareProfile,
    *,
    kernel: str = "auto",
    locality: Locality | None = None,
    memory_bytes: float | None = None,
    bounds: tuple[Cuts, Cuts] | None = None,
    prepared: Any = None,
) -> Plan:
    """Price every option, and choose the fastest that fits.

    works:  what a step does, by rematerialisation.
    bounds: cuts at best and at worst, where `cuts` is supposed.
    prepared: the graph as the plan saw it, for whoever carries the plan out.
    """
    devices = choices[0].mesh.devices
    capacity = memory_bytes or SAFE * hardware.memory_bytes
    priced: dict[Option, Candidate] = {}

    def look(option: Option, parts: Parts | None = None) -> Candidate:
        work = works[option.remat]
        refused = option.refusal(work.works)
        if refused is not None:
            return Candidate(option, None, None, refused.reason, refusal=refused)
        parts = parts or cuts.parts(option.partitioner, option.mesh.node, devices)
        settings = (work, option.mesh, hardware, locality, kernel)
        found = price(option.strategy, parts.cut, *settings)
        ends: list[float | None] = [None, None]
        if bounds is not None:
            others = [c.parts(option.partitioner, option.mesh.node, devices) for c in bounds]
            ends = [price(option.strategy, o.cut, *settings).seconds for o in others]
        return Candidate(option, found, parts, low=ends[0], high=ends[1])

    for option in choices:
        priced[option] = look(option)
    while True:
        best = fastest(priced.values(), capacity)
        if best is None or best.parts is None or not best.parts.joined:
            break
        # Its parts were joined from smaller ones: what the partitioner makes of it decides.
        for option, each in priced.items():
            same = option.mesh.node == best.option.mesh.node
            if same and option.partitioner == best.option.partitioner and each.price:
                priced[option] = look(option, cuts.exact(option.partitioner, option.mesh.node))
    ranked = sorted(priced.values(), key=lambda c: c.price.seconds if c.price else float("inf"))
    ranked = [with_reason(each, best, capacity) for each in ranked]
    if best is not None:
        ranked.sort(key=lambda c: c.option != best.option)
    plan = Plan(
        best,
        tuple(ranked),
        hardware,
        devices,
        capacity,
        kernel,
        supposed=bounds is not None,
        prepared=prepared,
    )
    return dataclasses.replace(plan, flip=decisive(plan))
