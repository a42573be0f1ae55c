"""Walks the tiles of strips on a TPU, and fetches for each while the one before is worked on.

What a tile needs is its line (`strips.py`, to SMEM), the rows of the other ends of its edges (to
VMEM, one copy an edge, all on one semaphore, waited for by their bytes), and its bias and edge ids
if there are any. While tile i is worked on, the rows of tile i + 1 are on their way and so is the
line of tile i + 2; this goes on across blocks, so that the wait at the start is the only one.

Everything that is gathered is a table of 32-bit words with the channels of all heads in the lanes:
float32 as it is, bfloat16 in pairs (`pack`), since a single row of 16-bit numbers cannot be
addressed in the tiled memory of a TPU.
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

from pallas_kernels.segment_attention.block_sizes import vmem_limit
from pallas_kernels.segment_attention.strips import CORES, STRIP, Line, Strips
from pallas_kernels.segment_attention.types import (
    NOTHING,
    Dropout,
    Edges,
    StripPairs,
    head_keys,
    kept,
)

LANES = 128
HALF = LANES // 2  # numbers of heads come in pairs, the second from this lane on
LINES_AHEAD = 4  # lines held at a time: in use, being gathered from, on the way; a power of two


@dataclass(frozen=True)
class Heads:
    """Heads that a kernel takes at a time, side by side in the lanes."""

    first: int
    count: int
    width: int

    @property
    def lanes(self) -> int:
        """Lanes of their channels: whole registers."""
        return round_up(self.count * self.width, LANES)

    @property
    def sublanes(self) -> int:
        """Sublanes of one number for each of them."""
        return round_up(self.count, 8)

    def of(self, array: jax.Array) -> jax.Array:
        """Their part of an array [rows, heads, ...]."""
        return array[:, self.first : self.first + self.count]

    def flat(self, array_nhd: jax.Array) -> jax.Array:
        """Their part of an array [rows, heads, width], in the lanes."""
        flat = self.of(array_nhd).reshape(len(array_nhd), self.count * self.width)
        return jnp.pad(flat, ((0, 0), (0, self.lanes - flat.shape[1])))

    def unflat(self, array_nl: jax.Array) -> jax.Array:
        """The way back from `flat`."""
        flat = array_nl[:, : self.count * self.width]
        return flat.reshape(len(flat), self.count, self.width)


def head_groups(heads: int, width: int, lanes: int) -> list[Heads]:
    """Split the heads so that a group's channels fit a number of lanes, or one head does not."""
    size = min(HALF, max(1, lanes // width))
    return [Heads(i, min(size, heads - i), width) for i in range(0, heads, size)]


def round_up(number: int, multiple: int) -> int:
    """The next multiple of a number."""
    return -(-number // multiple) * multiple


def pack(a_nl: jax.Array, b_nl: jax.Array) -> jax.Array:
    """Two tables as one: side by side, or as the halves of each word if both are bfloat16."""
    if a_nl.dtype == b_nl.dtype == jnp.bfloat16:
        high, low = (
            lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) for x in (a_nl, b_nl)
        )
        return lax.bitcast_convert_type(high << 16 | low, jnp.int32)
    return jnp.concatenate([a_nl.astype(jnp.float32), b_nl.astype(jnp.float32)], axis=1)


def with_pair(packed_nl: jax.Array, a_nh: jax.Array, b_nh: jax.Array) -> jax.Array:
    """Add two numbers for each head to a packed table."""
    # Put together with the rows in the lanes, as XLA keeps arrays of few heads: [rows, heads] with
    # the heads in the lanes would be 128 lanes for each of the two.
    halves = (jnp.pad(x.T, ((0, HALF - x.shape[1]), (0, 0))) for x in (a_nh, b_nh))
    pair = jnp.concatenate(list(halves)).astype(jnp.float32).T
    if packed_nl.dtype == jnp.int32:
        pair = lax.bitcast_convert_type(pair, jnp.int32)
    return jnp.concatenate([packed_nl, pair], axis=1)


def unpack(words: jax.Array, lanes: int) -> tuple[jax.Array, jax.Array]:
    """The two tables of `pack`, as float32."""
    if words.dtype == jnp.int32:
        words = words[:, :lanes]
        high = lax.bitcast_convert_type(words & jnp.int32(-65536), jnp.float32)
        return high, lax.bitcast_convert_type(words << 16, jnp.float32)
    return words[:, :lanes], words[:, lanes : 2 * lanes]


def unpack_pair(words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two numbers of each head of `with_pair`, each from lane 0 on."""
    pair = words[:, -LANES:]
    if pair.dtype == jnp.int32:
        pair = lax.bitcast_convert_type(pair, jnp.float32)
    return pair, swap_halves(pair)


def swap_halves(x: jax.Array) -> jax.Array:
    """Move a register's second half of lanes to the front, or back."""
    return pltpu.roll(x, HALF, axis=1)


@dataclass(frozen=True)
class EdgeData:
    """What is known of single edges, by slot: bias and dropout."""

    bias_tgw: jax.Array | None  # float32 [tiles, heads, slots]
    ids_t1w: jax.Array | None  # int32 [tiles, 1, slots]
    draws_1g: jax.Array | None  # uint32 [1, lanes]
    rate: float


def edge_data(
    strips: Strips, heads: Heads, bias_eh: jax.Array | None, dropout: Dropout | None
) -> EdgeData:
    """Bring bias and dropout into the order of the slots."""
    bias = ids = draws = None
    if bias_eh is not None:
        bias_he = heads.of(bias_eh).astype(jnp.float32).T
        bias_he = jnp.pad(bias_he, ((0, heads.sublanes - heads.count), (0, 0)))
        if not bias_he.shape[1]:
            bias_he = jnp.zeros((heads.sublanes, 1), jnp.float32)
        # Head by head: a gather of rows would need them in rows of 128 lanes, most of them padding.
        of_slots = [head_e[strips.positions_tw] for head_e in bias_he]
        bias = jnp.stack(of_slots, axis=1)
    rate = 0.0 if dropout is None else float(dropout.rate)
    if dropout is not None and rate > 0:
        ids = jnp.asarray(strips.ids_tw)[:, None]
        draws = head_keys(dropout.seed, heads.first + heads.count)[heads.first :]
        draws = jnp.pad(draws, (0, LANES - heads.count))[None]
    return EdgeData(bias, ids, draws, rate)


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
            self._refs.near_rows[at] = self._refs.near[pl.ds(self.row(strip), 1)]
            count = self._word(self._line.counts + strip)
            self._refs.counts[at] = jnp.full((1, self._refs.counts.shape[1]), count, jnp.int32)
            return 0

        self.over_strips(spread, 0)

    @property
    def near(self) -> jax.Array:
        """The words of each strip's own row."""
        return self._refs.near_rows[...]

    @property
    def far(self) -> jax.Array:
        """The words of the row at the other end of each edge; anything where there is no edge."""
        return self._refs.far[self.number & 1, : self._line.slots]

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

    def bias(self) -> jax.Array | float:
        """Bias of each slot, one lane a head."""
        if self._refs.bias is None:
            return 0.0
        # Turned by the matrix unit, where an infinity would spoil the edge's other heads.
        bias_gw = self._refs.bias[self.number & 1]
        bias_gw = jnp.where(bias_gw < NOTHING, NOTHING, bias_gw)
        return self.by_strip(_exact_dot(bias_gw, _unit(bias_gw.shape[0]), 0, 0))

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


# References that a kernel has only if there is a bias, or dropout, or a gradient of the bias.
OPTIONAL = ("ids", "bias", "draws", "ids_hbm", "bias_hbm", "edge_out")


def walk(
    of_tile: Callable[[Tile, Any, Any], Any],
    first: Callable[[Heads], Any],
    *,
    strips: Strips,
    heads: Heads,
    near_rl: jax.Array,
    far_cl: jax.Array,
    data: EdgeData,
    out_lanes: Sequence[int],
    scratch_lanes: Sequence[int],
    edge_out: bool = False,
    name: str,
    interpret: Any = False,
) -> list[jax.Array]:
    """Call `of_tile(tile, refs, carry)` for all tiles in order, with `first(heads)` for each block.

    `near_rl` are the words of the rows, `far_cl` those of the columns. Gives an array of rows for
    each of `out_lanes`, which `of_tile` writes to `refs.outs`; with `edge_out` also one number for
    each head and slot, written to `refs.edge_block`. `scratch_lanes` are arrays of a row a strip.
    """
    line = Line(strips.slots)
    groups, rest = divmod(strips.num_blocks, CORES)
    cores, blocks = (1, strips.num_blocks) if rest else (CORES, groups)
    num_rows, last_block = len(near_rl), -(-len(near_rl) // strips.block_rows) - 1
    if num_rows < strips.block_rows:  # a block may run past the last row, but not be all there is
        near_rl = jnp.pad(near_rl, ((0, strips.block_rows - num_rows), (0, 0)))
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

    of_head = _lanes_of_heads(heads)
    inputs: list[tuple[str, Any, pl.BlockSpec]] = [
        ("lines", jnp.asarray(strips.lines_l), whole),
        ("table", far_cl, whole),
        ("near", near_rl, block(near_rl.shape[1])),
        ("of_head", of_head, constant(of_head)),
    ]
    scratch: list[tuple[str, Any]] = [
        ("line", pltpu.SMEM((LINES_AHEAD * line.length,), jnp.int32)),
        ("line_sem", pltpu.SemaphoreType.DMA((LINES_AHEAD,))),
        # Eight slots more than there are: where the padding of a tile's list of edges goes.
        ("far", pltpu.VMEM((2, slots + STRIP, far_cl.shape[1]), far_cl.dtype)),
        ("far_sem", pltpu.SemaphoreType.DMA((2,))),
        ("near_rows", pltpu.VMEM((line.strips, near_rl.shape[1]), near_rl.dtype)),
        ("counts", pltpu.VMEM((line.strips, heads.lanes), jnp.int32)),
        ("data_sem", pltpu.SemaphoreType.DMA((2,))),
    ]
    if data.bias_tgw is not None:
        inputs.append(("bias_hbm", data.bias_tgw, whole))
        scratch.append(("bias", pltpu.VMEM((2, heads.sublanes, slots), jnp.float32)))
    if data.ids_t1w is not None:
        inputs += [
            ("ids_hbm", data.ids_t1w, whole),
            ("draws", data.draws_1g, constant(data.draws_1g)),
        ]
        scratch.append(("ids", pltpu.VMEM((2, 1, slots), jnp.int32)))
    outputs: list[tuple[str, tuple[int, ...], pl.BlockSpec]] = [
        (f"out{i}", (len(near_rl), lanes), block(lanes)) for i, lanes in enumerate(out_lanes)
    ]
    if edge_out:
        outputs.append(("edge_out", (tiles, heads.sublanes, slots), whole))
        scratch += [
            ("edge_block", pltpu.VMEM((heads.sublanes, slots), jnp.float32)),
            ("edge_sem", pltpu.SemaphoreType.DMA),
        ]
    scratch += [
        (f"scratch{i}", pltpu.VMEM((line.strips, lanes), jnp.float32))
        for i, lanes in enumerate(scratch_lanes)
    ]
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
        refs.outs = [getattr(refs, f"out{i}") for i in range(len(out_lanes))]
        refs.scratch = [getattr(refs, f"scratch{i}") for i in range(len(scratch_lanes))]
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
    by_row = len(out_lanes)
    outs = call(jnp.asarray(strips.tile_starts_b), *(array for _, array, _ in inputs))
    return [*(out[:num_rows] for out in outs[:by_row]), *outs[by_row:]]


def strip_pair(edges: Edges) -> StripPairs:
    """The strips of the edges, or what to do to have them."""
    if edges.strips is None:
        raise ValueError('the tpu back end works on strips: build_edges(..., layouts=("strips",))')
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
    first: Callable[[Heads], Any],
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
        pairs = ((refs.bias_hbm, refs.bias), (refs.ids_hbm, refs.ids))
        return [
            pltpu.make_async_copy(source.at[i], target.at[i & 1], refs.data_sem.at[i & 1])
            for source, target in pairs
            if source is not None
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
        if refs.edge_out is not None:
            copy = pltpu.make_async_copy(refs.edge_block, refs.edge_out.at[i], refs.edge_sem)
            copy.start()
            copy.wait()
        return carry

    lax.fori_loop(refs.starts[number], refs.starts[number + 1], step, first(heads))
