"""What a step takes under a strategy: seconds and bytes, from what it demands and the hardware.

    seconds = dense layers + attention + communication that nothing hides + new memory
    bytes   = state + inputs and edges + what the backward pass needs + what comes from others

All devices wait for the one with most to do, so every count is that of the largest part. Simulated
devices share the cores of one processor: there the largest part counts only as far as a core alone
is slower than all parts together (`Compute.alone`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import nnls

from gtjax.hardware.profile import AttentionPoint, Compute, HardwareProfile
from gtjax.partition import Cut
from gtjax.planner.work import FLOAT, ModelWork
from gtjax.strategies import FEATURE, MeshShape, ModelShape, Strategy, Transfer
from gtjax.strategies.base import Demand, Pass, part_rows

TPU_LANES = 128
ROW_GAP = 4  # rows that a cache has to hold, over the distance of a typical neighbour


@dataclass(frozen=True)
class Locality:
    """How far apart in memory the rows are that attention gathers one after the other."""

    gap: float = float("inf")  # typical distance between the ends of an edge, in rows
    skew: float = 0.0  # share of the edges that start from the busiest hundredth of the nodes


@dataclass(frozen=True)
class Price:
    """Of one training step, on the device that has most to do."""

    dense: float  # seconds
    attention: float
    communication: float  # that nothing hides
    memory: float  # seconds spent on memory that is touched for the first time
    peak_bytes: float
    moved_bytes: float
    transfers: tuple[Transfer, ...] = ()
    hiding: float = 0.0  # seconds of attention that could hide transfers

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.dense + self.attention + self.communication + self.memory

    def to_json(self) -> dict[str, float]:
        """Plain types."""
        names = ("dense", "attention", "communication", "memory", "peak_bytes", "moved_bytes")
        return {"seconds": self.seconds} | {name: getattr(self, name) for name in names}


def price(
    strategy: Strategy,
    cut: Cut,
    work: ModelWork,
    mesh: MeshShape,
    hardware: HardwareProfile,
    remat: str = "elementwise",
    locality: Locality | None = None,
) -> Price:
    """Seconds and bytes of one training step."""
    locality, compute = locality or Locality(), hardware.compute
    demand = demanded(strategy, cut, work.shape, mesh)
    rows = part_rows(cut, mesh) / mesh.feature  # of a device, in dense layers
    forward, backward, hiding = attention_seconds(demand, work, compute, locality)
    transfers = (*demand.transfers, *gradients(work, mesh))
    if remat == "block":  # the forward pass once more, exchanges included
        backward += forward
        transfers += tuple(_forward_again(demand))
    peak, temporary = memory_bytes(strategy, cut, work, mesh, remat, hardware.platform)
    return Price(
        dense=dense_seconds(rows, work, compute, remat),
        attention=forward + backward,
        communication=communication_seconds(transfers, mesh, hardware, hiding),
        memory=temporary * compute.fresh,
        peak_bytes=peak,
        moved_bytes=sum(each.bytes * each.count for each in transfers),
        transfers=transfers,
        hiding=hiding,
    )


@lru_cache(maxsize=4096)
def demanded(strategy: Strategy, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
    """What the strategy demands; asked once for each mesh, whatever else is varied."""
    return strategy.demand(cut, model, mesh)


def gradients(work: ModelWork, mesh: MeshShape) -> tuple[Transfer, ...]:
    """Gradients of all parameters, added up over all devices."""
    devices = mesh.devices
    if devices == 1:
        return ()
    return (Transfer("all-reduce", "", 2 * FLOAT * work.parameters * (devices - 1) / devices),)


def _forward_again(demand: Demand) -> list[Transfer]:
    """What the forward pass takes of each collective."""
    return [
        replace(each, count=round(each.count * each.forward))
        for each in demand.transfers
        if each.forward
    ]


def dense_seconds(rows: float, work: ModelWork, compute: Compute, remat: str) -> float:
    """Dense layers, and what is done to single values between them."""
    products = rows * work.dense_flops(remat) / compute.matmul_rate(work.shape.hidden)
    values = rows * work.bends(remat) / compute.bend
    passes = rows * work.streamed_bytes(remat) / compute.stream
    optimiser = 12 * FLOAT * work.parameters / compute.stream
    return products + values + passes + optimiser


def attention_seconds(
    demand: Demand, work: ModelWork, compute: Compute, locality: Locality
) -> tuple[float, float, float]:
    """Forward, backward, and how much of both runs while rows of others are on the way."""
    total, hiding = {"forward": 0.0, "backward": 0.0}, 0.0
    layers = work.shape.layers
    for each in demand.passes:
        for way in total:
            seconds = layers * pass_seconds(each, way, compute, locality)
            total[way] += seconds
            hiding += seconds * each.hides
    merges = max(0, len(demand.passes) - 1)
    if merges:
        rows, width = demand.passes[0].rows, demand.passes[0].width
        total["forward"] += layers * merges * 3 * FLOAT * rows * width / compute.stream
        total["backward"] += layers * merges * 3 * FLOAT * rows * width / compute.stream
    return total["forward"], total["backward"], hiding


def pass_seconds(each: Pass, way: str, compute: Compute, locality: Locality) -> float:
    """One call of the kernel: all devices share what they share, and wait for the busiest."""
    weights = _kernel_weights(compute.attention, way)
    if weights is None:
        return _published_pass_seconds(each, way, compute)
    near = min(each.senders, ROW_GAP * locality.gap)

    def seconds(edges: float) -> float:
        shape = (each.rows, each.senders, each.heads, each.width)
        return float(_kernel_terms(edges, *shape, near, locality.skew) @ weights)

    return max(seconds(each.mean_edges), seconds(each.edges) / compute.alone)


def _published_pass_seconds(each: Pass, way: str, compute: Compute) -> float:
    """Where no kernel was measured: rows of keys and values gathered, gradients as well."""
    tables = 2 if way == "forward" else 5
    gathered = tables * FLOAT * each.edges * each.width / compute.gather
    return gathered + tables * FLOAT * each.rows * each.width / compute.stream


def _kernel_terms(
    edges: float, rows: int, senders: int, heads: int, width: int, near: float, skew: float
) -> np.ndarray:
    """What an attention kernel's time is made of: rows, edges, their heads, values, and misses.

    Gradients are written for all senders, whether or not edges start there. Rows are gathered from
    about `near` of them at a time, of which the busiest stay in a cache.
    """
    table = near * width * 2 * FLOAT * (1 - skew) / 2**16
    misses = np.log2(1 + max(1.0, table))
    values = edges * width
    return np.array([rows * width, senders * width, edges, edges * heads, values, values * misses])


@lru_cache(maxsize=64)
def _kernel_weights(points: tuple[AttentionPoint, ...], way: str) -> np.ndarray | None:
    """Seconds of each term, none negative, that fit the measured points best in proportion."""
    able = [point for point in points if point.direction == way]
    if not able:
        return None
    terms = np.array(
        [
            _kernel_terms(p.edges, p.rows, p.senders, p.heads, p.width, p.senders, p.skew)
            for p in able
        ]
    )
    seconds = np.array([p.seconds for p in able])
    weights, _ = nnls(terms / seconds[:, None], np.ones(len(able)))
    return weights


def communication_seconds(
    transfers: Sequence[Transfer], mesh: MeshShape, hardware: HardwareProfile, hiding: float
) -> float:
    """Packing and unpacking of what travels, and the travel that attention does not hide."""
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


def _lane_padding(demand: Demand) -> float:
    """What tables by head take more on a TPU, which pads their last axis to its lanes.

    Six of them are there at once, by what its compiler says of steps on a v5e slice.
    """
    most = max(demand.passes, key=lambda each: each.rows)
    width = most.width / most.heads
    padded = TPU_LANES * -(-width // TPU_LANES)
    return 6 * FLOAT * most.rows * most.heads * (padded - width)


def memory_bytes(
    strategy: Strategy, cut: Cut, work: ModelWork, mesh: MeshShape, remat: str, platform: str
) -> tuple[float, float]:
    """Peak of a device, and how much of that is temporary."""
    demand = demanded(strategy, cut, work.shape, mesh)
    share, layers = mesh.feature, work.shape.layers
    part = part_rows(cut, mesh)
    rows, edges = part / share, strategy.padded_edges(cut, mesh)
    lists = FLOAT * (4 * edges + sum(each.rows + each.senders for each in demand.passes))
    biases = FLOAT * work.edge_features * edges / share
    arguments = work.state_bytes + rows * work.input_bytes() + lists + biases
    kept_layers = 1 if remat == "block" else layers
    kept = layers * rows * work.kept_values(remat) * FLOAT + kept_layers * demand.kept_bytes
    working = max(rows * work.working_values(remat) * FLOAT, demand.backward_bytes)
    working += demand.traded_bytes
    bias = FLOAT * work.shape.heads * edges * (2 + kept_layers) * (work.edge_features > 0) / share
    logits = 3 * FLOAT * rows * work.classes
    temporary = kept + working + bias + logits + FLOAT * 2 * work.parameters
    if platform == "tpu":
        temporary += _lane_padding(demand)
    return arguments + temporary, temporary
