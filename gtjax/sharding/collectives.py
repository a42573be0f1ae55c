"""What a compiled program moves between devices, read from its HLO.

Every collective is counted by the bytes that the busiest device receives, and once, also where it
stands in a loop. Padding counts, since it travels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
SIZES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}
KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
KINDS += ("ragged-all-to-all",)

_CALL = re.compile(rf"= (?P<type>\(.*?\)|\S+) (?P<kind>{'|'.join(KINDS)})(?:-start)?\(")
_SHAPE = re.compile(r"\b([a-z]+\d+|pred)\[([\d,]*)\]")
_GROUP = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA_GROUPS = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[(?P<mesh>.*?)\] \{(?P<axes>.*?)\}")
_AXIS = re.compile(r"'(\w+)'(?:=(\d+)|:\(\d+\)(\d+))?")
_PAIRS = re.compile(r"source_target_pairs=\{(\{.*?\})\}")


@dataclass(frozen=True)
class Collective:
    """One collective operation of a program."""

    kind: str
    devices: int
    received: dict[int, float]  # bytes by device; key -1 stands for every device

    def received_by(self, device: int) -> float:
        """Bytes that a device receives."""
        return self.received.get(-1, self.received.get(device, 0.0))


def collectives(hlo: str) -> list[Collective]:
    """The collectives in a compiled program's text (`compiled.as_text()`)."""
    return [_collective(line, match) for line in hlo.splitlines() if (match := _CALL.search(line))]


def bytes_received(hlo: str, devices: int) -> dict[str, float]:
    """Bytes that the busiest device receives, by kind of collective."""
    found = collectives(hlo)
    kinds = {each.kind for each in found}
    return {
        kind: max(
            sum(each.received_by(device) for each in found if each.kind == kind)
            for device in range(devices)
        )
        for kind in sorted(kinds)
    }


def _collective(line: str, match: re.Match[str]) -> Collective:
    kind, result = match["kind"], match["type"]
    shapes = [_bytes(*shape) for shape in _SHAPE.findall(result)]
    asynchronous = f"{kind}-start(" in line
    if asynchronous and len(shapes) > 1 and kind in ("all-gather", "collective-permute"):
        # The result is (operands, results, ...context): the results are in its second half.
        shapes = shapes[1:2] if kind == "collective-permute" else shapes[len(shapes) // 2 :]
    total = sum(shapes)
    if kind == "collective-permute":
        pairs = _PAIRS.search(line)
        targets = re.findall(r"\{\d+,(\d+)\}", pairs[1]) if pairs else []
        return Collective(kind, 0, {int(target): total for target in targets})
    size = _group_size(line)
    share = {
        "all-gather": total * (size - 1) / size,
        "all-to-all": total * (size - 1) / size,
        "reduce-scatter": total * (size - 1),
        "all-reduce": 2 * total * (size - 1) / size,
        "ragged-all-to-all": total,  # the most that it may be: sizes are data
    }[kind]
    return Collective(kind, size, {-1: share})


def _group_size(line: str) -> int:
    if match := _GROUP.search(line):
        return len(match[1].split(","))
    if match := _IOTA_GROUPS.search(line):
        return int(match[2])
    if match := _MESH_GROUPS.search(line):
        sizes = {name: int(size) for name, size, _ in _AXIS.findall(match["mesh"])}
        axes = _AXIS.findall(match["axes"])
        return math.prod(int(part) if part else sizes[name] for name, _, part in axes)
    raise ValueError(f"a collective without groups: {line.strip()[:200]}")


def _bytes(kind: str, sizes: str) -> float:
    return SIZES[kind] * math.prod(int(size) for size in sizes.split(",") if size)
