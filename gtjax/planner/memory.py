"""Bytes that a step takes on the device that has most: what is given, kept, and worked with.

arguments  state, inputs, lists of edges
temporary  at the fullest moment of the traced step: what is alive, what strategies hold of
           other devices' rows for ops whose backward pass is to come, and what the op that
           runs works with
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gtjax.partition import Cut
from gtjax.planner.step_work import BACKWARD, OpCall, Work
from gtjax.strategies import FEATURE, MeshShape, OpWork, Strategy
from gtjax.strategies.base import Demand, part_rows
from gtjax.strategies.op_work import FLOAT

TPU_LANES = 128

# Fitted to `memory_analysis()` of compiled steps of the models in tests/planner (jaxlib 0.10.2, one
# x86 device of 8,000 and 32,000 nodes of degree 8 and 24, four of 4,000 and 16,000 of degree 8).
XLA_RESULTS = 1.75  # times results and gradients of an op: what tiles hold before they are merged
XLA_SLOTS = 1.4  # slots of tiles for each edge
XLA_CHUNKS = 4.0  # arrays of a chunk's messages at once, where messages are computed again
CHUNK_SLOTS = 8192  # as in pallas_kernels/edges/tiling.py
UPDATE_COPIES = 2  # of the parameters: what an optimiser's step makes before it overwrites

# Bytes of the lists that kernels read, for each edge: its ends in both orders, number and place.
EDGE_LISTS = 16
TILE_LISTS = 8  # the other end of every slot, in both orders
TILE_PLACES = 8  # and where an edge's own row is, in both orders, if it has one
ROW_LISTS = 4  # of each receiver and each sender: where its edges begin
TILE_ROWS = 8  # of each tile, of which a row has one or more: whose it is, and where it begins


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    arguments: float
    temporary: float

    @property
    def peak(self) -> float:
        """All of it."""
        return self.arguments + self.temporary


@lru_cache(maxsize=4096)
def demanded(strategy: Strategy, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
    """What the strategy demands for an op; asked once, whatever else is varied."""
    return strategy.demand(cut, work, mesh)


def memory_of(
    strategy: Strategy, cut: Cut, work: Work, mesh: MeshShape, platform: str, kernel: str = "auto"
) -> Memory:
    """What a step of this work takes."""
    rows = part_rows(cut, mesh) / mesh.feature
    padded = strategy.padded_edges(cut, mesh)
    edges = padded / mesh.feature
    demands = [demanded(strategy, cut, call.work, mesh) for call in work.calls]
    kernels = [kernel_name(call, platform, kernel) for call in work.calls]
    arguments = work.state_bytes + work.inputs.of(rows, edges)
    arguments += _lists(work, demands, kernels, padded)
    share = mesh.feature if FEATURE in strategy.mesh_axes else 1
    fullest = 0.0
    for moment in work.moments:
        total = moment.alive.of(rows, edges)
        for number, call in enumerate(work.calls):
            total += moment.open[number] * _kept(call, demands[number], rows)
        if moment.running is not None:
            at = moment.running
            held = demands[at].held
            spaces = _workspace(work.calls[at], share, kernels[at], demands[at], moment.direction)
            own = moment.own.of(rows, edges)
            if moment.direction == BACKWARD:
                total += _kept(work.calls[at], demands[at], rows)
                total += own + _gradients(strategy, demands[at]) + spaces + held.traded
            else:
                total += own + held.remote + spaces + held.traded
                total += (len(demands[at].passes) - 1) * rows * _partial(work.calls[at].work)
            if platform == "tpu":
                total += _lane_padding(demands[at])
        fullest = max(fullest, total)
    update = UPDATE_COPIES * work.parameter_bytes
    return Memory(arguments, fullest + update)


def kernel_name(call: OpCall, platform: str, kernel: str = "auto") -> str:
    """The kernel that an op would run with on such devices, which need not be here."""
    import jax

    if platform == jax.default_backend() or kernel != "auto":
        return call.op.kernel(kernel, platform).name
    return next(each.name for each in call.op.all_kernels() if platform in each.platforms)


def _kept(call: OpCall, demand: Demand, rows: float) -> float:
    """For the backward pass of one call: rows of others, each round's values, and partials.

    A fused computation that uses the result merges it of the passes' partials once more, so those
    stay, instead of the result or, where the backward pass reads that, beside it. After a trade of
    heads or channels for rows there are no partials, but the result is there in both forms.
    """
    rounds, result = max(1, call.rounds), rows * FLOAT * call.work.out_values
    total = rounds * demand.held.kept if call.rereads else 0.0
    total += (rounds - 1) * result
    if demand.held.traded:
        return total + result * call.keeps_result
    passes = len(demand.passes)
    if passes == 1 or not call.fuses_result:
        return total
    return total + passes * rows * _partial(call.work) - result * (not call.keeps_result)


def _gradients(strategy: Strategy, demand: Demand) -> float:
    """Of rows that came from other devices, on their way back, and each pass's of receivers.

    Gradients that travel are there twice: as computed, and as messages. A strategy that fetches
    again has no more than two passes at work at once.
    """
    first, *others = demand.passes
    away = others or [p for p in demand.passes if p.senders > p.rows]
    sizes = sorted((p.senders * p.work.gradient_bytes for p in away), reverse=True)
    at_once = sizes[:2] if strategy.refetches else sizes + (sizes[:1] if others else [])
    more = min(len(others), 2) if strategy.refetches else len(others)
    return sum(at_once) + more * first.rows * first.work.receiver_bytes


def _partial(work: OpWork) -> float:
    """Bytes of a row of a pass's result before passes are merged."""
    return FLOAT * (work.out_values + 2 * work.saved_values)


def _lists(work: Work, demands: list[Demand], kernels: list[str], edges: float) -> float:
    """The edges as kernels read them, whatever they need of them."""
    if not work.calls:
        return 0.0
    ends = max(sum(each.rows + each.senders for each in d.passes) for d in demands)
    total = 0.0
    if any(name != "xla" for name in kernels):
        total += EDGE_LISTS * edges + ROW_LISTS * ends
    tiled = [c.work for c, name in zip(work.calls, kernels, strict=True) if name == "xla"]
    if tiled:
        total += TILE_LISTS * XLA_SLOTS * edges + TILE_ROWS * ends
        total += TILE_PLACES * edges * any(each.edge_bytes for each in tiled)
    return total


def _workspace(call: OpCall, share: int, kernel: str, demand: Demand, direction: str) -> float:
    """What a kernel holds beside its rows and results; passes of a call may run side by side."""
    if kernel != "xla":
        return 0.0
    work = call.work.share(share)
    rows, senders, edges = (
        sum(numbers)
        for numbers in zip(*((p.rows, p.senders, p.edges) for p in demand.passes), strict=True)
    )
    out = FLOAT * (work.out_values + work.saved_values)
    chunk = XLA_CHUNKS * CHUNK_SLOTS * FLOAT * work.width if call.rereads else 0.0
    if direction != BACKWARD:
        return XLA_RESULTS * rows * out + chunk
    results = rows * (work.receiver_bytes + out) + senders * work.gradient_bytes
    return XLA_RESULTS * results + XLA_SLOTS * edges * work.edge_gradient_bytes + chunk


def _lane_padding(demand: Demand) -> float:
    """What tables by head take more on a TPU, which pads their last axis to its lanes.

    Six of them are there at once, by what its compiler says of steps on a v5e slice.
    """
    most = max(demand.passes, key=lambda each: each.rows)
    width = most.work.width / most.work.heads
    padded = TPU_LANES * -(-width // TPU_LANES)
    return 6 * FLOAT * most.rows * most.work.heads * (padded - width)
