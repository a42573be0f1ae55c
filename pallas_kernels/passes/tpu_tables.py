"""Tables of rows as the TPU kernels hold them: words of 32 bits, channels of heads in the lanes.

What belongs to a node stands in lines of 128 words one after the other, `Table.lines` of them:
arrays of that width are contiguous in the tiled memory of a TPU, so that one copy of one piece
fetches it all, and the address of a node's lines is its number times their number.

float32 stays as it is; two tables of bfloat16 share their words, since a single row of 16-bit
numbers cannot be addressed in the tiled memory of a TPU. A table of bfloat16 that is alone folds
into half its lanes if that leaves whole registers, and is float32 otherwise. Numbers of heads come
two tables to a register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
HALF = LANES // 2  # numbers of heads come in pairs, the second from this lane on
BLOCK_ROWS = 512  # rows that are put into a table at a time
TABLE_KERNEL = "line_by_line"


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

    def lanes_of(self, array: jax.Array) -> int:
        """Lanes of a row of [rows, heads, width] or [rows, heads]."""
        return self.lanes if array.ndim == 3 else LANES

    def of(self, array: jax.Array) -> jax.Array:
        """Their part of an array [rows, heads, ...]."""
        return array[:, self.first : self.first + self.count]

    def flat(self, array_nhd: jax.Array) -> jax.Array:
        """Their part of an array [rows, heads, width], in the lanes."""
        flat = self.of(array_nhd).reshape(len(array_nhd), self.count * self.width)
        return jnp.pad(flat, ((0, 0), (0, self.lanes - flat.shape[1])))

    def unflat(self, array_nl: jax.Array, like: jax.Array) -> jax.Array:
        """Their part of an array like another, [rows, heads, width] or [rows, heads]."""
        if like.ndim == 2:
            return array_nl[:, : self.count]
        flat = array_nl[:, : self.count * self.width]
        return flat.reshape(len(flat), self.count, self.width)


def head_groups(heads: int, width: int, lanes: int) -> list[Heads]:
    """Split the heads so that a group's channels fit a number of lanes, or one head does not."""
    size = min(HALF, max(1, lanes // width))
    return [Heads(i, min(size, heads - i), width) for i in range(0, heads, size)]


def round_up(number: int, multiple: int) -> int:
    """The next multiple of a number."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Section:
    """Some lanes of the words, and the tables (by their numbers) that are in them."""

    kind: str  # "channels", "both halves of words", "folded" or "numbers of heads"
    tables: tuple[int, ...]
    lanes: int


@dataclass(frozen=True)
class Table:
    """Trees of arrays [rows, heads, width] and [rows, heads] as one array of words."""

    words_ml: jax.Array  # [rows * lines, 128]
    sections: tuple[Section, ...]
    tree: Any

    @property
    def lines(self) -> int:
        """Lines of a row."""
        return sum(section.lanes for section in self.sections) // LANES

    def with_words(self, words_ml: jax.Array) -> Table:
        """The same in other words."""
        return replace(self, words_ml=words_ml)

    def unpack(self, line: Callable[[int], jax.Array]) -> Any:
        """The tree of some rows, in float32, from the n-th lines of all of them.

        Channels in the lanes, numbers of heads from 0 on; lanes past the last head hold anything.
        """
        found: dict[int, jax.Array] = {}
        start = 0
        for section in self.sections:
            end = start + section.lanes // LANES
            part = jnp.concatenate([line(i) for i in range(start, end)], axis=1)
            found |= zip(section.tables, _unpacked(part, section), strict=True)
            start = end
        return self.tree.unflatten(found[i] for i in range(len(found)))


def pack(heads: Heads, tree: Any, interpret: Any = False) -> Table | None:
    """The part of some heads of a tree of arrays; None of an empty one."""
    arrays, structure = jax.tree.flatten(tree)
    if not arrays:
        return None
    wide = [i for i, x in enumerate(arrays) if x.ndim == 3]
    narrow = [i for i in wide if arrays[i].dtype == jnp.bfloat16]
    in_pairs = [tuple(narrow[i : i + 2]) for i in range(0, len(narrow), 2)]
    alone = [i for i in wide if i not in narrow]
    sections, parts = [], []
    for pair in in_pairs:
        if len(pair) == 2:
            sections.append(Section("both halves of words", pair, heads.lanes))
            parts.append(_halves(*(heads.flat(arrays[i]) for i in pair)))
        elif heads.lanes % (2 * LANES) == 0:
            lanes = heads.lanes // 2
            sections.append(Section("folded", pair, lanes))
            flat = heads.flat(arrays[pair[0]])
            parts.append(_halves(flat[:, :lanes], flat[:, lanes:]))
        else:
            alone += pair
    for i in alone:
        sections.append(Section("channels", (i,), heads.lanes))
        parts.append(heads.flat(arrays[i]).astype(jnp.float32))
    of_heads = [i for i, x in enumerate(arrays) if x.ndim == 2]
    for two in (tuple(of_heads[i : i + 2]) for i in range(0, len(of_heads), 2)):
        sections.append(Section("numbers of heads", two, LANES))
        parts.append(_numbers([heads.of(arrays[i]) for i in two]))
    if any(part.dtype == jnp.int32 for part in parts):
        parts = [lax.bitcast_convert_type(part, jnp.int32) for part in parts]
    return Table(_line_by_line(parts, interpret), tuple(sections), structure)


def _line_by_line(parts: list[jax.Array], interpret: Any) -> jax.Array:
    """The rows of some arrays next to each other, in lines of 128 words: [rows * lines, 128].

    A kernel, since XLA would put them together in another layout first, and copy that.
    """
    rows, lines = len(parts[0]), sum(part.shape[1] for part in parts) // LANES
    if lines == 1 or not rows:
        return jnp.concatenate(parts, axis=1).reshape(-1, LANES)
    block = min(rows, BLOCK_ROWS)

    def kernel(*refs: Any) -> None:
        *of_parts, out = refs
        by_line = ((ref, i) for ref in of_parts for i in range(0, ref.shape[1], LANES))
        for line, (ref, i) in enumerate(by_line):
            out[pl.ds(line, block, lines)] = ref[:, i : i + LANES]

    return pl.pallas_call(
        kernel,
        grid=(-(-rows // block),),
        in_specs=[pl.BlockSpec((block, part.shape[1]), lambda b: (b, 0)) for part in parts],
        out_specs=pl.BlockSpec((block * lines, LANES), lambda b: (b, 0)),
        out_shape=jax.ShapeDtypeStruct(
            (rows * lines, LANES), parts[0].dtype, manual_axis_type=varying(*parts)
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name=TABLE_KERNEL,
        interpret=interpret,
    )(*parts)


def varying(*arrays: Any) -> Any:
    """Inside `shard_map`, the mesh axes along which what is computed from some arrays differs."""
    types = [jax.typeof(array).manual_axis_type for array in arrays]
    return jax.sharding.ManualAxisType(varying=frozenset().union(*(t.varying for t in types)))


def _halves(high_nl: jax.Array, low_nl: jax.Array) -> jax.Array:
    high, low = (
        lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) for x in (high_nl, low_nl)
    )
    return lax.bitcast_convert_type(high << 16 | low, jnp.int32)


def _numbers(arrays: list[jax.Array]) -> jax.Array:
    # Put together with the rows in the lanes, as XLA keeps arrays of few heads: [rows, heads] with
    # the heads in the lanes would be 128 lanes for each of the two.
    halves = [jnp.pad(x.T, ((0, HALF - x.shape[1]), (0, 0))) for x in arrays]
    if len(halves) == 1:
        halves.append(jnp.zeros_like(halves[0]))
    return jnp.concatenate([half.astype(jnp.float32) for half in halves]).T


def _unpacked(words: jax.Array, section: Section) -> tuple[jax.Array, ...]:
    if section.kind in ("both halves of words", "folded"):
        high = lax.bitcast_convert_type(words & jnp.int32(-65536), jnp.float32)
        low = lax.bitcast_convert_type(words << 16, jnp.float32)
        if section.kind == "folded":
            return (jnp.concatenate([high, low], axis=1),)
        return high, low
    if words.dtype == jnp.int32:
        words = lax.bitcast_convert_type(words, jnp.float32)
    if section.kind == "channels":
        return (words,)
    return (words, swap_halves(words))[: len(section.tables)]


def swap_halves(x: jax.Array) -> jax.Array:
    """Move a register's second half of lanes to the front, or back."""
    return pltpu.roll(x, HALF, axis=1)
