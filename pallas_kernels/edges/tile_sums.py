"""What tiles of rows (`tiling.py`) give, brought together as rows: after all of them, or in place.

*Afterwards*: every tile's result is kept, those of hubs are merged level by level, and each row
takes the one that is its own. Reductions are dense and need no scatter, which suits CPUs and TPUs;
it costs the memory of a result a tile, about twice. On a GPU XLA makes one kernel of all levels,
whose code grows fourfold with each: 4 levels took over 300 s to compile.

*In place*: the rows are carried through the loop over chunks of tiles, and each chunk writes those
that are its own, once each, so that results are still the same from run to run. Nothing is kept but
the rows. Within a chunk each tile of a hub looks at all others, which costs arithmetic but no
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.edges.tiling import WIDTHS, Tiles, Tiling

Tree = Any


def reduce_tiles(
    tiling: Tiling,
    of_tile: Callable[..., tuple[Tree, Tree, Tree]],
    merge_axis: Callable[[Tree], Tree],
    empty: Tree,
    total: Tree = (),
    *,
    in_place: bool = False,
) -> tuple[Tree, list[Tree], Tree]:
    """Rows, the results of slots for each width, and sums on top of `total`.

    `of_tile(rows_t, starts_t, columns_tw)` gives the results of its tiles, those of their slots,
    and something to add up. `merge_axis` reduces results of tiles stacked along axis 1; `empty` is
    the tree of numbers that merges as nothing, which is also what rows without edges get.
    """
    if in_place:
        return _in_place(tiling, of_tile, merge_axis, empty, total)

    def of_chunk(total: Tree, chunk: tuple[jax.Array, ...]) -> tuple[Tree, Tree]:
        of_tiles, of_slots, more = of_tile(*chunk)
        return jax.tree.map(jnp.add, total, more), (of_tiles, of_slots)

    results = []
    for tiles in tiling.tiles:
        total, found = _over_chunks(tiles, of_chunk, total)
        results.append(found)
    rows = _merged(tiling, [of_tiles for of_tiles, _ in results], merge_axis, empty)
    return rows, [of_slots for _, of_slots in results], total


def map_slots(tiling: Tiling, of_tile: Callable[..., Tree]) -> list[Tree]:
    """The results of slots for each width, where nothing is reduced."""

    def of_chunk(nothing: Tree, chunk: tuple[jax.Array, ...]) -> tuple[Tree, Tree]:
        return nothing, of_tile(*chunk)

    return [_over_chunks(tiles, of_chunk, ())[1] for tiles in tiling.tiles]


def _over_chunks(tiles: Tiles, of_chunk: Callable[..., Any], carry: Tree) -> tuple[Tree, Tree]:
    """Fold over the chunks of one width; results have a leading axis of all its tiles."""
    chunks = (tiles.rows_ct, tiles.starts_ct, tiles.columns_ctw)
    if tiles.rows_ct.shape[0] == 1:
        return of_chunk(carry, tuple(jnp.asarray(array)[0] for array in chunks))
    carry, results = jax.lax.scan(of_chunk, carry, chunks)
    return carry, jax.tree.map(lambda x: x.reshape(tiles.num_tiles, *x.shape[2:]), results)


def _merged(
    tiling: Tiling, results: list[Tree], merge_axis: Callable[[Tree], Tree], empty: Tree
) -> Tree:
    """Bring the results of tiles together as rows."""
    whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)
    if not jax.tree.leaves(whole):
        return whole
    for fan in tiling.merges:
        level = merge_axis(_take(whole, fan, empty))
        whole = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), whole, level)
    return _take(whole, tiling.result_r, empty)


def _take(whole: Tree, index: jax.Array, empty: Tree) -> Tree:
    def take(array: jax.Array, nothing: float) -> jax.Array:
        # A number outside the array, -1 or one past the end, is nobody's result.
        outside = jnp.where(index < 0, array.shape[0], index)
        return array.at[outside].get(mode="fill", fill_value=nothing)

    return jax.tree.map(take, whole, empty)


def _in_place(
    tiling: Tiling,
    of_tile: Callable[..., tuple[Tree, Tree, Tree]],
    merge_axis: Callable[[Tree], Tree],
    empty: Tree,
    total: Tree,
) -> tuple[Tree, list[Tree], Tree]:
    count = tiling.num_rows
    shapes, _, _ = jax.eval_shape(of_tile, *(x[0] for x in jax.tree.leaves(tiling.tiles[0])))
    rows = jax.tree.map(lambda x, n: jnp.full((count, *x.shape[1:]), n, x.dtype), shapes, empty)

    def of_chunk(hubs: bool, carry: Tree, chunk: tuple[jax.Array, ...]) -> tuple[Tree, Tree]:
        rows, total = carry
        of_tiles, of_slots, more = of_tile(*chunk)
        row_t, _, columns_tw = chunk
        tile_t = jnp.arange(len(row_t))
        # Tiles of padding go past the last row, each to a place of its own.
        row_t = jnp.where(columns_tw[:, 0] >= 0, row_t, count + tile_t)
        if hubs:
            # Code for what comes before is not to be repeated for each of the pairs.
            of_tiles = jax.lax.optimization_barrier(of_tiles)
            of_tiles = merge_axis(_pairs(of_tiles, row_t[:, None] == row_t, empty))
            # The first of a row's tiles in this chunk writes for all; those before may have.
            is_first_t = row_t != jnp.concatenate([jnp.full(1, -1, row_t.dtype), row_t[:-1]])
            row_t = jnp.where(is_first_t, row_t, count + tile_t)
            before = _take(rows, row_t, empty)
            both = jax.tree.map(lambda *two: jnp.stack(two, axis=1), before, of_tiles)
            of_tiles = merge_axis(both)
        rows = jax.tree.map(
            lambda all_rows, new: all_rows.at[row_t].set(new, mode="drop", unique_indices=True),
            rows,
            of_tiles,
        )
        return (rows, jax.tree.map(jnp.add, total, more)), of_slots

    by_slot = []
    for tiles in tiling.tiles:
        hubs = tiles.columns_ctw.shape[-1] == WIDTHS[-1]
        (rows, total), of_slots = _over_chunks(
            tiles, lambda carry, chunk, hubs=hubs: of_chunk(hubs, carry, chunk), (rows, total)
        )
        by_slot.append(of_slots)
    return rows, by_slot, total


def _pairs(of_tiles: Tree, same_tt: jax.Array, empty: Tree) -> Tree:
    """For every tile all tiles along axis 1, and nothing where they are of another row."""

    def of_pairs(x: jax.Array, nothing: float) -> jax.Array:
        same = same_tt.reshape(*same_tt.shape, *(1,) * (x.ndim - 1))
        return jnp.where(same, x[None], jnp.asarray(nothing, x.dtype))

    return jax.tree.map(of_pairs, of_tiles, empty)
