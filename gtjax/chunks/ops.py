"""One op over a graph in blocks: forward by receivers, backward by receivers and by senders.

The same kernels as in memory, on some receivers (or senders) at a time. Gradients of senders are
computed sender by sender from what their receivers hold, over the transposed edges: every row is
written once, in order, and nothing is scattered. Nothing of an edge is kept, and of what a gradient
does not read (the senders of a sum, say) nothing is read either.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.chunks.blocks import Block, Blocks, Side
from gtjax.chunks.flow import Flow, flat_rows
from gtjax.chunks.pipeline import on_device, padded, pipelined
from gtjax.chunks.rows import ArrayRows, Rows
from gtjax.planner.traced_neighbours import gradient_reads
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op


@lru_cache(maxsize=256)
def chunked_op(*signature: Any) -> ChunkedOp:
    """The op of a signature, made once: layers that are alike share their compiled programs."""
    return ChunkedOp(*signature)


def op_of(flow: Flow, number: int, kernel: Kernel) -> ChunkedOp:
    """An op of a flow, to be computed by a kernel."""
    call = flow.ops[number]
    values = [flow.values[leaf] for leaf in call.leaves]
    return chunked_op(
        call.op,
        kernel,
        call.treedef,
        call.rate,
        tuple(v.shape if v.kind == "shared" else v.shape[1:] for v in values),
        tuple(np.dtype(v.dtype) for v in values),
        tuple(v.active for v in values),
        flow.values[call.out].shape[1:],
    )


class ChunkedOp:
    """One op on rows of some shapes; leaves of its operands are known by number."""

    def __init__(
        self,
        op: Op,
        kernel: Kernel,
        treedef: Any,
        rate: float,
        shapes: tuple[tuple[int, ...], ...],
        dtypes: tuple[np.dtype, ...],
        active: tuple[bool, ...],
        out_shape: tuple[int, ...],
    ):
        self.op, self.kernel, self._treedef, self.rate = op, kernel, treedef, rate
        self._shapes, self._dtypes, self.active = shapes, dtypes, active
        self._out_shape = out_shape
        trees = treedef.unflatten(range(treedef.num_leaves))
        self.receiver, self.sender, self.edge, self.shared = map(jax.tree.leaves, trees)
        self.per_edge = op.reduce.per_edge
        self._saved: Any = None  # tree and shapes of what the forward pass saves of a row
        # Native kernels walk the rows of one side and look at nothing else.
        self.light = kernel.name == "cpu" and not self.edge and not self.per_edge

    @cached_property
    def reads(self) -> dict[int, tuple[Any, ...]]:
        """What the gradient of each leaf reads: numbers of leaves, "out", "saved"."""
        leaves = [
            jax.ShapeDtypeStruct(shape if at in self.shared else (1, *shape), dtype)
            for at, (shape, dtype) in enumerate(zip(self._shapes, self._dtypes, strict=True))
        ]
        fractions = [at for at, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]
        # It has the leaves in the order of `Op.message`: receiver, sender, edge, shared, as here.
        found = gradient_reads(self.op, *self._treedef.unflatten(leaves))
        return dict(zip(fractions, found, strict=True))

    def wanted(self, side: Side) -> list[int]:
        """Leaves whose gradient the pass of a side computes."""
        leaves = self.sender if side == "sender" else [*self.receiver, *self.edge, *self.shared]
        return [leaf for leaf in leaves if self.active[leaf]]

    def read_by(self, side: Side) -> set[Any]:
        """Leaves, "out" and "saved", as far as the pass of a side reads them."""
        return {each for leaf in self.wanted(side) for each in self.reads[leaf]}

    # The programs.

    def _draw(self, seed: Any) -> Dropout | None:
        return Dropout(self.rate, seed) if self.rate else None

    def _trees(self, leaves: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        shaped = [
            x if at in self.shared else x.reshape(-1, *shape)
            for at, (x, shape) in enumerate(zip(leaves, self._shapes, strict=True))
        ]
        return self._treedef.unflatten(shaped)

    @cached_property
    def forward(self) -> Any:
        """(edges, leaves, seed) -> rows of the result, of what is saved."""

        def run(edges: Edges, leaves: Sequence[Any], seed: Any) -> tuple[Any, Any]:
            receiver, sender, edge, shared = self._trees(leaves)
            given = (self.op, receiver, sender, shared, edges, edge, self._draw(seed))
            if self.kernel.whole is not None:
                out, saved = self.kernel.whole(*given)
            else:
                out, saved = self.op.reduce.finish(self.kernel.forward(*given))
            of_rows, treedef = jax.tree.flatten(saved)
            self._saved = treedef, [x.shape[1:] for x in of_rows]
            return flat_rows(out), [flat_rows(x) for x in of_rows]

        return jax.jit(run)

    @cached_property
    def backward(self) -> Any:
        """(side, counts; edges, leaves, out, saved, dout, seed, totals) -> gradients, totals.

        Leaves that are not read are None; `counts` are rows of receivers, senders and edges.
        """

        @partial(jax.jit, static_argnums=(0, 1))
        def run(
            side: Side,
            counts: tuple[int, int, int],
            edges: Edges,
            leaves: Sequence[Any],
            out: Any,
            saved: Any,
            dout: Any,
            seed: Any,
            totals: Any,
        ) -> tuple[Any, Any]:
            filled = [self._nothing(at, counts) if x is None else x for at, x in enumerate(leaves)]
            receiver, sender, edge, shared = self._trees(filled)
            treedef, shapes = self._saved
            dout = dout.reshape(-1, *self._out_shape)
            out = jnp.zeros_like(dout) if out is None else out.reshape(dout.shape)
            if saved is None:
                saved = [jnp.ones((counts[0], *shape), jnp.float32) for shape in shapes]
            saved = [x.reshape(-1, *shape) for x, shape in zip(saved, shapes, strict=True)]
            found = self.kernel.backward(
                *(self.op, receiver, sender, shared, edges, edge),
                *(out, treedef.unflatten(saved), dout, self._draw(seed)),
            )
            d_receiver, d_sender, d_shared, d_edge = found
            grads = [
                *_leaves(d_receiver, len(self.receiver)),
                *_leaves(d_sender, len(self.sender)),
                *_leaves(d_edge, len(self.edge)),
                *_leaves(d_shared, len(self.shared)),
            ]
            rows = [
                flat_rows(grads[at]).astype(jnp.float32)
                for at in self.wanted(side)
                if at not in self.shared
            ]
            if side == "receiver":
                of_shared = [grads[at] for at in self.wanted(side) if at in self.shared]
                totals = [a + b.astype(jnp.float32) for a, b in zip(totals, of_shared, strict=True)]
            return rows, totals

        return run

    def _nothing(self, leaf: int, counts: tuple[int, int, int]) -> jax.Array:
        """What stands for rows that no gradient reads: their shape alone matters."""
        kinds = (self.receiver, self.sender, self.edge)
        count = next(n for n, kind in zip(counts, kinds, strict=True) if leaf in kind)
        return jnp.zeros((count, *self._shapes[leaf]), self._dtypes[leaf])


def _leaves(gradients: Any, count: int) -> list[Any]:
    if not count:
        return []
    found = jax.tree.leaves(gradients, is_leaf=lambda x: x is None)
    assert len(found) == count
    return found


class OpRun:
    """The rows that an op works on in one step: operands, result, and what is saved."""

    def __init__(
        self,
        op: ChunkedOp,
        operands: Sequence[Rows | None],
        shared: Sequence[Any],
        seed: Any,
        positions: Any,
        whole_bytes: float,
    ):
        self.op, self.operands, self._shared, self._seed = op, operands, shared, seed
        self._positions = positions  # of edges in receiver order, from their ids; None: the same
        self._whole_bytes = whole_bytes

    def forward(self, blocks: Blocks, out: ArrayRows, saved: list[ArrayRows] | None) -> None:
        """Compute the result of every receiver, or edge."""
        op = self.op
        far = self._far(op.sender, blocks)

        def compute(block: Block, loaded: Any) -> Any:
            edges, leaves = loaded
            return op.forward(edges, self._with_shared(leaves), self._seed)

        def load(block: Block) -> Any:
            edges, leaves, _ = self._load(block, blocks, far, set(range(len(self.operands))))
            return edges, leaves

        def store(block: Block, found: Any) -> None:
            rows, kept = found
            first, count = _stretch(block, per_edge=op.per_edge)
            out.write(first, np.asarray(rows)[:count], add=False)
            count = block.end - block.start
            for into, each in zip(saved or (), kept, strict=False):
                into.write(block.start, np.asarray(each)[:count], add=False)

        pipelined(blocks.list, load, compute, store)

    def saved_rows(self, blocks: Blocks) -> list[tuple[int, Any]]:
        """Width and type of the tables that the forward pass saves."""
        op = self.op
        block = blocks.list[0]
        far = self._far(op.sender, blocks)
        edges, leaves, _ = self._load(block, blocks, far, set(range(len(self.operands))))
        _, kept = jax.eval_shape(op.forward, edges, self._with_shared(leaves), self._seed)
        return [(x.shape[1], x.dtype) for x in kept]

    def backward(
        self,
        side: Side,
        blocks: Blocks,
        out: Rows,
        saved: Sequence[Rows],
        dout: Rows,
        targets: dict[int, tuple[ArrayRows, bool]],
        totals: list[Any],
    ) -> list[Any]:
        """Gradients of the rows of a side, written to `targets`: by leaf, and whether to add.

        Gives totals of the gradients of what is shared.
        """
        op, reads = self.op, self.op.read_by(side)
        own = op.receiver if side == "receiver" else op.sender
        per_row = [dout, *([out] if "out" in reads else []), *(saved if "saved" in reads else [])]
        others = [self.operands[leaf] for leaf in _of_far(op, side) if leaf in reads]
        if side == "sender" and not op.per_edge:
            others += per_row
        far = self._far_rows([x for x in others if x is not None], blocks)
        wanted = [leaf for leaf in op.wanted(side) if leaf not in op.shared]

        def load(block: Block) -> Any:
            edges, leaves, places = self._load(block, blocks, far, reads)
            results = []
            for rows in per_row:
                if op.per_edge and rows.shape[0] == blocks.csr.offsets[-1]:
                    results.append(self._edge_rows(rows, block, blocks, places))
                elif side == "receiver":
                    results.append(_own_rows(rows, block, blocks.rows))
                else:
                    results.append(far.table(rows, block))
            return edges, leaves, results

        def compute(block: Block, loaded: Any) -> Any:
            nonlocal totals
            edges, leaves, (d, *rest) = loaded
            of_out = rest.pop(0) if "out" in reads else None
            of_saved = rest if "saved" in reads else None
            counts = (blocks.rows, far.count)
            counts = (*(counts if side == "receiver" else counts[::-1]), block.capacity)
            given = [x if leaf in reads else None for leaf, x in enumerate(leaves)]
            given = self._with_shared(given)
            found, totals = op.backward(
                side, counts, edges, given, of_out, of_saved, d, self._seed, totals
            )
            return found

        def store(block: Block, found: Any) -> None:
            for leaf, rows in zip(wanted, found, strict=True):
                into, add = targets[leaf]
                first, count = _stretch(block, per_edge=leaf not in own)
                into.write(first, np.asarray(rows)[:count], add=add)

        pipelined(blocks.list, load, compute, store)
        return totals

    def _with_shared(self, leaves: Sequence[Any]) -> list[Any]:
        result = list(leaves)
        for leaf, value in zip(self.op.shared, self._shared, strict=True):
            result[leaf] = value
        return result

    def _far(self, leaves: Sequence[int], blocks: Blocks) -> _Far:
        return self._far_rows([r for x in leaves if (r := self.operands[x]) is not None], blocks)

    def _far_rows(self, rows: Sequence[Rows], blocks: Blocks) -> _Far:
        """How rows of far ends are read: in place where kernels can, and memory holds them."""
        sizes = sum(r.shape[0] * r.shape[1] * r.dtype.itemsize for r in rows)
        # On the side of senders only a sum's gradient reads far rows one by one, and makes nothing
        # of all of them before.
        able = blocks.side == "receiver" or self.op.op.reduce.name in ("sum", "mean")
        whole = self.op.light and able and sizes <= self._whole_bytes
        return _Far(blocks, whole=whole and all(r.in_place for r in rows))

    def _load(
        self, block: Block, blocks: Blocks, far: _Far, reads: set[Any]
    ) -> tuple[Edges, list[Any], np.ndarray | None]:
        """The edges of a block, its operands (None where not read), and where its edges are."""
        op, side = self.op, blocks.side
        places = None
        columns = far.columns(block)
        if op.light:
            edges = blocks.light(block, columns, far.count, draws=bool(op.rate))
        else:
            stacked, order = blocks.full(block, columns, far.count, op.kernel.needs)
            edges = jax.tree.map(lambda x: x[0], stacked)
            if op.edge or op.per_edge:
                ids = blocks.edge_ids(block)[order]
                places = ids if self._positions is None else self._positions[ids]
        leaves: list[Any] = [None] * len(self.operands)
        own, other = op.receiver, op.sender
        if side == "sender":
            own, other = other, own
        for leaf, rows in enumerate(self.operands):
            if rows is None or leaf not in reads:
                continue
            if leaf in op.edge:
                leaves[leaf] = self._edge_rows(rows, block, blocks, places)
            elif leaf in own:
                leaves[leaf] = _own_rows(rows, block, blocks.rows)
            else:
                assert leaf in other
                leaves[leaf] = far.table(rows, block)
        return edges, leaves, places

    def _edge_rows(self, rows: Rows, block: Block, blocks: Blocks, places: Any) -> jax.Array:
        if blocks.side == "receiver":  # they stand in this order
            return on_device(padded(rows.stretch(block.first, block.last), block.capacity))
        into = np.zeros((block.capacity, rows.shape[1]), rows.dtype)
        rows.take(places, into)
        return on_device(into)


class _Far:
    """How the far ends of a block's edges are read."""

    def __init__(self, blocks: Blocks, *, whole: bool):
        self._blocks, self._is_whole = blocks, whole
        self._known: dict[int, jax.Array] = {}
        self.count = blocks.num_rows if whole else blocks.distinct.table

    def columns(self, block: Block) -> np.ndarray:
        """The far end of every edge, in the numbers of the table."""
        if self._is_whole:
            return self._blocks.far_ends(block)
        return self._blocks.distinct.of(block)[1]

    def table(self, rows: Rows, block: Block) -> jax.Array:
        """The rows that the numbers are of."""
        if self._is_whole:
            if id(rows) not in self._known:
                self._known[id(rows)] = on_device(rows.whole())
            return self._known[id(rows)]
        distinct, _ = self._blocks.distinct.of(block)
        into = np.empty((self.count, rows.shape[1]), rows.dtype)
        rows.take(distinct, into)
        into[len(distinct) :] = 0
        return on_device(into)


def _own_rows(rows: Rows, block: Block, count: int) -> jax.Array:
    return on_device(padded(rows.stretch(block.start, block.end), count))


def _of_far(op: ChunkedOp, side: Side) -> list[int]:
    return op.sender if side == "receiver" else op.receiver


def _stretch(block: Block, *, per_edge: bool) -> tuple[int, int]:
    """Where a block's rows of results start, and how many they are."""
    if per_edge:
        return block.first, block.last - block.first
    return block.start, block.end - block.start
