"""What the GPU kernels share: how large a program is, what it loads, and how hubs come together.

A program works on some pieces of rows (`pieces.py`), some heads and all channels. Everything it
holds is a block `[pieces, heads, channels]` in registers, of sizes that are powers of two, as
Triton requires; what is too much of a block is masked, not padded in memory. It takes `unroll`
edges of each of its pieces at a time, so that their loads are in flight together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import ManualAxisType

from pallas_kernels.edges.dropout import Dropout, head_keys, kept
from pallas_kernels.edges.edges import EdgePieces, Edges
from pallas_kernels.edges.pieces import Pieces, RowPieces
from pallas_kernels.passes.contraction import Arithmetic, contracted, triton

_THREADS = 32  # of a warp
_MOST_CHANNELS = 8  # of a thread: of two senders' keys and values, a query and the sums
_MOST_WARPS = 16
_OLDEST = 8.0  # compute capability that XLA's Triton compiles for: Ampere


def why_not() -> str | None:
    """What keeps the kernels from running on this GPU; None if they can, or there is no GPU."""
    if jax.default_backend() != "gpu":
        return None
    if triton is None:
        return f"jax {jax.__version__} has no Pallas Triton"
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    try:
        old = float(str(capability)) < _OLDEST
    except ValueError:  # not of NVIDIA, and not tried
        return f"it is for NVIDIA GPUs; this is {device.device_kind}"
    if old:
        return f"it is for GPUs of compute capability {_OLDEST} and up; this one has {capability}"
    return None


@dataclass(frozen=True)
class Block:
    """Sizes of a program. All are powers of two."""

    pieces: int
    heads: int
    width: int
    lanes: int = 1  # channels next to each other whose products a thread adds up by itself
    unroll: int = 2
    warps: int = 4


def block_sizes(heads: int, width: int, dtype: Any, warps: int = 4) -> Block:
    """A block in which a thread loads up to 16 bytes of a row at once, and a warp whole heads."""
    # Only as many channels as keep every head's row of channels aligned to them.
    channels = min(16 // jnp.dtype(dtype).itemsize, width & -width)
    padded_width = pl.next_power_of_2(width)
    # A dot product among several warps goes through shared memory, with barriers at every step: a
    # single warp takes rows of more channels than it loads at once in several loads, as long as
    # its registers hold what it has loaded.
    if padded_width > _THREADS * channels:
        warps = min(max(1, padded_width // (_THREADS * _MOST_CHANNELS)), _MOST_WARPS)
    elements = max(warps * _THREADS * channels, padded_width)
    some_heads = min(pl.next_power_of_2(heads), elements // padded_width)
    pieces = elements // (some_heads * padded_width)
    # In bfloat16, and among warps, lanes were seen to change layouts through shared memory.
    alone = jnp.dtype(dtype).itemsize == 4 and padded_width <= _THREADS * _MOST_CHANNELS
    lanes = channels if alone else 1
    return Block(pieces, some_heads, padded_width, lanes, warps=warps)


class Draws(NamedTuple):
    """What dropout is drawn from; None without."""

    ids_e: Any
    keys_h: Any


def draws_of(edges: Edges, dropout: Dropout | None, heads: int) -> Draws:
    """The arrays that a program looks up for an edge and for a head."""
    if dropout is None or dropout.rate == 0:
        return Draws(None, None)
    return Draws(edges.edge_ids_e, head_keys(dropout.seed, heads))


def edge_pieces(edges: Edges) -> EdgePieces:
    """The pieces, which `build_edges` makes on request."""
    if edges.pieces is None:
        raise ValueError('the gpu back end works on pieces: build_edges(..., forms=["pieces"])')
    return edges.pieces


class Program:
    """The part of the work that the running program has: its pieces, heads and channels."""

    def __init__(
        self,
        pieces: Pieces,
        part_rows_q: Any,
        block: Block,
        heads: int,
        width: int,
        arithmetic: Arithmetic,
    ):
        self._arithmetic = arithmetic
        number_t = pl.program_id(0) * block.pieces + jnp.arange(block.pieces)
        self._block, self._heads, self._width = block, heads, width
        self._h = pl.program_id(1) * block.heads + jnp.arange(block.heads)
        self._d = jnp.arange(block.width)
        inside_t = number_t < pieces.count
        row_t = triton.load(pieces.rows_p.at[number_t], mask=inside_t, other=-1)
        self.whole_t, self.is_part_t, self.part_t = row_t >= 0, row_t < -1, -2 - row_t
        if part_rows_q is not None:
            of_part_t = triton.load(part_rows_q.at[self.part_t], mask=self.is_part_t, other=-1)
            row_t = jnp.where(self.is_part_t, of_part_t, row_t)
        self.real_t = row_t >= 0
        self.row_t = jnp.maximum(row_t, 0)
        self.start_t = triton.load(pieces.starts_p.at[number_t], mask=self.real_t, other=0)
        self.end_t = triton.load(pieces.ends_p.at[number_t], mask=self.real_t, other=0)

    def zeros(self, count: int | None = None) -> jax.Array:
        """An accumulator for a row of each piece, or for so many."""
        pieces = self._block.pieces if count is None else count
        return jnp.zeros((pieces, self._block.heads, self._block.width), jnp.float32)

    def full(self, value: float, count: int | None = None) -> jax.Array:
        """A number for each head of each piece, or of so many."""
        pieces = self._block.pieces if count is None else count
        return jnp.full((pieces, self._block.heads), value, jnp.float32)

    def own(self, refs: Any) -> Any:
        """The rows of the pieces in a tree of tables."""
        return self.load(refs, self.row_t, self.real_t)

    def shared(self, refs: Any) -> Any:
        """What tables of one row hold, for each piece."""
        return self.load(refs, jnp.zeros_like(self.row_t), self.real_t)

    def load(self, refs: Any, index_t: jax.Array, real_t: jax.Array) -> Any:
        """Rows of a tree of tables, `[_, heads, channels]` or `[_, heads]`."""

        def of_table(ref: Any) -> jax.Array:
            per_head = len(ref.shape) == 2
            return (self.per_head if per_head else self.rows)(ref, index_t, real_t)

        return jax.tree.map(of_table, refs)

    def store(self, ref: Any, index_t: jax.Array, real_t: jax.Array, rows: jax.Array) -> None:
        """Write rows of either kind that are real; no two of them may be the same."""
        per_head = len(ref.shape) == 2
        (self.store_per_head if per_head else self.store_rows)(ref, index_t, real_t, rows)

    def store_total(self, ref: Any, rows: jax.Array) -> None:
        """Write the sum over the pieces to the one row that this program has."""
        number_1 = pl.program_id(0) + jnp.arange(1)
        self.store(ref, number_1, number_1 >= 0, rows.sum(axis=0, keepdims=True))

    def rows(self, ref: Any, index_t: jax.Array, real_t: jax.Array) -> jax.Array:
        """Rows of `[_, heads, channels]` in float32; zero where not real."""
        at, mask = self._row(ref, index_t, real_t)
        return triton.load(at, mask=mask, other=0.0).astype(jnp.float32)

    def per_head(self, ref: Any, index_t: jax.Array, real_t: jax.Array) -> jax.Array:
        """Rows of `[_, heads]` in float32; zero where not real."""
        at, mask = self._head(ref, index_t, real_t)
        return triton.load(at, mask=mask, other=0.0).astype(jnp.float32)

    def store_rows(self, ref: Any, index_t: jax.Array, real_t: jax.Array, rows: jax.Array) -> None:
        """Write rows that are real; no two of them may be the same."""
        at, mask = self._row(ref, _past_the_end(ref, index_t, real_t), real_t)
        triton.store(at, rows.astype(ref.dtype), mask=mask)

    def store_per_head(
        self, ref: Any, index_t: jax.Array, real_t: jax.Array, rows: jax.Array
    ) -> None:
        """Write rows of one number a head."""
        at, mask = self._head(ref, _past_the_end(ref, index_t, real_t), real_t)
        triton.store(at, rows.astype(ref.dtype), mask=mask)

    def _row(self, ref: Any, index_t: jax.Array, real_t: jax.Array) -> tuple[Any, jax.Array]:
        mask = real_t[:, None, None] & (self._h < self._heads)[:, None] & (self._d < self._width)
        return ref.at[index_t[:, None, None], self._h[None, :, None], self._d[None, None, :]], mask

    def _head(self, ref: Any, index_t: jax.Array, real_t: jax.Array) -> tuple[Any, jax.Array]:
        return ref.at[index_t[:, None], self._h[None, :]], real_t[:, None] & (self._h < self._heads)

    def over_edges(
        self, of_edges: Callable[[list[Edge], Any], Any], columns_e: Any, start: Any
    ) -> Any:
        """Fold `of_edges(edges, carry)` over the edges of all pieces, `unroll` of each a step."""
        unroll = self._block.unroll

        def columns(first_t: jax.Array) -> list[jax.Array]:
            return [
                triton.load(columns_e.at[first_t + u], mask=first_t + u < self.end_t, other=0)
                for u in range(unroll)
            ]

        def step(i: jax.Array, state: Any) -> Any:
            carry, others = state
            first_t = self.start_t + i * unroll
            following = columns(first_t + unroll)  # in flight while these edges are worked on
            edges = [
                Edge(self, first_t + u, first_t + u < self.end_t, other_t)
                for u, other_t in enumerate(others)
            ]
            return of_edges(edges, carry), following

        steps = pl.cdiv(jnp.max(self.end_t - self.start_t), unroll)
        return jax.lax.fori_loop(0, steps, step, (start, columns(self.start_t)))[0]

    def over_parts(
        self, of_parts: Callable[[jax.Array, jax.Array, Any], Any], start: Any, at_once: int
    ) -> Any:
        """Fold `of_parts(number_t, real_t, carry)` over the range of the one piece there is."""
        steps = pl.cdiv(jnp.max(self.end_t - self.start_t), at_once)

        def step(i: jax.Array, carry: Any) -> Any:
            number_t = self.start_t + i * at_once + jnp.arange(at_once)
            return of_parts(number_t, number_t < self.end_t, carry)

        return jax.lax.fori_loop(0, steps, step, start)

    def contracted(self, function: Callable[[], Any]) -> Any:
        """What the function returns, in as few instructions as the GPU has for it."""
        return contracted(function, self._arithmetic)

    def keys(self, draws: Draws) -> jax.Array | None:
        """The keys of dropout of this program's heads."""
        if draws.keys_h is None:
            return None
        return triton.load(draws.keys_h.at[self._h], mask=self._h < self._heads, other=0)


@dataclass(frozen=True)
class Edge:
    """One edge of each piece: its position, whether there is one, and the node at its other end."""

    program: Program
    position_t: jax.Array
    real_t: jax.Array
    other_t: jax.Array

    def other(self, refs: Any) -> Any:
        """The other end's rows in a tree of tables."""
        return self.program.load(refs, self.other_t, self.real_t)

    def own(self, refs: Any) -> Any:
        """The edge's own rows in a tree of tables."""
        return self.program.load(refs, self.position_t, self.real_t)

    def renumbered(self, position_e: Any) -> Edge:
        """The same edge, numbered by an array of positions."""
        position_t = triton.load(position_e.at[self.position_t], mask=self.real_t, other=0)
        return Edge(self.program, position_t, self.real_t, self.other_t)

    def keep(self, draws: Draws, rate: float, keys_h: jax.Array | None) -> jax.Array | float:
        """The factor of dropout."""
        if keys_h is None:
            return 1.0
        id_t = triton.load(draws.ids_e.at[self.position_t], mask=self.real_t, other=0)
        return kept(rate, id_t[:, None], keys_h[None, :])


def other_ends(edges: list[Edge], refs: Any) -> list[Any]:
    """The rows at the other ends of edges: all loads of a table together, before any is used."""
    tables, tree = jax.tree.flatten(refs)
    loaded = [[edge.other(ref) for edge in edges] for ref in tables]
    return [tree.unflatten(of_table[i] for of_table in loaded) for i in range(len(edges))]


def _past_the_end(ref: Any, index_t: jax.Array, real_t: jax.Array) -> jax.Array:
    # The interpreter writes the old value back where a mask is false, over what another lane has
    # just written there: such lanes point outside, which it ignores.
    return jnp.where(real_t, index_t, ref.shape[0])


@dataclass(frozen=True)
class Launch:
    """How to run kernels over pieces of rows, for one shape of heads."""

    block: Block
    heads: int
    width: int
    interpret: bool = False

    def over_rows(
        self,
        kernel: Callable[..., tuple[Any, Any]],
        merge: Callable[..., Any],
        finish: Callable[..., tuple[Any, ...]],
        rows: RowPieces,
        inputs: Any,
        partials: tuple[tuple[int, ...], ...],
        results: tuple[jax.ShapeDtypeStruct, ...],
        per_edge: tuple[jax.Array, ...] = (),
        totals: tuple[jax.ShapeDtypeStruct, ...] = (),
    ) -> tuple[jax.Array, ...]:
        """Arrays `per_edge`, written edge by edge, then the results of every row, then totals.

        `kernel(program, inputs, per_edge)` gives the partial of each piece, as many arrays as there
        are shapes in `partials`, and what the program adds to the totals, which are summed, always
        in the same order. `finish(*partial)` makes the results of it. Partials of the pieces of
        hubs go to arrays in float32, which `merge(program, at_once, parts)` makes one again.
        """
        count, together = len(per_edge), self.block.pieces
        split, shape = bool(rows.parts and partials), (self.heads, self.width)
        # Numbers of heads change their layout before they are stored. Were they made of products
        # that are summed lane by lane, Triton would do so at every edge, through shared memory.
        wide = all(len(x) == 2 for x in partials) and all(x.ndim == 3 for x in per_edge)
        arithmetic = Arithmetic(self.block.lanes if wide else 1, self.interpret)

        def by_piece(pieces: Pieces, inputs: Any, outputs: Any) -> None:
            part_rows_q, inputs = inputs
            program = Program(pieces, part_rows_q, self.block, *shape, arithmetic)
            left = iter(outputs[count:])
            partial, sums = kernel(program, inputs, outputs[:count])
            for result in finish(*partial):
                program.store(next(left), program.row_t, program.whole_t, result)
            for part in partial if split else ():
                program.store(next(left), program.part_t, program.is_part_t, part)
            for total in sums:
                program.store_total(next(left), total)

        def by_hub(hubs: Pieces, parts: Any, outputs: Any) -> None:
            one = dataclasses.replace(self.block, pieces=1)
            program = Program(hubs, None, one, *shape, arithmetic)
            for ref, result in zip(outputs, finish(*merge(program, together, parts)), strict=True):
                program.store(ref, program.row_t, program.real_t, result)

        name, pieces = kernel.__name__.strip("_"), rows.walked
        shapes = [(rows.parts, *shape) for shape in partials] if split else []
        shapes += [(pl.cdiv(pieces.count, together), *x.shape) for x in totals]
        new = (*results, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
        inputs = (rows.part_rows_q if rows.parts else None, inputs)
        done = self._call(name, by_piece, pieces, together, inputs, new, per_edge)
        per_edge, done = done[:count], done[count:]
        sums = [x.sum(axis=0) for x in done[len(done) - len(totals) :]]
        done, parts = done[: len(results)], done[len(results) : len(done) - len(totals)]
        if split:
            done = self._call(f"{name}_merge", by_hub, rows.hubs, 1, parts, (), done)
        return *per_edge, *done, *sums

    def _call(
        self,
        name: str,
        kernel: Callable[..., None],
        pieces: Pieces,
        pieces_of_program: int,
        inputs: Any,
        new: tuple[jax.ShapeDtypeStruct, ...],
        in_place: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, ...]:
        """Outputs: those that start from `in_place`, and take its memory, then new ones."""
        if not pieces.count:
            return *in_place, *(jnp.zeros(x.shape, x.dtype) for x in new)

        def run(pieces: Pieces, inputs: Any, in_place: Any, *outputs: Any) -> None:
            del in_place  # the same memory as the first outputs
            kernel(pieces, inputs, outputs)

        run.__name__ = name  # which Pallas calls the compiled kernel by
        arguments = (pieces, inputs, in_place)
        first = len(jax.tree.leaves((pieces, inputs)))
        shapes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=_varying(arguments))
            for x in (*in_place, *new)
        ]
        call = pl.pallas_call(
            run,
            grid=(pl.cdiv(pieces.count, pieces_of_program), pl.cdiv(self.heads, self.block.heads)),
            in_specs=jax.tree.map(lambda _: pl.BlockSpec(memory_space=pl.ANY), arguments),
            out_specs=[pl.BlockSpec(memory_space=pl.ANY) for _ in shapes],
            out_shape=shapes,
            input_output_aliases={first + i: i for i in range(len(in_place))},
            compiler_params=triton.CompilerParams(num_warps=self.block.warps, num_stages=1),
            interpret=self.interpret,
        )
        return tuple(call(*arguments))


def _varying(arguments: Any) -> ManualAxisType:
    """Within `shard_map`, results differ over every mesh axis that an argument differs over."""
    types = (jax.typeof(array).manual_axis_type for array in jax.tree.leaves(arguments))
    return ManualAxisType(varying=frozenset().union(*(axes.varying for axes in types)))
