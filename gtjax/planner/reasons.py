"""Why a plan is what it is: the reason against each candidate, and what the choice rests on."""

from __future__ import annotations

import dataclasses

from gtjax.core.errors import UserError
from gtjax.hardware.profile import HardwareProfile
from gtjax.planner.beyond import told
from gtjax.planner.fastest import fastest
from gtjax.planner.plan import Candidate, Plan, halo_share
from gtjax.planner.price import Price, communication_seconds

# How many times as fast or as slow links may be for the choice to be asked again.
FACTORS = tuple(10 ** (k / 8) for k in range(1, 25))

SLOWER = 1.005  # times, below which a figure of two places would read 1.00x
LOPSIDED = 1.1  # times the mean, from which on a part is worth naming
# From the one that keeps everything to the one that keeps least.
RECOMPUTING = ("none", "elementwise", "block")


def with_reason(each: Candidate, best: Candidate | None, capacity: float) -> Candidate:
    """The candidate with what speaks against it; the best has nothing against it."""
    if each.price is None or (best is not None and each.option == best.option):
        return each
    if each.price.peak_bytes > capacity:
        text = f"needs {_gib(each.price.peak_bytes)} of {_gib(capacity)}"
        return dataclasses.replace(each, reason=text)
    assert best is not None
    assert best.price is not None
    times = each.price.seconds / best.price.seconds
    lost = each.price.moved_bytes >= best.price.moved_bytes  # by the rule for those as fast
    if times < SLOWER and (lost or times <= 1):
        return dataclasses.replace(each, reason=_tie(each.price, best.price))
    by = f"{times:.2f}x" if times >= SLOWER else f"{100 * (times - 1):.1g} %"
    return dataclasses.replace(each, reason=f"{by} slower: {_what_costs(each, best)}")


def _tie(mine: Price, chosen: Price) -> str:
    """Why one that is as fast was not taken: the choice moves less, or came first."""
    as_fast = f"as fast ({mine.seconds / chosen.seconds:.2f}x)"
    more = mine.moved_bytes - chosen.moved_bytes
    if more <= 0:
        return f"{as_fast} and moves as much: the first of both was taken"
    if chosen.moved_bytes and mine.moved_bytes >= SLOWER * chosen.moved_bytes:
        return f"{as_fast}, but moves {mine.moved_bytes / chosen.moved_bytes:.2f}x the bytes"
    return f"{as_fast}, but moves {more / 1e6:.2g} MB more"


def _what_costs(each: Candidate, best: Candidate) -> str:
    """In words, the part of the price that is most above that of the choice."""
    assert each.price is not None
    assert best.price is not None
    more = {
        name: getattr(each.price, name) - getattr(best.price, name)
        for name in ("communication", "ops", "dense", "memory")
    }
    most = max(more, key=lambda name: more[name])
    if most == "communication":
        return _what_moves(each, best)
    if most == "memory":
        return "touches more memory"
    assert each.parts is not None
    assert best.parts is not None
    cut, other = each.parts.cut, best.parts.cut
    times = f"{getattr(each.price, most) / max(getattr(best.price, most), 1e-12):.2f}x as long"
    if most == "ops" and cut.edge_imbalance > max(LOPSIDED, other.edge_imbalance):
        return f"its fullest part has {cut.edge_imbalance:.2f} times the mean edges"
    if most == "dense" and cut.node_imbalance > max(LOPSIDED, other.node_imbalance):
        return f"its largest part has {cut.node_imbalance:.2f} times the mean nodes"
    if each.option.remat != best.option.remat:
        keeps = RECOMPUTING.index(each.option.remat) < RECOMPUTING.index(best.option.remat)
        return f"{'keeps' if keeps else 'recomputes'} more (remat {each.option.remat})"
    return f"{'ops' if most == 'ops' else 'dense layers'} take {times}"


def _what_moves(each: Candidate, best: Candidate) -> str:
    """Bytes where they are more, else the time that they take."""
    assert each.price is not None
    assert best.price is not None
    if each.price.moved_bytes <= best.price.moved_bytes:
        mine, other = each.price.communication, best.price.communication
        return f"receiving takes {mine:.2g} s instead of {other:.2g}"
    moved = f"{each.price.moved_bytes / 1e6:,.1f} MB to receive"
    if each.option.strategy.name in ("node_halo", "node_ring"):
        return f"{moved}, a halo of {100 * halo_share(each):.0f} % of a part"
    return moved


def decisive(plan: Plan) -> str:
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
    for word in ("below", "above"):
        for factor in FACTORS:
            scale = 1 / factor if word == "below" else factor
            winner = _winner(plan, scale)
            if winner is not None and _way(winner) != _way(best):
                changes.append(f"{word} {_rate(speed * scale)} {_way(winner)} wins")
                break
    flips = "; ".join(changes) or "no speed of the links from 1/1000 to 1000 times that changes it"
    return f"{facts}; {flips}."


def _way(candidate: Candidate) -> str:
    return f"{candidate.option.name} on {candidate.option.mesh}"


def _winner(plan: Plan, scale: float) -> Candidate | None:
    """What would be chosen if links were so many times as fast."""
    hardware = plan.hardware.scaled(scale)
    able = []
    for each in plan.candidates:
        if each.price is None:
            continue
        old = each.price
        if plan.chosen is not None and each.option.remat != plan.chosen.option.remat:
            continue
        moving = communication_seconds(old.transfers, each.option.mesh, hardware, old.hiding)
        again = dataclasses.replace(old, communication=moving)
        able.append(dataclasses.replace(each, price=again))
    return fastest(able, plan.memory_bytes)


def link_speed(hardware: HardwareProfile, best: Candidate, devices: int) -> float:
    """Bytes a second that a device receives in large messages along the axis that matters."""
    hosts = -(-devices // max(1, hardware.devices_per_host))
    mesh = best.option.mesh
    size = max(mesh.node, mesh.feature)
    kind = "all-to-all" if mesh.node == 1 else "collective-permute"
    return hardware.curve(kind, size, hosts).bandwidth


def refuse_what_does_not_fit(plan: Plan) -> None:
    """Raise a `UserError` that says what would run, where nothing fits."""
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
        + (f"\n{told(list(plan.beyond))}" if plan.beyond else "")
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"


def _rate(speed: float) -> str:
    return f"{speed / 1e9:.2g} GB/s" if speed >= 1e8 else f"{speed / 1e6:.2g} MB/s"
