"""The one way in which any op runs under any strategy, on a device inside `jax.shard_map`.

Around the stages of a strategy (`pallas_kernels.driver` merges and differentiates those) there may
be a trade: where a strategy spreads over the feature axis, devices of a group first trade rows of
nodes for heads, or for channels, of all the part's nodes, and trade the results back. An op that
has neither to share out is computed whole by every device of the group, each for all of the part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from gtjax.strategies.base import FEATURE, NODE, Strategy
from gtjax.strategies.wire import PLAIN, Wire
from pallas_kernels.dot_product import DOT_PRODUCT
from pallas_kernels.driver import Stage, segment
from pallas_kernels.edges import Dropout
from pallas_kernels.op import Kernel, Op, Split
from pallas_kernels.propagation import propagate

Tree = Any
EDGES = "along_edges"  # scope of all that runs here, by which compiled programs and traces name it


@dataclass(frozen=True)
class Rows:
    """What an op is given: rows of receivers, senders and edges, and what is the same for all."""

    receiver: Tree = None
    sender: Tree = None
    edge: Tree = None
    shared: Tree = None


@jax.named_scope(EDGES)
def run(
    op: Op,
    strategy: Strategy,
    arrays: Any,
    rows: Rows,
    *,
    dropout: Dropout | None = None,
    kernel: Kernel,
    wire: Wire = PLAIN,
) -> jax.Array:
    """The op over the in-edges of this device's nodes."""
    size = jax.lax.axis_size(FEATURE) if FEATURE in strategy.mesh_axes else 1
    split = op.split(size, rows.receiver, rows.sender, rows.edge, rows.shared)
    if size > 1:
        rows, dropout = _gathered(rows, split, dropout)
    out = segment(
        op,
        arrays,
        receiver=rows.receiver,
        sender=rows.sender,
        edge=rows.edge,
        shared=rows.shared,
        dropout=dropout,
        kernel=kernel,
        transport=strategy if wire is PLAIN else Wired(strategy, wire),
    )
    return _given_back(out, split) if size > 1 else out


def is_local(strategy: Strategy) -> bool:
    """Whether all senders of a device's edges are on the device, once rows are traded."""
    return NODE not in strategy.mesh_axes


@jax.named_scope(EDGES)
def run_propagation(
    strategy: Strategy,
    arrays: Any,
    q_nhd: jax.Array,
    k_nhd: jax.Array,
    v_nhd: jax.Array,
    bias_eh: jax.Array | None,
    *,
    dropout: Dropout | None,
    **options: Any,
) -> jax.Array:
    """All rounds of propagation on a device that has all senders, with one trade each way."""
    size = jax.lax.axis_size(FEATURE) if FEATURE in strategy.mesh_axes else 1
    split = DOT_PRODUCT.split(size, q_nhd, (k_nhd, v_nhd), bias_eh, None)
    rows = Rows(q_nhd, (k_nhd, v_nhd), bias_eh)
    if size > 1:
        rows, dropout = _gathered(rows, split, dropout)
    q, (k, v), bias = rows.receiver, rows.sender, rows.edge
    out = propagate(q, k, v, arrays, bias, dropout=dropout, **options)
    return _given_back(out, split) if size > 1 else out


@dataclass(frozen=True)
class Wired:
    """A strategy whose rows travel in another form; gradients travel as they are."""

    strategy: Strategy
    wire: Wire

    @property
    def refetches(self) -> bool:
        """As the strategy."""
        return self.strategy.refetches

    def stages(self, arrays: Any) -> tuple[Stage, ...]:
        """Those of the strategy, with rows encoded before they leave and decoded on arrival."""
        return tuple(self._wired(stage) for stage in self.strategy.stages(arrays))

    def _wired(self, stage: Stage) -> Stage:
        if stage.fetch is None:
            return stage
        plain = stage.fetch

        def fetch(rows: Tree, zero: jax.Array | None) -> Tree:
            sent = jax.tree.map(self.wire.encode, rows)
            return jax.tree.map(
                self.wire.decode, rows, plain(sent, zero), is_leaf=lambda x: x is None
            )

        return replace(stage, fetch=fetch)


def _gathered(rows: Rows, split: Split, dropout: Dropout | None) -> tuple[Rows, Dropout | None]:
    """From all of this device's rows to its share of all the part's rows."""
    if split is None:
        receiver, sender, edge = jax.tree.map(_all_rows, (rows.receiver, rows.sender, rows.edge))
        return Rows(receiver, sender, edge, rows.shared), dropout
    axis = 1 if split == "heads" else -1
    channels = {x.shape[-1] for x in jax.tree.leaves(rows.sender)}

    def has_share(array: jax.Array) -> bool:
        return split == "heads" or (array.ndim > 0 and array.shape[-1] in channels)

    receiver, sender = _traded((rows.receiver, rows.sender), axis)
    edge = jax.tree.map(
        lambda x: _trade(x, axis, 0) if has_share(x) and x.ndim > 1 else _all_rows(x), rows.edge
    )
    shared = jax.tree.map(
        lambda x: _own_share(x, 0 if split == "heads" else -1) if has_share(x) else x, rows.shared
    )
    if dropout is not None and split == "heads":
        heads = jax.tree.leaves((sender, receiver, edge))[0].shape[1]
        dropout = dropout.from_head(jax.lax.axis_index(FEATURE) * heads)
    return Rows(receiver, sender, edge, shared), dropout


def _given_back(out: jax.Array, split: Split) -> jax.Array:
    """From this device's share of the part's rows to all of its own rows."""
    if split is None:
        rows = out.shape[0] // jax.lax.axis_size(FEATURE)
        return jax.lax.dynamic_slice_in_dim(out, jax.lax.axis_index(FEATURE) * rows, rows)
    return _trade(out, 0, 1 if split == "heads" else out.ndim - 1)


def _traded(tree: Tree, axis: int) -> Tree:
    """All tables, those of a kind in one message."""
    leaves, treedef = jax.tree.flatten(tree)
    kinds: dict[Any, list[int]] = {}
    for number, leaf in enumerate(leaves):
        kinds.setdefault((leaf.shape[1:], leaf.dtype), []).append(number)
    for numbers in kinds.values():
        if len(numbers) == 1:
            leaves[numbers[0]] = _trade(leaves[numbers[0]], axis, 0)
            continue
        at = 2 if axis == 1 else 1
        together = _trade(jnp.stack([leaves[i] for i in numbers], axis=at), axis, 0)
        for place, number in enumerate(numbers):
            leaves[number] = jax.lax.index_in_dim(together, place, at, keepdims=False)
    return treedef.unflatten(leaves)


def _trade(x: jax.Array, split: int, join: int) -> jax.Array:
    return jax.lax.all_to_all(x, FEATURE, split_axis=split % x.ndim, concat_axis=join, tiled=True)


def _all_rows(x: jax.Array) -> jax.Array:
    return jax.lax.all_gather(x, FEATURE, tiled=True)


def _own_share(x: jax.Array, axis: int) -> jax.Array:
    size = x.shape[axis] // jax.lax.axis_size(FEATURE)
    start = jax.lax.axis_index(FEATURE) * size
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis % x.ndim)
