"""Walks the tiles of strips on a TPU, and fetches for each while the one before is worked on.

What a tile needs is its line (`strips.py`, to SMEM), the rows of the other ends of its edges (to
VMEM, one copy an edge, all on one semaphore, waited for by their bytes), and the edges' own rows
and ids if there are any. While tile i is worked on, the rows of tile i + 1 are on their way and so
is the line of tile i + 2; this goes on across blocks, so that the wait at the start is the only
one. Everything that is gathered is a table of 32-bit words with the channels of all heads in the
lanes (`tpu_tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from pallas_kernels.edges.limits import check_tpu_words
from pallas_kernels.edges.strips import CORES, STRIP, Line, Strips
from pallas_kernels.passes.tpu_sizes import vmem_limit
from pallas_kernels.passes.tpu_tables import LANES, Heads, Table
from pallas_kernels.reductions import NOTHING

LINES_AHEAD = 4  # lines held at a time: in use, being gathered from, on the way; a power of two


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


class Tile:
    """What the arithmetic sees of one tile, all of it in VMEM or SMEM."""

    def __init__(self, refs: Any, line: Line, heads: Heads, number: jax.Array, rate: float):
        self._refs, self._line, self.heads, self.number = refs, line, heads, number
        self._rate = rate

    @property
    def strips(self) -> int:
        """Strips in the tile."""
        return self._line.strips

    def over_strips(self, body: Callable[[jax.Array, Any], Any], carry: Any) -> Any:
        """A loop over the strips, whose turns the compiler may overlap."""
        return lax.fori_loop(0, self.strips, body, carry, unroll=self._refs.unroll)

    def _word(self, index: Any) -> jax.Array:
        return self._refs.line[_line_start(self.number, self._line) + index]

    def row(self, strip: jax.Array) -> jax.Array:
        """Row of a strip within the block."""
        return self._word(self._line.rows + strip)

    def fresh(self, strip: jax.Array) -> jax.Array:
        """Whether a strip is its row's first."""
        return self._word(self._line.fresh + strip) > 0

    def spread_rows(self) -> None:
        """Copy each strip's row, and its number of edges, to where the arithmetic finds them."""

        def spread(strip: jax.Array, _: Any) -> int:
            at = pl.ds(strip, 1)
            if self._refs.near_table is not None:
                self._refs.near_rows[at] = self._refs.near[pl.ds(self.row(strip), 1)]
            count = self._word(self._line.counts + strip)
            self._refs.counts[at] = jnp.full((1, self._refs.counts.shape[1]), count, jnp.int32)
            return 0

        self.over_strips(spread, 0)

    @property
    def near(self) -> Any:
        """Each strip's own row, as the tree of its tables."""
        if self._refs.near_table is None:
            return None
        return self._refs.near_table.unpack(self._refs.near_rows[...])

    @property
    def far(self) -> Any:
        """The row at the other end of each edge, by strip; anything where there is no edge."""
        rows = self._refs.far_table.unpack(self._refs.far[self.number & 1, : self._line.slots])
        return jax.tree.map(self.by_strip, rows)

    @property
    def shared(self) -> Any:
        """What is shared by all edges, [1, 1, lanes]."""
        return [ref[...][None] for ref in self._refs.shared]

    def real(self, lanes: int) -> jax.Array:
        """Which slots hold an edge, by strip."""
        counts = self._refs.counts[...][:, None, :lanes]
        return lax.broadcasted_iota(jnp.int32, (self.strips, STRIP, lanes), 1) < counts

    def by_strip(self, x: jax.Array) -> jax.Array:
        """Slots as strips."""
        return x.reshape(self.strips, STRIP, x.shape[-1])

    def by_slot(self, x: jax.Array) -> jax.Array:
        """Strips as slots."""
        return x.reshape(self.strips * STRIP, x.shape[-1])

    def sum_of_heads(self, x: jax.Array) -> jax.Array:
        """Sum each head's channels, into one lane a head."""
        return _exact_dot(x, self._refs.of_head[...], 1, 0)

    def to_channels(self, x: jax.Array) -> jax.Array:
        """Give each channel the number of its head."""
        return _exact_dot(x, self._refs.of_head[...], 1, 1)

    def edge_rows(self) -> Any:
        """The rows of the edges themselves, by strip; one lane a head or channel."""
        half = self.number & 1
        rows = zip(self._refs.rows, self._refs.wide, strict=True)
        found = [self._numbers(ref[half]) if not wide else ref[half] for ref, wide in rows]
        return self._refs.edge_tree.unflatten(self.by_strip(x) for x in found)

    def _numbers(self, numbers_gw: jax.Array) -> jax.Array:
        # Turned by the matrix unit, where an infinity would spoil the edge's other heads.
        numbers_gw = jnp.where(numbers_gw < NOTHING, NOTHING, numbers_gw)
        turned = _exact_dot(numbers_gw, _unit(numbers_gw.shape[0]), 0, 0)
        return jnp.where(turned < NOTHING / 2, -jnp.inf, turned)

    def set_edge_rows(self, rows: list[jax.Array]) -> None:
        """Give the results of edges, by strip: one lane a head or channel."""
        for ref, wide, x in zip(self._refs.edge_blocks, self._refs.wide, rows, strict=True):
            ref[...] = self.by_slot(x) if wide else self.turn(self.by_slot(x))

    def keep(self) -> jax.Array | float:
        """Dropout's factor for each slot, one lane a head."""
        if self._refs.ids is None:
            return 1.0
        ids = self._refs.ids[self.number & 1]
        ids = jnp.broadcast_to(ids, (LANES, ids.shape[1])).T
        ids = lax.bitcast_convert_type(ids, jnp.uint32)
        return self.by_strip(kept(self._rate, ids, self._refs.draws[...]))

    def turn(self, x: jax.Array) -> jax.Array:
        """From slots by lanes of heads to heads by lanes of slots."""
        return _exact_dot(_unit(self.heads.sublanes), x, 1, 1)


def _line_start(number: jax.Array, line: Line) -> jax.Array:
    """Where the line of a tile is in SMEM, which has one dimension: two cost an edge 5 bundles."""
    return (number & (LINES_AHEAD - 1)) * line.length


def _unit(rows: int) -> jax.Array:
    shape = (rows, LANES)
    diagonal = lax.broadcasted_iota(jnp.int32, shape, 0) == lax.broadcasted_iota(
        jnp.int32, shape, 1
    )
    return diagonal.astype(jnp.float32)


def _exact_dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    """A product with zeros and ones, to all the bits of float32."""
    dims = (((axis_a,), (axis_b,)), ((), ()))
    return lax.dot_general(
        a, b, dims, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )


# References that a kernel has only if there is dropout, or something of the rows themselves.
OPTIONAL = ("ids", "draws", "ids_hbm", "near", "near_rows")


def walk(
    of_tile: Callable[[Tile, Any, Any], Any],
    first: Callable[[], Any],
    *,
    strips: Strips,
    heads: Heads,
    num_rows: int,
    near: Table | None,
    far: Table,
    shared: Sequence[jax.Array] = (),
    data: EdgeData,
    out_lanes: Sequence[int],
    scratch_lanes: Sequence[int],
    totals: int = 0,
    edge_out: bool = False,
    name: str,
    interpret: Any = False,
) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """Call `of_tile(tile, refs, carry)` for all tiles in order, from `first()` in each block.

    `near` are the rows, `far` the columns, and `shared` arrays [1, lanes]. Gives an array of rows
    for each of `out_lanes`, which `of_tile` writes to `refs.outs`; with `edge_out` what it gave for
    the edges by `set_edge_rows`; and the sums over all blocks of the first so many `totals` of what
    is carried, [8, lanes of channels] each. `scratch_lanes` are arrays of a row a strip.
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

    def block(lanes: int) -> pl.BlockSpec:
        # The block that may be there for an even number has no tiles: it stays with the last one.
        return pl.BlockSpec(
            (strips.block_rows, lanes), lambda c, b, _: (jnp.minimum(c * blocks + b, last_block), 0)
        )

    of_head, far_cl = _lanes_of_heads(heads), far.words_nl
    inputs: list[tuple[str, Any, pl.BlockSpec]] = [
        ("lines", jnp.asarray(strips.lines_l), whole),
        ("table", far_cl, whole),
        ("of_head", of_head, constant(of_head)),
        *((f"shared{i}", x, constant(x)) for i, x in enumerate(shared)),
    ]
    scratch: list[tuple[str, Any]] = [
        ("line", pltpu.SMEM((LINES_AHEAD * line.length,), jnp.int32)),
        ("line_sem", pltpu.SemaphoreType.DMA((LINES_AHEAD,))),
        # Eight slots more than there are: where the padding of a tile's list of edges goes.
        ("far", pltpu.VMEM((2, slots + STRIP, far_cl.shape[1]), far_cl.dtype)),
        ("far_sem", pltpu.SemaphoreType.DMA((2,))),
        ("counts", pltpu.VMEM((line.strips, heads.lanes), jnp.int32)),
        ("data_sem", pltpu.SemaphoreType.DMA((2,))),
    ]
    if near is not None:
        words_rl = jnp.pad(near.words_nl, ((0, padded_rows - num_rows), (0, 0)))
        inputs.append(("near", words_rl, block(words_rl.shape[1])))
        scratch.append(("near_rows", pltpu.VMEM((line.strips, words_rl.shape[1]), words_rl.dtype)))
    for i, rows in enumerate(data.rows):
        inputs.append((f"rows_hbm{i}", rows, whole))
        scratch.append((f"rows{i}", pltpu.VMEM((2, *rows.shape[1:]), jnp.float32)))
    if data.ids_t1w is not None:
        inputs += [
            ("ids_hbm", data.ids_t1w, whole),
            ("draws", data.draws_1g, constant(data.draws_1g)),
        ]
        scratch.append(("ids", pltpu.VMEM((2, 1, slots), jnp.int32)))
    outputs: list[tuple[str, tuple[int, ...], pl.BlockSpec]] = [
        (f"out{i}", (padded_rows, lanes), block(lanes)) for i, lanes in enumerate(out_lanes)
    ]
    of_edges = data.rows if edge_out else ()
    for i, rows in enumerate(of_edges):
        outputs.append((f"edge_out{i}", (tiles, *rows.shape[1:]), whole))
        scratch.append((f"edge_block{i}", pltpu.VMEM(rows.shape[1:], jnp.float32)))
    if of_edges:
        scratch.append(("edge_sem", pltpu.SemaphoreType.DMA))
    total_spec = pl.BlockSpec((STRIP, heads.lanes), lambda c, b, _: (c * blocks + b, 0))
    outputs += [
        (f"total{i}", (strips.num_blocks * STRIP, heads.lanes), total_spec) for i in range(totals)
    ]
    scratch += [
        (f"scratch{i}", pltpu.VMEM((line.strips, lanes), jnp.float32))
        for i, lanes in enumerate(scratch_lanes)
    ]
    for called, shape in [(n, x.shape) for n, x, _ in inputs] + [(n, x) for n, x, _ in outputs]:
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
        refs.unroll = 1 if interpret else STRIP  # interpreted, longer code only takes longer
        refs.near_table, refs.far_table = near, far
        refs.wide, refs.edge_tree = data.wide, data.tree

        def numbered(name: str, count: int) -> list[Any]:
            return [getattr(refs, f"{name}{i}") for i in range(count)]

        refs.shared = numbered("shared", len(shared))
        refs.outs = numbered("out", len(out_lanes))
        refs.scratch = numbered("scratch", len(scratch_lanes))
        refs.totals = numbered("total", totals)
        refs.rows_hbm = numbered("rows_hbm", len(data.rows))
        refs.rows = numbered("rows", len(data.rows))
        refs.edge_outs = numbered("edge_out", len(of_edges))
        refs.edge_blocks = numbered("edge_block", len(of_edges))
        _walk_block(of_tile, first, refs, line, heads, blocks, data.rate)

    varying = _varying(*(array for _, array, _ in inputs))
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
            jax.ShapeDtypeStruct(shape, jnp.float32, manual_axis_type=varying)
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


def strip_pair(edges: Edges) -> StripPairs:
    """The strips of the edges, or what to do to have them."""
    if edges.strips is None:
        raise ValueError('the tpu back end works on strips: build_edges(..., forms=["strips"])')
    return edges.strips


def _varying(*arrays: Any) -> Any:
    """Inside `shard_map`, the mesh axes along which what is computed from some arrays differs."""
    types = [jax.typeof(array).manual_axis_type for array in arrays]
    return jax.sharding.ManualAxisType(varying=frozenset().union(*(t.varying for t in types)))


def _lanes_of_heads(heads: Heads) -> jax.Array:
    lane, head = np.arange(heads.lanes)[:, None], np.arange(LANES)
    inside = (lane // heads.width == head) & (head < heads.count)
    return jnp.asarray(inside.astype(np.float32))


def _walk_block(
    of_tile: Callable[[Tile, Any, Any], Any],
    first: Callable[[], Any],
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
        start = pl.multiple_of(_line_start(i, line), LANES)
        target = refs.line.at[pl.ds(start, line.length)]
        return pltpu.make_async_copy(source, target, refs.line_sem.at[i & (LINES_AHEAD - 1)])

    def data_copies(i: jax.Array) -> list[Any]:
        pairs = list(zip(refs.rows_hbm, refs.rows, strict=True))
        if refs.ids_hbm is not None:
            pairs.append((refs.ids_hbm, refs.ids))
        return [
            pltpu.make_async_copy(source.at[i], target.at[i & 1], refs.data_sem.at[i & 1])
            for source, target in pairs
        ]

    def fetch(i: jax.Array) -> None:
        for copy in data_copies(i):
            copy.start()
        half, start = i & 1, _line_start(i, line)

        def eight(group: jax.Array, _: Any) -> int:
            def one(edge: jax.Array, _: Any) -> int:
                word = start + group * STRIP + edge
                column, slot = refs.line[word], refs.line[word + line.targets]
                source, target = refs.table.at[pl.ds(column, 1)], refs.far.at[half, pl.ds(slot, 1)]
                pltpu.make_async_copy(source, target, refs.far_sem.at[half]).start()
                return 0

            return lax.fori_loop(0, STRIP, one, 0, unroll=refs.unroll)

        lax.fori_loop(0, refs.line[start + line.groups], eight, 0)

    def await_fetched(i: jax.Array) -> None:
        groups, half = refs.line[_line_start(i, line) + line.groups], i & 1
        # The bytes of 1, 2, 4, ... groups of eight rows, as the number of groups has it in binary.
        for bit in range(line.strips.bit_length()):

            @pl.when((groups >> bit) & 1 == 1)
            def _(rows: int = STRIP << bit) -> None:
                some = refs.far.at[half, pl.ds(0, rows)]
                pltpu.make_async_copy(some, some, refs.far_sem.at[half]).wait()

        for copy in data_copies(i):
            copy.wait()

    def step(i: jax.Array, carry: Any) -> Any:
        # On a core's first tile also what would have been fetched before it.
        ahead = jnp.where(i == begin, 0, 1)

        def start_line(j: jax.Array, _: Any) -> int:
            line_copy(j).start()
            return 0

        def fetch_rows(j: jax.Array, _: Any) -> int:
            line_copy(j).wait()
            fetch(j)
            return 0

        lax.fori_loop(i + 2 * ahead, jnp.minimum(i + 3, end), start_line, 0)
        lax.fori_loop(i + ahead, jnp.minimum(i + 2, end), fetch_rows, 0)
        tile = Tile(refs, line, heads, i, rate)
        tile.spread_rows()
        await_fetched(i)
        carry = of_tile(tile, refs, carry)
        for found, edge_out in zip(refs.edge_blocks, refs.edge_outs, strict=True):
            copy = pltpu.make_async_copy(found, edge_out.at[i], refs.edge_sem)
            copy.start()
            copy.wait()
        return carry

    carry = lax.fori_loop(refs.starts[number], refs.starts[number + 1], step, first())
    for ref, total in zip(refs.totals, carry, strict=False):
        ref[...] = total
