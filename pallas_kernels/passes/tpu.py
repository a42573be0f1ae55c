"""Walks the tiles of strips on a TPU, and fetches for others while one is worked on.

What a tile needs is its line (`strips.py`, to SMEM), the rows of the other ends of its edges (to
VMEM, one copy a slot, all on one semaphore, waited for together by their bytes), and the edges' own
rows and ids if there are any. While tile i is worked on, the copies of tile i + 3 are started, a
chunk's between the loads and the arithmetic of a chunk: starting a copy takes the scalar unit, the
arithmetic the others, and a compiler that keeps loads, stores and copies in their order can still
put these side by side. This goes on across blocks, so that the wait at the start is the only one.
Everything that is gathered is a table of 32-bit words with the channels of all heads in the lanes
(`tpu_tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial as bind
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.edges.dropout import Dropout, head_keys, kept
from pallas_kernels.edges.edges import Edges, StripPairs
from pallas_kernels.edges.limits import check_tpu_lines, check_tpu_words
from pallas_kernels.edges.strips import (
    CHUNK,
    CORES,
    COUNT_BITS,
    FRESH_BIT,
    HUB_BIT,
    STEPS,
    STRIP,
    Line,
    Strips,
)
from pallas_kernels.passes.tpu_heads import (
    exact_dot,
    lanes_of_heads,
    sum_of_heads,
    to_channels,
    unit,
)
from pallas_kernels.passes.tpu_sizes import vmem_limit
from pallas_kernels.passes.tpu_tables import LANES, Heads, Table, varying
from pallas_kernels.reductions import NOTHING

# Tiles between the one that is worked on and the one whose copies are started: an odd number.
AHEAD = 3
TILES_HELD = 4  # tiles of gathered rows held at a time; a power of two
LINES_AHEAD = 2  # tiles between one whose copies are started and one whose line is on its way
LINES_HELD = 8  # lines held at a time; a power of two


@dataclass(frozen=True)
class EdgeData:
    """What is known of single edges, by slot: rows of their own, and dropout.

    Rows are float32, [tiles, heads, slots] or, with channels, [tiles, slots, lanes].
    """

    rows: tuple[jax.Array, ...]
    wide: tuple[bool, ...]
    tree: Any
    ids_t1w: jax.Array | None  # int32 [tiles, 1, slots]
    draws_1g: jax.Array | None  # uint32 [1, lanes]
    rate: float


def edge_data(strips: Strips, heads: Heads, edge: Any, dropout: Dropout | None) -> EdgeData:
    """Bring rows of edges and dropout into the order of the slots."""
    ids = draws = None
    arrays, tree = jax.tree.flatten(edge)
    rate = 0.0 if dropout is None else float(dropout.rate)
    if dropout is not None and rate > 0:
        ids = jnp.asarray(strips.ids_tw)[:, None]
        draws = head_keys(dropout.seed, heads.first + heads.count)[heads.first :]
        draws = jnp.pad(draws, (0, LANES - heads.count))[None]
    rows = tuple(_by_slot(strips, heads, array) for array in arrays)
    return EdgeData(rows, tuple(x.ndim == 3 for x in arrays), tree, ids, draws, rate)


def _by_slot(strips: Strips, heads: Heads, array: jax.Array) -> jax.Array:
    if not len(array):
        array = jnp.zeros((1, *array.shape[1:]), array.dtype)
    if array.ndim == 3:
        return heads.flat(array).astype(jnp.float32)[jnp.asarray(strips.positions_tw)]
    array_he = heads.of(array).astype(jnp.float32).T
    array_he = jnp.pad(array_he, ((0, heads.sublanes - heads.count), (0, 0)))
    # Head by head: a gather of rows would need them in rows of 128 lanes, most of them padding.
    return jnp.stack([head_e[strips.positions_tw] for head_e in array_he], axis=1)


def by_edge(slots: jax.Array, slot_e: Any, heads: Heads, like: jax.Array) -> jax.Array:
    """From the order of the slots to that of the edges; past the last slot is zero."""
    if like.ndim == 3:
        slots_sl = slots.reshape(-1, slots.shape[-1])
        return heads.unflat(slots_sl.at[slot_e].get(mode="fill", fill_value=0), like)
    slots_gs = jnp.moveaxis(slots, 1, 0).reshape(heads.sublanes, -1)
    of_head = (slots_gs[h].at[slot_e].get(mode="fill", fill_value=0) for h in range(heads.count))
    return jnp.stack(list(of_head), axis=1)


class Chunk:
    """What the arithmetic sees of one chunk, loaded at once: copies started later cannot pass."""

    def __init__(self, refs: Any, tile: _Tile, number: Any):
        self._refs, self.heads = refs, tile.heads
        line, slots = tile.layout, pl.ds(number * CHUNK, CHUNK)
        self._slots = slots
        first = line.rows + number * STRIP
        self._rows = [tile.line[first + sublane] for sublane in range(STRIP)]
        word = tile.line[line.words + number]
        self._word = word
        self.fresh = (word >> FRESH_BIT) & 1 == 1
        self.hub = (word >> HUB_BIT) & 1 == 1
        self.near: Any = None
        if refs.near_table is not None:
            self.near = refs.near_table.unpack(self._near_lines(number))
        lines = refs.far_table.lines

        def far_line(i: int) -> jax.Array:
            return tile.far[_every(number * CHUNK * lines + i, CHUNK, lines)]

        self.far = jax.tree.map(self.by_strip, refs.far_table.unpack(far_line))
        self.shared = [ref[...][None] for ref in refs.shared]
        self._of_head = refs.of_head[...]
        self.keep = 1.0 if refs.keep is None else self.by_strip(refs.keep[slots])
        rows = [
            ref[tile.place, slots] if wide else turned[slots]
            for ref, wide, turned in zip(refs.rows, refs.wide, refs.turned, strict=True)
        ]
        self.edge_rows = refs.edge_tree.unflatten(self.by_strip(x) for x in rows)

    def _near_lines(self, number: Any) -> Callable[[int], jax.Array]:
        """Bring the rows of the eight sublanes together."""
        lines, near_rows = self._refs.near_table.lines, self._refs.near_rows.at[number]
        for sublane, row in enumerate(self._rows):
            near_rows[pl.ds(sublane * lines, lines)] = self._refs.near[pl.ds(row * lines, lines)]
        return lambda i: near_rows[_every(i, STRIP, lines)]

    def real(self, lanes: int) -> jax.Array:
        """Which slots hold an edge, by strip."""
        sublane = lax.broadcasted_iota(jnp.int32, (STRIP, lanes), 0)
        counts = (jnp.full((STRIP, lanes), self._word) >> (sublane * COUNT_BITS)) & (
            (1 << COUNT_BITS) - 1
        )
        return lax.broadcasted_iota(jnp.int32, (STEPS, STRIP, lanes), 0) < counts[None]

    def by_strip(self, x: jax.Array) -> jax.Array:
        """Slots as strips."""
        return x.reshape(STEPS, STRIP, x.shape[-1])

    def sum(self, x: jax.Array) -> jax.Array:
        """Sum each head's channels, into one lane a head."""
        return self._by_rows(sum_of_heads, x)

    def spread(self, x: jax.Array) -> jax.Array:
        """Give each channel the number of its head."""
        return self._by_rows(to_channels, x)

    def _by_rows(self, change: Callable[..., Any], x: jax.Array) -> jax.Array:
        rows = change(self.heads, x.reshape(-1, x.shape[-1]), self._of_head)
        return rows.reshape(*x.shape[:-1], rows.shape[-1])

    def set_rows(self, results: Sequence[jax.Array]) -> None:
        """Give the results of the rows so far, by sublane: the last one given stays."""
        for ref, result in zip(self._refs.outs, results, strict=True):
            for sublane, row in enumerate(self._rows):
                ref[pl.ds(row, 1)] = result[sublane : sublane + 1]

    def set_edge_rows(self, rows: Sequence[jax.Array]) -> None:
        """Give the results of edges, by strip: one lane a head or channel."""
        for ref, x in zip(self._refs.edge_slots, rows, strict=True):
            ref[self._slots] = x.reshape(CHUNK, x.shape[-1])


@dataclass(frozen=True)
class _Tile:
    """Where things of one tile are: all in VMEM or SMEM."""

    heads: Heads
    layout: Line
    line: Any  # its line, in SMEM
    far: Any  # its gathered rows
    place: jax.Array  # among the tiles that are held at a time


def _every(start: Any, count: int, stride: int) -> Any:
    return pl.ds(start, count) if stride == 1 else pl.ds(start, count, stride)


def _place(number: jax.Array) -> jax.Array:
    return number & (TILES_HELD - 1)


def _line_start(number: jax.Array, line: Line) -> jax.Array:
    """Where the line of a tile is in SMEM, which has one dimension: two cost an edge 5 bundles."""
    return pl.multiple_of((number & (LINES_HELD - 1)) * line.length, LANES)


# References that a kernel has only if there is dropout, or something of the rows themselves.
OPTIONAL = ("ids", "draws", "ids_hbm", "keep", "near", "near_rows")


def walk(
    of_chunk: Callable[[Chunk, Any, Any], Any],
    first: Callable[[], Any],
    empty: Callable[[], Sequence[jax.Array]],
    *,
    strips: Strips,
    heads: Heads,
    num_rows: int,
    near: Table | None,
    far: Table,
    shared: Sequence[jax.Array] = (),
    data: EdgeData,
    out_lanes: Sequence[int],
    totals: int = 0,
    edge_out: bool = False,
    name: str,
    interpret: Any = False,
) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """Call `of_chunk(chunk, refs, carry)` for all chunks in order, from `first()` in each block.

    `near` are the rows, `far` the columns, and `shared` arrays [1, lanes]. Gives an array of rows
    for each of `out_lanes`, which start as `empty()` and which `of_chunk` gives by `set_rows`; with
    `edge_out` what it gave for the edges by `set_edge_rows`; and the sums over all blocks of the
    first so many `totals` of what is carried, [8, lanes of channels] each.
    """
    line = Line(strips.slots)
    groups, rest = divmod(strips.num_blocks, CORES)
    cores, blocks = (1, strips.num_blocks) if rest else (CORES, groups)
    last_block = -(-num_rows // strips.block_rows) - 1
    # A block may run past the last row, but not be all there is.
    padded_rows = max(num_rows, strips.block_rows)
    tiles = strips.ids_tw.shape[0]
    slots = line.slots

    whole = pl.BlockSpec(memory_space=pl.ANY)

    def constant(array: Any) -> pl.BlockSpec:
        return pl.BlockSpec(array.shape, lambda c, b, _: (0,) * array.ndim)

    def block(lanes: int, lines: int = 1) -> pl.BlockSpec:
        # The block that may be there for an even number has no tiles: it stays with the last one.
        return pl.BlockSpec(
            (strips.block_rows * lines, lanes),
            lambda c, b, _: (jnp.minimum(c * blocks + b, last_block), 0),
        )

    of_head, far_ml = lanes_of_heads(heads), far.words_ml
    inputs: list[tuple[str, Any, pl.BlockSpec]] = [
        ("lines", _with_addresses(strips, far), whole),
        ("table", far_ml, whole),
        ("of_head", of_head, constant(of_head)),
        *((f"shared{i}", x, constant(x)) for i, x in enumerate(shared)),
    ]
    scratch: list[tuple[str, Any]] = [
        ("line", pltpu.SMEM((LINES_HELD * line.length,), jnp.int32)),
        ("line_sem", pltpu.SemaphoreType.DMA((LINES_HELD,))),
        ("far_sem", pltpu.SemaphoreType.DMA((TILES_HELD,))),
        ("data_sem", pltpu.SemaphoreType.DMA((TILES_HELD,))),
    ]
    # The compiler lets a copy to one array pass a load from another, but not from the same.
    rows_held = (
        {"far": TILES_HELD}
        if interpret
        else dict.fromkeys(("far_even", "far_odd"), TILES_HELD // 2)
    )
    scratch += [
        (called, pltpu.VMEM((held, slots * far.lines, LANES), far_ml.dtype))
        for called, held in rows_held.items()
    ]
    if near is not None:
        lines = near.lines
        words_ml = jnp.pad(near.words_ml, ((0, (padded_rows - num_rows) * lines), (0, 0)))
        inputs.append(("near", words_ml, block(LANES, lines)))
        shape = (line.chunks, STRIP * lines, LANES)
        scratch.append(("near_rows", pltpu.VMEM(shape, words_ml.dtype)))
    for i, rows in enumerate(data.rows):
        inputs.append((f"rows_hbm{i}", rows, whole))
        scratch.append((f"rows{i}", pltpu.VMEM((TILES_HELD, *rows.shape[1:]), jnp.float32)))
        if not data.wide[i]:
            scratch.append((f"turned{i}", pltpu.VMEM((slots, LANES), jnp.float32)))
    if data.ids_t1w is not None:
        inputs += [
            ("ids_hbm", data.ids_t1w, whole),
            ("draws", data.draws_1g, constant(data.draws_1g)),
        ]
        scratch.append(("ids", pltpu.VMEM((TILES_HELD, 1, slots), jnp.int32)))
        scratch.append(("keep", pltpu.VMEM((slots, LANES), jnp.float32)))
    outputs: list[tuple[str, tuple[int, ...], pl.BlockSpec]] = [
        (f"out{i}", (padded_rows, lanes), block(lanes)) for i, lanes in enumerate(out_lanes)
    ]
    of_edges = data.rows if edge_out else ()
    for i, rows in enumerate(of_edges):
        outputs.append((f"edge_out{i}", (tiles, *rows.shape[1:]), whole))
        lanes = rows.shape[2] if data.wide[i] else LANES
        scratch.append((f"edge_slots{i}", pltpu.VMEM((slots, lanes), jnp.float32)))
        if not data.wide[i]:
            scratch.append((f"edge_block{i}", pltpu.VMEM(rows.shape[1:], jnp.float32)))
    if of_edges:
        scratch.append(("edge_sem", pltpu.SemaphoreType.DMA))
    total_spec = pl.BlockSpec((STRIP, heads.lanes), lambda c, b, _: (c * blocks + b, 0))
    outputs += [
        (f"total{i}", (strips.num_blocks * STRIP, heads.lanes), total_spec) for i in range(totals)
    ]
    check_tpu_lines(far_ml.shape[0] // far.lines, far.lines)
    for called, shape in [(n, x.shape) for n, x, _ in inputs] + [(n, x) for n, x, _ in outputs]:
        if called != "table":
            check_tpu_words(called, shape)
    names = [
        "starts",
        *(n for n, *_ in inputs),
        *(n for n, *_ in outputs),
        *(n for n, _ in scratch),
    ]

    def kernel(*args: Any) -> None:
        refs = SimpleNamespace(**dict.fromkeys(OPTIONAL))
        refs.__dict__.update(zip(names, args, strict=True))
        refs.interpret, refs.last_block = bool(interpret), last_block
        refs.near_table, refs.far_table = near, far
        refs.wide, refs.edge_tree = data.wide, data.tree

        def numbered(name: str, count: int) -> list[Any]:
            return [getattr(refs, f"{name}{i}", None) for i in range(count)]

        refs.shared = numbered("shared", len(shared))
        refs.outs = numbered("out", len(out_lanes))
        refs.totals = numbered("total", totals)
        refs.rows_hbm = numbered("rows_hbm", len(data.rows))
        refs.rows = numbered("rows", len(data.rows))
        refs.turned = numbered("turned", len(data.rows))
        refs.edge_outs = numbered("edge_out", len(of_edges))
        refs.edge_slots = numbered("edge_slots", len(of_edges))
        refs.edge_blocks = numbered("edge_block", len(of_edges))
        _walk_block(of_chunk, first, empty, refs, line, heads, blocks, data.rate)

    axes = varying(*(array for _, array, _ in inputs))
    call = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(cores, blocks),
            in_specs=[spec for *_, spec in inputs],
            out_specs=[spec for *_, spec in outputs],
            scratch_shapes=[shape for _, shape in scratch],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(shape, jnp.float32, manual_axis_type=axes)
            for _, shape, _ in outputs
        ],
        compiler_params=pltpu.CompilerParams(
            # Within a core the order matters: each block starts on what the one before fetched.
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=vmem_limit(),
            disable_bounds_checks=True,  # the host has checked every index
        ),
        name=name,
        interpret=interpret,
    )
    outs = call(jnp.asarray(strips.tile_starts_b), *(array for _, array, _ in inputs))
    by_row = [out[:num_rows] for out in outs[: len(out_lanes)]]
    last = len(out_lanes) + len(of_edges)
    return by_row, outs[len(out_lanes) : last], [total.sum(axis=0) for total in outs[last:]]


def _with_addresses(strips: Strips, far: Table) -> jax.Array:
    """The lines of the tiles, with the first line of a column's row in place of the column."""
    line = Line(strips.slots)
    times_l = np.ones(line.length, np.int32)
    times_l[: line.slots] = far.lines
    lines_tl = jnp.asarray(strips.lines_l).reshape(-1, line.length)
    return (lines_tl * times_l).reshape(-1)


def strip_pair(edges: Edges) -> StripPairs:
    """The strips of the edges, or what to do to have them."""
    if edges.strips is None:
        raise ValueError('the tpu back end works on strips: build_edges(..., forms=["strips"])')
    return edges.strips


def _walk_block(
    of_chunk: Callable[[Chunk, Any, Any], Any],
    first: Callable[[], Any],
    empty: Callable[[], Sequence[jax.Array]],
    refs: Any,
    line: Line,
    heads: Heads,
    blocks: int,
    rate: float,
) -> None:
    """The tiles of one block, and the fetching for those that come next on the same core."""
    core, block = pl.program_id(0), pl.program_id(1)
    number = core * blocks + block
    begin, end = refs.starts[core * blocks], refs.starts[(core + 1) * blocks]

    def line_copy(i: jax.Array) -> Any:
        source = refs.lines.at[pl.ds(pl.multiple_of(i * line.length, LANES), line.length)]
        target = line_of(i)
        return pltpu.make_async_copy(source, target, refs.line_sem.at[i & (LINES_HELD - 1)])

    def line_of(i: jax.Array) -> Any:
        return refs.line.at[pl.ds(_line_start(i, line), line.length)]

    def data_copies(i: jax.Array) -> list[Any]:
        """Of the edges' own rows and ids; past the last tile those of the last, for nobody."""
        place, source_tile = _place(i), jnp.minimum(i, end - 1)
        pairs = list(zip(refs.rows_hbm, refs.rows, strict=True))
        if refs.ids_hbm is not None:
            pairs.append((refs.ids_hbm, refs.ids))
        return [
            pltpu.make_async_copy(source.at[source_tile], target.at[place], refs.data_sem.at[place])
            for source, target in pairs
        ]

    def rows_of(i: jax.Array, parity: int | None) -> Any:
        """Where the gathered rows of a tile are."""
        if parity is None:
            return refs.far.at[_place(i)]
        return (refs.far_even, refs.far_odd)[parity].at[_place(i) >> 1]

    def copy_row(i: jax.Array, target: Any) -> Callable[[Any], None]:
        """Starts the copy of a slot of a tile; past the last tile the last one's, for nobody."""
        lines, semaphore = refs.far_table.lines, refs.far_sem.at[_place(i)]
        columns = line_of(jnp.minimum(i, end - 1))

        def start(slot: Any) -> None:
            rows = refs.table.at[pl.ds(columns[slot], lines)]
            there = target.at[pl.ds(slot * lines, lines)]
            pltpu.make_async_copy(rows, there, semaphore).start()

        return start

    def by_parity(i: jax.Array, do: Callable[..., Any], *operands: Any) -> Any:
        """Do something that depends on whether a number is even, with code of its own if so."""
        if refs.interpret:  # longer code would only take longer
            return do(None, *operands)
        return lax.cond(i & 1 == 0, bind(do, 0), bind(do, 1), *operands)

    def over_chunks(i: jax.Array, parity: int | None, carry: Any) -> Any:
        """The arithmetic of a tile, and the copies of one to come."""
        to_come = i + AHEAD
        tile = _Tile(heads, line, line_of(i), rows_of(i, parity), _place(i))
        start = copy_row(to_come, rows_of(to_come, None if parity is None else 1 - parity))
        if refs.interpret:

            def one(number: jax.Array, carry: Any) -> Any:
                chunk = Chunk(refs, tile, number)
                _repeat(number * CHUNK, (number + 1) * CHUNK, start)
                return of_chunk(chunk, refs, carry)

            return lax.fori_loop(0, line.chunks, one, carry)
        for number in range(line.chunks):
            chunk = Chunk(refs, tile, number)
            for slot in range(number * CHUNK, (number + 1) * CHUNK):
                start(slot)
            carry = of_chunk(chunk, refs, carry)
        return carry

    def start_data(i: jax.Array) -> None:
        for copy in data_copies(i):
            copy.start()

    def await_fetched(i: jax.Array) -> None:
        rows = rows_of(i, None if refs.interpret else 0)  # of either parity: it is as many bytes
        pltpu.make_async_copy(rows, rows, refs.far_sem.at[_place(i)]).wait()
        for copy in data_copies(i):
            copy.wait()

    def await_line(i: jax.Array) -> None:
        @pl.when(i < end)
        def _() -> None:
            line_copy(i).wait()

    def before_all() -> None:
        """On a core's first tile, what would have been fetched before it."""
        last = jnp.minimum(begin + AHEAD + LINES_AHEAD, end)
        _repeat(begin, last, lambda i: line_copy(i).start())

        def whole(i: jax.Array) -> None:
            await_line(i)
            start_data(i)

            def fetch(parity: int | None) -> None:
                _repeat(0, line.slots, copy_row(i, rows_of(i, parity)))

            by_parity(i, fetch)

        _repeat(begin, begin + AHEAD, whole)

    def step(i: jax.Array, carry: Any) -> Any:
        pl.when(i == begin)(before_all)
        to_come = i + AHEAD
        pl.when(to_come + LINES_AHEAD < end)(line_copy(to_come + LINES_AHEAD).start)
        await_line(to_come)
        start_data(to_come)
        await_fetched(i)
        _prepare_edges(refs, _place(i), rate)
        carry = by_parity(i, bind(over_chunks, i), carry)
        _send_edges(refs, heads, i)
        return carry

    @pl.when(number <= refs.last_block)  # what comes after it is given the last one's rows
    def _() -> None:
        for ref, row in zip(refs.outs, empty(), strict=True):
            ref[...] = jnp.broadcast_to(row, ref.shape)

    carry = lax.fori_loop(refs.starts[number], refs.starts[number + 1], step, first())
    for ref, total in zip(refs.totals, carry, strict=False):
        ref[...] = total

    @pl.when((block == blocks - 1) & (begin < end))
    def _() -> None:
        for i in range(AHEAD):
            await_fetched(end + i)


def _repeat(first: Any, end: Any, do: Callable[[jax.Array], None]) -> None:
    """Do something for each of some numbers, in a loop."""

    def one(i: jax.Array, _: Any) -> int:
        do(i)
        return 0

    lax.fori_loop(first, end, one, 0)


def _prepare_edges(refs: Any, place: jax.Array, rate: float) -> None:
    """Turn what comes with the slots in the lanes: dropout's factors, and numbers of heads."""
    if refs.ids is not None:
        ids = refs.ids[place]
        ids = jnp.broadcast_to(ids, (LANES, ids.shape[1])).T
        ids = lax.bitcast_convert_type(ids, jnp.uint32)
        refs.keep[...] = kept(rate, ids, refs.draws[...])
    for ref, turned in zip(refs.rows, refs.turned, strict=True):
        if turned is not None:
            # On the matrix unit, where an infinity would spoil the edge's other heads.
            numbers_gw = jnp.where(ref[place] < NOTHING, NOTHING, ref[place])
            numbers = exact_dot(numbers_gw, unit(numbers_gw.shape[0]), 0, 0)
            turned[...] = jnp.where(numbers < NOTHING / 2, -jnp.inf, numbers)


def _send_edges(refs: Any, heads: Heads, tile: jax.Array) -> None:
    """Write the results of a tile's edges."""
    for found, block, edge_out in zip(
        refs.edge_slots, refs.edge_blocks, refs.edge_outs, strict=True
    ):
        if block is not None:
            block[...] = exact_dot(unit(heads.sublanes), found[...], 1, 1)
        copy = pltpu.make_async_copy(
            found if block is None else block, edge_out.at[tile], refs.edge_sem
        )
        copy.start()
        copy.wait()
