"""What a step takes under a strategy: seconds and bytes, from what it demands and the hardware.

    seconds = dense layers + ops + communication that nothing hides + new memory
    bytes   = see `memory.py`

All devices wait for the one with most to do, so every count is that of the largest part. Simulated
devices share the cores of one processor: there the largest part counts only as far as a core alone
is slower than all parts together (`Compute.alone`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gtjax.hardware.ops import family_of
from gtjax.hardware.profile import Compute, HardwareProfile, OpPoint
from gtjax.partition import Cut
from gtjax.planner.memory import demanded, kernel_name, memory_of
from gtjax.planner.step_work import OpCall, Work
from gtjax.strategies import FEATURE, NODE, MeshShape, Strategy, Transfer
from gtjax.strategies.base import Demand, Pass, part_rows
from gtjax.strategies.op_work import FLOAT

ROW_GAP = 4  # rows that a cache has to hold, over the distance of a typical neighbour
# What a kernel's time is compared by, in units that make the terms alike.
CACHE = 2.0**16  # bytes
UPDATES = 12  # passes over the parameters of an optimiser's step
# Operations of one value through `hardware.arithmetic.bend_values`, counted as `trace.py` counts
# them: a test holds it to that.
BEND_OPERATIONS = 44.0
# Of traffic as the fusion rule counts it, the share that arithmetic and products do not hide:
# assumed, not measured, and to be fitted when predicted and measured times are next compared.
TRAFFIC_SHARE = 0.5


@dataclass(frozen=True)
class Locality:
    """How far apart in memory the rows are that ops gather one after the other."""

    gap: float = float("inf")  # typical distance between the ends of an edge, in rows
    skew: float = 0.0  # share of the edges that start from the busiest hundredth of the nodes


@dataclass(frozen=True)
class Price:
    """Of one training step, on the device that has most to do."""

    dense: float  # seconds
    ops: float
    communication: float  # that nothing hides
    memory: float  # seconds spent on memory that is touched for the first time
    peak_bytes: float
    moved_bytes: float
    transfers: tuple[Transfer, ...] = ()
    hiding: float = 0.0  # seconds of ops that could hide transfers

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.dense + self.ops + self.communication + self.memory

    def to_json(self) -> dict[str, float]:
        """Plain types."""
        names = ("dense", "ops", "communication", "memory", "peak_bytes", "moved_bytes")
        return {"seconds": self.seconds} | {name: getattr(self, name) for name in names}


def price(
    strategy: Strategy,
    cut: Cut,
    work: Work,
    mesh: MeshShape,
    hardware: HardwareProfile,
    locality: Locality | None = None,
    kernel: str = "auto",
) -> Price:
    """Seconds and bytes of one training step."""
    locality, compute = locality or Locality(), hardware.compute
    rows = part_rows(cut, mesh) / mesh.feature  # of a device, in dense layers
    edges = strategy.padded_edges(cut, mesh) / mesh.feature
    transfers, seconds, hiding = transfers_of(strategy, cut, work, mesh), 0.0, 0.0
    for call in work.calls:
        demand = demanded(strategy, cut, call.work, mesh)
        name = kernel_name(call, hardware.platform, kernel)
        more, hides = op_seconds(call, demand, name, compute, locality)
        seconds += more
        hiding += hides
    memory = memory_of(strategy, cut, work, mesh, hardware.platform, kernel)
    return Price(
        dense=dense_seconds(rows, edges, work, compute),
        ops=seconds,
        communication=communication_seconds(transfers, mesh, hardware, hiding),
        memory=memory.temporary * compute.fresh,
        peak_bytes=memory.peak,
        moved_bytes=sum(each.bytes * each.count for each in transfers),
        transfers=transfers,
        hiding=hiding,
    )


def transfers_of(strategy: Strategy, cut: Cut, work: Work, mesh: MeshShape) -> tuple[Transfer, ...]:
    """All that a step receives."""
    found = sums(work, mesh)
    # The compiler fetches the same rows once for all ops, unless they are to be fetched again or
    # are traded first, each op's by itself.
    once = not strategy.refetches and mesh.feature == 1
    for call in work.calls:
        found += call_transfers(call, demanded(strategy, cut, call.work, mesh), once=once)
    return found


def sums(work: Work, mesh: MeshShape) -> tuple[Transfer, ...]:
    """What is summed over all nodes or edges, gradients of parameters above all."""
    devices = mesh.devices
    if devices == 1:
        return ()
    total = 2 * sum(work.sums) * (devices - 1) / devices
    return (Transfer("all-reduce", "", total),)


def call_transfers(call: OpCall, demand: Demand, *, once: bool = False) -> tuple[Transfer, ...]:
    """Of all uses of an op: each pass as often as it happens, and what is fetched every round.

    once: whether rows that an earlier op has had fetched are not fetched for this one.
    """
    found = []
    for each in demand.transfers:
        again = call.backwards * (1 - each.forward)
        if each.axis == NODE and each.forward and not call.rereads:
            again = 0  # rows that nothing needs are not fetched once more
        forwards = call.forwards - (call.again if once and each.axis == NODE else 0)
        times = each.count * (forwards * each.forward + again)
        if each.axis == NODE and call.rounds:
            times *= (call.rounds + 1) / 2  # keys once, and values in every round
        if times:
            found.append(replace(each, count=times))
    return tuple(found)


def dense_seconds(rows: float, edges: float, work: Work, compute: Compute) -> float:
    """Matrix products, and what is done to single values between them."""
    products = sum(
        flops.of(rows, edges) / compute.matmul_rate(width) for width, flops in work.products
    )
    values = work.arithmetic.of(rows, edges) / (compute.bend * BEND_OPERATIONS)
    passes = TRAFFIC_SHARE * work.traffic.of(rows, edges) / compute.stream
    sparse = work.gathered.of(rows, edges) / compute.gather
    optimiser = UPDATES * work.parameter_bytes / compute.stream
    return products + values + passes + sparse + optimiser


def op_seconds(
    call: OpCall, demand: Demand, kernel: str, compute: Compute, locality: Locality
) -> tuple[float, float]:
    """All passes of an op, and how much of them runs while rows of others are on the way."""
    total = hiding = 0.0
    rounds = max(1, call.rounds)
    merges = max(0, len(demand.passes) - 1)
    for way, times in (("forward", call.forwards), ("backward", call.backwards)):
        times = times * rounds
        for each in demand.passes:
            seconds = times * pass_seconds(each, way, family_of(call.op), kernel, compute, locality)
            total += seconds
            hiding += seconds * each.hides
        first = demand.passes[0]
        merged = 3 * FLOAT * first.rows * first.work.out_values
        total += times * merges * merged / compute.stream
    return total, hiding


def pass_seconds(
    each: Pass, way: str, family: str, kernel: str, compute: Compute, locality: Locality
) -> float:
    """One call of the kernel: all devices share what they share, and wait for the busiest."""
    weights = kernel_weights(compute.ops, kernel, family, way)
    work = each.work
    row_bytes = work.receiver_bytes + FLOAT * work.out_values
    if weights is None:
        return _published_pass_seconds(each, way, family, compute)
    near = min(each.senders, ROW_GAP * locality.gap)

    def seconds(edges: float) -> float:
        shape = (each.rows, each.senders, work.heads, work.sender_bytes, row_bytes)
        return float(_kernel_terms(edges, *shape, near, locality.skew) @ weights)

    return max(seconds(each.mean_edges), seconds(each.edges) / compute.alone)


def _published_pass_seconds(each: Pass, way: str, family: str, compute: Compute) -> float:
    """Where no kernel was measured: rows gathered forward, and backward by both ends.

    A softmax's backward gathers rows of senders for receivers' gradients, and receivers' rows,
    results and gradients for those of senders; a sum's only the gradients of results.
    """
    work = each.work
    gathered = work.sender_bytes + work.edge_bytes
    row = work.receiver_bytes + FLOAT * work.out_values
    if way == "backward":
        softmax = work.sender_bytes + work.receiver_bytes + 2 * FLOAT * work.out_values
        gathered = (softmax if family == "softmax" else FLOAT * work.out_values) + work.edge_bytes
        row += work.receiver_bytes + work.gradient_bytes
    return each.edges * gathered / compute.gather + each.rows * row / compute.stream


def _kernel_terms(
    edges: float,
    rows: int,
    senders: int,
    heads: int,
    sender_bytes: int,
    row_bytes: int,
    near: float,
    skew: float,
) -> np.ndarray:
    """What a kernel's time is made of: rows, edges, their heads, bytes gathered, and misses.

    Gradients are written for all senders, whether or not edges start there. Rows are gathered from
    about `near` of them at a time, of which the busiest stay in a cache.
    """
    table = near * sender_bytes * (1 - skew) / CACHE
    misses = np.log2(1 + max(1.0, table))
    gathered = edges * sender_bytes
    return np.array(
        [
            rows * row_bytes,
            senders * sender_bytes,
            edges,
            edges * heads,
            gathered,
            gathered * misses,
        ]
    )


@lru_cache(maxsize=64)
def kernel_weights(
    points: tuple[OpPoint, ...], kernel: str, family: str, way: str
) -> np.ndarray | None:
    """Seconds of each term, none negative, that fit the measured points best in proportion.

    Where no op of the family was measured with the kernel, those of the other family have to do.
    """
    able = [p for p in points if p.direction == way and p.kernel == kernel]
    able = [p for p in able if p.family == family] or able
    if not able:
        return None
    terms = np.array(
        [
            _kernel_terms(
                p.edges, p.rows, p.senders, p.heads, p.sender_bytes, p.row_bytes, p.senders, p.skew
            )
            for p in able
        ]
    )
    seconds = np.array([p.seconds for p in able])
    from scipy.optimize import nnls  # slow to import

    weights, _ = nnls(terms / seconds[:, None], np.ones(len(able)))
    return weights


def communication_seconds(
    transfers: Sequence[Transfer], mesh: MeshShape, hardware: HardwareProfile, hiding: float
) -> float:
    """Packing and unpacking of what travels, and the travel that ops do not hide."""
    compute, packing, plain, hideable = hardware.compute, 0.0, 0.0, 0.0
    for each in transfers:
        size, hosts = axis_of(each, mesh, hardware)
        if size == 1 or not each.bytes:
            continue
        kind = "all-to-all" if each.collective == "ragged-all-to-all" else each.collective
        seconds = each.count * hardware.curve(kind, size, hosts).seconds(each.bytes)
        packing += each.count * _packing_seconds(each, size, compute)
        if each.hideable:
            hideable += seconds
        else:
            plain += seconds
    hidden = min(hideable * compute.overlap, hiding)
    return packing + plain + hideable - hidden


def _packing_seconds(each: Transfer, size: int, compute: Compute) -> float:
    """Rows that are picked before a message or added after it; tables that are cut and joined."""
    if each.collective in ("collective-permute", "ragged-all-to-all"):
        return each.bytes * (0.5 / compute.gather + 0.5 / compute.scatter + 2 / compute.stream)
    if each.collective == "all-to-all":
        return 4 * each.bytes * size / (size - 1) / compute.stream
    return 0.0


def axis_of(each: Transfer, mesh: MeshShape, hardware: HardwareProfile) -> tuple[int, int]:
    """Devices along the axis of a transfer, and the hosts that they span.

    Devices of a feature group are neighbours, and those of a node group stand a feature group
    apart. A transfer without an axis is among all devices.
    """
    here = max(1, hardware.devices_per_host)
    if each.axis == FEATURE:
        return mesh.feature, max(1, -(-mesh.feature // here))
    if not each.axis:
        return mesh.devices, -(-mesh.devices // here)
    together = max(1, here // mesh.feature)
    return mesh.node, -(-mesh.node // together)
