"""What would run where a step does not fit: each way with its time and memory, and what to type.

Chunks are priced by arithmetic: what a step computes, against the rows that it reads and writes on
disk, whichever takes longer, as if no page of a file stayed in memory. More devices are priced
by the graph as badly cut as a random one. Sampling is an approximation, and so is only ever named:
whoever wants it asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gtjax.hardware.disk import USUAL, Disk
from gtjax.hardware.profile import HardwareProfile
from gtjax.partition import EvenCut
from gtjax.planner.cuts import SupposedCuts
from gtjax.planner.memory import memory_of
from gtjax.planner.price import Locality, price
from gtjax.planner.step_work import Work
from gtjax.strategies import STRATEGIES, MeshShape
from gtjax.strategies.op_work import FLOAT

MOST_DEVICES = 4096  # that are looked at
# Python, jax and compiled programs take this much by themselves, as seen of runs in chunks.
LEAST_CHUNKS = 0.5 * 2**30
# Of dense layers: forward, again in the backward pass, and the gradients of inputs and weights.
AGAIN = 4 / 3
EDGE_BYTES = 4  # the other end of an edge
# A step of sampled neighbours, for an idea of its size.
SEEDS, NEIGHBOURS = 1024, 10


@dataclass(frozen=True)
class Way:
    """One way that a step would run: what to type, what it costs, whether it is exact."""

    options: str
    peak_bytes: float  # a device
    seconds: float | None = None  # of a step; None where the hardware was not measured
    exact: bool = True
    note: str = ""

    def __str__(self) -> str:
        cost = "time not known" if self.seconds is None else f"{self.seconds:.3g} s/step"
        kind = "exact" if self.exact else "approximate"
        more = f" ({self.note})" if self.note else ""
        return f"{self.options}: {cost}, {self.peak_bytes / 2**30:.3g} GiB a device, {kind}{more}"


@dataclass(frozen=True)
class CacheAdvice:
    """How many rows of features a sampled run should keep in memory."""

    rows: int
    row_bytes: int
    share: float  # of what batches ask for, that they find

    def __str__(self) -> str:
        size = self.rows * self.row_bytes / 2**30
        return (
            f"features in a file: --cache-rows {self.rows} ({size:.2g} GiB of the host) holds "
            f"{100 * self.share:.0f} % of what is asked for, by degrees"
        )


@dataclass(frozen=True)
class ChunksPrice:
    """Of one step in chunks."""

    computing: float | None  # seconds; None where the hardware was not measured
    read_bytes: float
    written_bytes: float
    disk: Disk
    stored_bytes: float  # the most that is stored at once

    @property
    def moving(self) -> float:
        """Seconds of reading and writing."""
        return self.read_bytes / self.disk.read + self.written_bytes / self.disk.write

    @property
    def seconds(self) -> float | None:
        """What takes longer: the next chunk is read while one computes."""
        return None if self.computing is None else max(self.computing, self.moving)


def chunks_price(
    work: Work,
    nodes: int,
    edges: int,
    hardware: HardwareProfile | None,
    memory_bytes: float,
    *,
    locality: Locality | None = None,
    kernel: str = "auto",
    in_memory_share: float = 0.3,
) -> ChunksPrice:
    """What a step in chunks computes, reads and writes.

    Of every op: its operands are written and read as a table, its result is written, and read by
    what follows and again by that one's backward pass; gradients of both are written and read; and
    where the gradient needs the operands or the result once more, they are read once more.
    in_memory_share: of the memory, for arrays that need no file; see `gtjax/chunks/sizes.py`.
    """
    read = written = stored = 0.0
    for call in work.calls:
        own, times = call.work, max(1, call.rounds)
        operands = own.sender_bytes + own.receiver_bytes
        gradients = own.gradient_bytes + own.receiver_bytes
        out = FLOAT * own.out_values
        again = (operands if call.rereads else 0.0) + (out + FLOAT * own.saved_values)
        again = again if own.reads_again else 0.0
        there, back = times * call.forwards, times * call.backwards
        written += nodes * (there * (operands + out) + back * (out + gradients))
        read += nodes * (there * (operands + out) + back * (2 * out + gradients + again))
        read += edges * (there + back) * (own.edge_bytes + EDGE_BYTES)
        stored += there * nodes * (out + (operands if call.rereads else 0.0))
        stored += there * edges * own.edge_bytes
    if stored <= in_memory_share * memory_bytes:
        read = written = 0.0
    read += 2 * work.inputs.of(nodes, edges)
    computing = None
    disk = USUAL
    if hardware is not None:
        cut = EvenCut(1, nodes, edges, 0.0, 0.0)
        alone = price(STRATEGIES["single"], cut, work, MeshShape(), hardware, locality, kernel)
        computing = AGAIN * alone.dense + alone.ops
        disk = hardware.disk or USUAL
    return ChunksPrice(computing, read, written, disk, stored)


def ways(
    works: Mapping[str, Work],
    nodes: int,
    edges: int,
    hardware: HardwareProfile | None,
    memory_bytes: float,
    *,
    platform: str,
    devices: int = 1,
    kernel: str = "auto",
    locality: Locality | None = None,
    chunks_refused: str | None = None,
    layers: int = 2,
    cache: CacheAdvice | None = None,
) -> list[Way]:
    """All that would run, in as much memory a device as there is; the exact ones come first.

    cache: of rows, for sampled batches whose features stay in a file.
    """
    least = list(works.values())[-1]
    given = (works, nodes, edges, hardware, memory_bytes)
    found = _more_devices(*given, platform, devices, kernel)
    if chunks_refused is None and memory_bytes >= LEAST_CHUNKS:
        found.append(chunks_way(least, nodes, edges, hardware, memory_bytes, kernel, locality))
    rows = min(nodes, SEEDS * sum(NEIGHBOURS**k for k in range(layers + 1)))
    some = min(edges, SEEDS * sum(NEIGHBOURS**k for k in range(1, layers + 1)))
    cut = EvenCut(1, rows, some, 0.0, 0.0)
    peak = memory_of(STRATEGIES["single"], cut, least, MeshShape(), platform, kernel).peak
    if peak <= memory_bytes:
        seconds = None
        if hardware is not None:
            single = STRATEGIES["single"]
            seconds = price(single, cut, least, MeshShape(), hardware, locality, kernel).seconds
        note = f"of {SEEDS:,} nodes with {NEIGHBOURS} neighbours a layer; only if asked for"
        note += "" if cache is None else f"; {cache}"
        found.append(Way("--batching neighbours", peak, seconds, exact=False, note=note))
    return found


def chunks_way(
    work: Work,
    nodes: int,
    edges: int,
    hardware: HardwareProfile | None,
    memory_bytes: float,
    kernel: str = "auto",
    locality: Locality | None = None,
) -> Way:
    """A step in chunks, within this memory."""
    given = (work, nodes, edges, hardware, memory_bytes)
    found = chunks_price(*given, locality=locality, kernel=kernel)
    traffic = (found.read_bytes + found.written_bytes) / 1e9
    speed = "assumed" if hardware is None or hardware.disk is None else "measured"
    note = (
        f"{traffic:.3g} GB read and written a step, {found.moving:.3g} s at {speed} "
        f"{found.disk.read / 1e9:.2g} and {found.disk.write / 1e9:.2g} GB/s if nothing stays in "
        f"the page cache"
    )
    if found.computing is not None:
        note += f"; computing {found.computing:.3g} s"
    asked = f"--batching chunks --devices 1 --memory {memory_bytes / 2**30:.3g}"
    return Way(asked, memory_bytes, found.seconds, note=note)


def _more_devices(
    works: Mapping[str, Work],
    nodes: int,
    edges: int,
    hardware: HardwareProfile | None,
    memory_bytes: float,
    platform: str,
    devices: int,
    kernel: str,
) -> list[Way]:
    """The fewest devices that a strategy fits on, and the fewest with the one that takes least."""
    found: list[Way] = []
    cuts = SupposedCuts(nodes, edges)
    for name in ("node_halo", "node_ring"):
        strategy, count = STRATEGIES[name], 2 * devices
        while count <= MOST_DEVICES:
            mesh, cut = MeshShape(node=count), cuts.parts("supposed", count, count).cut
            sizes = {
                remat: memory_of(strategy, cut, work, mesh, platform, kernel).peak
                for remat, work in works.items()
            }
            remat = next((each for each, size in sizes.items() if size <= memory_bytes), None)
            if remat is not None:
                seconds = None
                if hardware is not None and hardware.curves:
                    priced = price(strategy, cut, works[remat], mesh, hardware, None, kernel)
                    seconds = priced.seconds
                asked = f"--devices {count} --strategy {name}"
                note = f"remat {remat}, cut as badly as at random"
                found.append(Way(asked, sizes[remat], seconds, note=note))
                break
            count *= 2
    return found


def told(found: list[Way]) -> str:
    """The ways, each on a line."""
    if not found:
        return "Nothing that gtjax has would run in that memory."
    return "What would run:\n" + "\n".join(f"  {way}" for way in found)
