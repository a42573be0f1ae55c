"""`HardwareProfile`: how fast devices compute, and how fast they talk, as measured or as published.

Links are curves and not one number, since a message of a kilobyte costs its latency and one of a
megabyte its bytes: seconds of every collective by the bytes that a device receives, for every
number of devices along a mesh axis, apart for axes within a host and axes between hosts. Arithmetic
is measured with all devices at work at once, because simulated devices share the same cores.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.hardware.disk import Disk

COLLECTIVES = ("all-gather", "reduce-scatter", "all-to-all", "collective-permute", "all-reduce")
FORMAT = 3

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Curve:
    """Seconds of a collective among so many devices on so many hosts, by bytes received."""

    collective: str
    devices: int
    hosts: int
    points: Points  # (bytes that a device receives, seconds), ascending

    def seconds(self, received: float) -> float:
        """Between measured sizes on a straight line; beyond, on that of the last two."""
        sizes, times = (np.array(column) for column in zip(*self.points, strict=True))
        times = np.maximum.accumulate(times)  # more bytes take no less time; noise says otherwise
        if received <= sizes[-1]:
            return float(np.interp(received, sizes, times))
        return float(times[-1] + (received - sizes[-1]) / self.bandwidth)

    @property
    def latency(self) -> float:
        """Seconds of the smallest message."""
        return self.points[0][1]

    @property
    def bandwidth(self) -> float:
        """Bytes received a second in large messages."""
        (near, before), (far, after) = self.points[-2:]
        whole = far / after if after else float("inf")
        rise = after - before
        # Between two noisy points the slope may be anything, but never far from the mean speed.
        slope = (far - near) / rise if rise > 0 else float("inf")
        return float(min(max(slope, whole), 2 * whole))


@dataclass(frozen=True)
class OpPoint:
    """Seconds of a kernel of an op, with every device at the same work."""

    op: str
    kernel: str
    family: str  # ops that the kernel computes alike: "softmax" or "sum"
    direction: str  # "forward" or "backward"
    edges: int
    rows: int
    senders: int  # rows of the tables that are gathered from
    heads: int
    sender_bytes: int  # gathered for each edge
    row_bytes: int  # of a receiver's row and of its result
    skew: float  # share of the edges that start from the busiest hundredth of the senders
    seconds: float


@dataclass(frozen=True)
class Compute:
    """What one device does in a second while all others work too."""

    matmul: Points  # (width, floating-point operations a second)
    stream: float  # bytes a second, read and written, of a pass over memory
    bend: float  # values a second through a normalisation and a GELU, and back
    fresh: float  # seconds for a byte of memory touched for the first time; 0 where it is kept
    gather: float  # bytes a second of rows picked by number
    scatter: float  # bytes a second of rows added by number
    ops: tuple[OpPoint, ...] = ()
    alone: float = 1.0  # how many times as fast a device is while all others idle
    overlap: float = 0.0  # share of a transfer that independent arithmetic hides

    def matmul_rate(self, width: float) -> float:
        """Operations a second of a product whose smallest side is so wide."""
        widths, rates = zip(*self.matmul, strict=True)
        return float(np.interp(width, widths, rates))


@dataclass(frozen=True)
class HardwareProfile:
    """Devices as the planner sees them."""

    name: str
    platform: str  # "cpu", "gpu" or "tpu"
    device_kind: str
    devices: int  # that were measured, or that one fast domain has
    devices_per_host: int
    memory_bytes: float  # of one device
    curves: tuple[Curve, ...]
    compute: Compute
    source: str  # how it was measured, or where the figures are published
    preset: bool = False
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    disk: Disk | None = None  # of temporary files; None: not measured, see `disk.USUAL`

    def curve(self, collective: str, devices: int, hosts: int = 1) -> Curve:
        """Of so many devices; where that was not measured, the nearest, with latency in scale."""
        able = [c for c in self.curves if c.collective == collective]
        if not able:
            raise UserError(
                f"hardware profile {self.name!r} has no measurement of {collective}; "
                "measure again with gtjax profile --again"
            )
        same = [c for c in able if (c.hosts > 1) == (hosts > 1)] or able
        near = min(same, key=lambda c: abs(np.log(c.devices / devices)))
        if near.devices == devices:
            return near
        # The number of messages on the way grows with the devices; their bytes are what was asked.
        alike = collective == "collective-permute"  # one message, however many devices
        steps = 1 if alike else max(1, devices - 1) / max(1, near.devices - 1)
        more = near.latency * (steps - 1)
        points = tuple((size, max(seconds + more, 0.0)) for size, seconds in near.points)
        return Curve(collective, devices, hosts, points)

    def scaled(self, links: float) -> HardwareProfile:
        """The same devices with links so many times as fast."""
        slower = [
            dataclasses.replace(c, points=tuple((size, s / links) for size, s in c.points))
            for c in self.curves
        ]
        return dataclasses.replace(self, curves=tuple(slower))

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {"format": FORMAT, **dataclasses.asdict(self), "versions": dict(self.versions)}

    def save(self, path: str | Path) -> None:
        """Write it as JSON; a reader sees all of it or nothing."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def from_json(stored: Any, where: str) -> HardwareProfile:
    """What `to_json` was called on; what is not such is a mistake that says so."""
    try:
        if stored["format"] != FORMAT:
            raise UserError(
                f"{where}: a profile of format {stored['format']}; this is {FORMAT}. "
                "Measure again with gtjax profile --again."
            )
        values = {key: value for key, value in stored.items() if key != "format"}
        curves = tuple(
            Curve(**{**curve, "points": _points(curve["points"])}) for curve in values["curves"]
        )
        compute = values["compute"]
        points = tuple(OpPoint(**point) for point in compute["ops"])
        compute = {**compute, "matmul": _points(compute["matmul"]), "ops": points}
        disk = None if values.get("disk") is None else Disk(**values["disk"])
        known = {**values, "curves": curves, "compute": Compute(**compute), "disk": disk}
        return HardwareProfile(**known)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{where}: not a hardware profile ({error!r}). Make one with gtjax profile --out FILE."
        ) from error


def read_profile(path: str | Path) -> HardwareProfile:
    """Read a profile that `save` wrote."""
    path = Path(path)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot read the hardware profile: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: a hardware profile is JSON: {error}") from error
    return from_json(stored, str(path))


def _points(pairs: Sequence[Sequence[float]]) -> Points:
    points = tuple((float(x), float(y)) for x, y in pairs)
    if len(points) < 2:
        raise ValueError("a curve has two points or more")
    return points
