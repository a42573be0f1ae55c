"""`make_plan`: prices everything that could be done, takes the fastest that fits, and says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gtjax.graph.errors import UserError
from gtjax.hardware.profile import HardwareProfile
from gtjax.partition import Partition
from gtjax.planner.candidates import Option, exchange_of, why_not
from gtjax.planner.cuts import Parts
from gtjax.planner.price import Locality, Price, communication_seconds, price
from gtjax.planner.work import ModelWork

SAFE = 0.9  # share of a device's memory that a plan may fill: compilers and runtimes need some
TIES = 1.02  # plans as close as this are taken in the order of the options


class Cuts(Protocol):
    """Where cuts come from: a graph at hand, or numbers."""

    exact: Any  # (partitioner, count) -> Parts as the partitioner makes them; None if it cannot

    def parts(self, partitioner: str, count: int, most: int) -> Parts:
        """What `count` parts cut, of a graph that is cut into at most `most`."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A way of running a step, its price, and why it was not taken."""

    option: Option
    price: Price | None
    parts: Parts | None
    reason: str = ""  # empty for the one that is taken
    low: float | None = None  # seconds, at best and at worst, where the cut is only supposed
    high: float | None = None

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
            "reason": self.reason,
        }
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
    flip: str = ""  # the decisive comparison, and where the choice would change

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
            "hardware": {
                "name": self.hardware.name,
                "preset": self.hardware.preset,
                "source": self.hardware.source,
                "date": self.hardware.date,
            },
        }


def make_plan(
    choices: Sequence[Option],
    cuts: Cuts,
    work: ModelWork,
    hardware: HardwareProfile,
    *,
    kernel: str,
    locality: Locality | None = None,
    memory_bytes: float | None = None,
    bounds: tuple[Cuts, Cuts] | None = None,
) -> Plan:
    """Price every option, and choose the fastest that fits.

    bounds: cuts at best and at worst, where `cuts` is supposed.
    """
    devices = choices[0].mesh.devices
    capacity = memory_bytes or SAFE * hardware.memory_bytes
    priced: dict[Option, Candidate] = {}

    def look(option: Option, parts: Parts | None = None) -> Candidate:
        problem = why_not(option, work.shape)
        if problem:
            return Candidate(option, None, None, problem)
        parts = parts or cuts.parts(option.partitioner, option.mesh.node, devices)
        settings = (work, option.mesh, hardware, option.remat, locality)
        found = price(option.strategy, parts.cut, *settings)
        ends: list[float | None] = [None, None]
        if bounds is not None:
            others = [c.parts(option.partitioner, option.mesh.node, devices) for c in bounds]
            ends = [price(option.strategy, o.cut, *settings).seconds for o in others]
        return Candidate(option, found, parts, low=ends[0], high=ends[1])

    for option in choices:
        priced[option] = look(option)
    while True:
        best = _best(priced.values(), capacity)
        if best is None or cuts.exact is None or best.parts is None:
            break
        if best.parts.partition is not None:
            break
        # Its parts were joined from smaller ones: what the partitioner makes of it decides.
        for option, each in priced.items():
            same = option.mesh.node == best.option.mesh.node
            if same and option.partitioner == best.option.partitioner and each.price:
                priced[option] = look(option, cuts.exact(option.partitioner, option.mesh.node))
    ranked = sorted(priced.values(), key=lambda c: c.price.seconds if c.price else float("inf"))
    ranked = [_with_reason(each, best, capacity) for each in ranked]
    if best is not None:
        ranked.sort(key=lambda c: c.option != best.option)
    plan = Plan(
        best, tuple(ranked), hardware, devices, capacity, kernel, supposed=bounds is not None
    )
    return dataclasses.replace(plan, flip=_decisive(plan))


def _best(priced: Any, capacity: float) -> Candidate | None:
    able = [c for c in priced if c.price is not None and c.price.peak_bytes <= capacity]
    if not able:
        return None
    least = min(c.price.seconds for c in able)
    return next(c for c in able if c.price.seconds <= TIES * least)


def _with_reason(each: Candidate, best: Candidate | None, capacity: float) -> Candidate:
    if each.price is None or (best is not None and each.option == best.option):
        return each
    if each.price.peak_bytes > capacity:
        text = f"needs {_gib(each.price.peak_bytes)} of {_gib(capacity)}"
        return dataclasses.replace(each, reason=text)
    assert best is not None
    assert best.price is not None
    assert each.parts is not None
    times = each.price.seconds / best.price.seconds
    return dataclasses.replace(each, reason=f"{times:.2f}x slower: {_what_costs(each, best)}")


def _what_costs(each: Candidate, best: Candidate) -> str:
    """In words, the part of the price that is most above that of the choice."""
    assert each.price is not None
    assert best.price is not None
    assert each.parts is not None
    more = {
        name: getattr(each.price, name) - getattr(best.price, name)
        for name in ("communication", "attention", "dense", "memory")
    }
    most = max(more, key=lambda name: more[name])
    cut = each.parts.cut
    if most == "communication":
        moved = f"{each.price.moved_bytes / 1e6:,.0f} MB to receive"
        if each.option.strategy.name in ("node_halo", "node_ring"):
            return f"{moved}, a halo of {100 * halo_share(each):.0f} % of a part"
        return moved
    if most == "attention":
        if cut.edge_imbalance > 1.1:
            return f"its fullest part has {cut.edge_imbalance:.2f} times the mean edges"
        return "more attention for each device"
    if most == "dense":
        if cut.node_imbalance > 1.1 and each.option.mesh.node > 1:
            return f"its largest part has {cut.node_imbalance:.2f} times the mean nodes"
        return f"recomputes more (remat {each.option.remat})"
    return "touches more memory"


def _decisive(plan: Plan) -> str:
    """One sentence: what the choice rests on, and at which speed of the links it would change."""
    best, other = plan.chosen, plan.runner_up
    if best is None or best.price is None or best.parts is None:
        return ""
    cut = best.parts.cut
    facts = f"{best.option.name} on {best.option.mesh}"
    if best.option.mesh.node > 1:
        facts += (
            f" with {best.option.partitioner} parts: {100 * cut.cut:.0f} % of the edges are cut, a "
            f"halo of {100 * halo_share(best):.0f} % of a part"
        )
    if plan.devices == 1 or other is None:
        return facts + "."
    speed = link_speed(plan.hardware, best, plan.devices)
    facts += f", over links of {_rate(speed)} {'published' if plan.hardware.preset else 'measured'}"
    changes = []
    for word, factors in (("below", _FASTER[::-1]), ("above", _FASTER)):
        for factor in factors:
            scale = 1 / factor if word == "below" else factor
            winner = _winner(plan, scale)
            if winner is not None and _way(winner) != _way(best):
                changes.append(f"{word} {_rate(speed * scale)} {_way(winner)} wins")
                break
    flips = "; ".join(changes) or "no speed of the links from 1/1000 to 1000 times that changes it"
    return f"{facts}; {flips}."


_FASTER = tuple(10 ** (k / 8) for k in range(1, 25))


def _way(candidate: Candidate) -> str:
    return f"{candidate.option.name} on {candidate.option.mesh}"


def _winner(plan: Plan, scale: float) -> Candidate | None:
    """What would be chosen if links were so many times as fast."""
    hardware = plan.hardware.scaled(scale)
    able = []
    for each in plan.candidates:
        if each.price is None or each.parts is None or not plan.fits(each.price):
            continue
        old = each.price
        if plan.chosen is not None and each.option.remat != plan.chosen.option.remat:
            continue
        moving = communication_seconds(old.transfers, each.option.mesh, hardware, old.hiding)
        again = dataclasses.replace(old, communication=moving)
        able.append(dataclasses.replace(each, price=again))
    return min(able, key=lambda c: c.price.seconds) if able else None


def link_speed(hardware: HardwareProfile, best: Candidate, devices: int) -> float:
    """Bytes a second that a device receives in large messages along the axis that matters."""
    hosts = -(-devices // max(1, hardware.devices_per_host))
    mesh = best.option.mesh
    size = max(mesh.node, mesh.feature)
    kind = "all-to-all" if mesh.node == 1 else "collective-permute"
    return hardware.curve(kind, size, hosts).bandwidth


def refuse_what_does_not_fit(plan: Plan) -> None:
    """Raise a `UserError` that says what would fit, where nothing does."""
    if plan.chosen is not None:
        return
    able = [c for c in plan.candidates if c.price is not None]
    if not able:
        reasons = "; ".join(sorted({c.reason for c in plan.candidates}))
        raise UserError(f"no strategy runs on {plan.devices} devices: {reasons}")
    least = min(able, key=lambda c: c.price.peak_bytes if c.price else float("inf"))
    assert least.price is not None
    need = least.price.peak_bytes
    times = -(-int(need) // int(plan.memory_bytes)) * plan.devices
    raise UserError(
        f"this step does not fit in {_gib(plan.memory_bytes)} a device: the least is "
        f"{_gib(need)}, with {least.option.name} on {least.option.mesh}, remat "
        f"{least.option.remat}. Use about {times} devices, or a smaller --model.hidden or "
        f"--model.layers (--memory says how much a device has, if that is wrong)."
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"


def _rate(speed: float) -> str:
    return f"{speed / 1e9:.2g} GB/s" if speed >= 1e8 else f"{speed / 1e6:.2g} MB/s"
