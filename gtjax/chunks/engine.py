"""A function of nodes and their neighbours over a graph in chunks: its results and gradients.

Forward, op by op: the segment before it over chunks of rows, then the op over blocks of receivers.
Backward, the same in reverse: what an op gave is stored, what lies between ops is computed again.
Every array is let go of after its last use. Sums of gradients are in one fixed order, so that the
same step gives the same numbers again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.chunks.blocks import Blocks, has_ids
from gtjax.chunks.flow import Flow, MarkingNeighbours, is_fraction, traced
from gtjax.chunks.ops import OpRun, op_of
from gtjax.chunks.pipeline import on_device, padded, pipelined
from gtjax.chunks.rows import ArrayRows, Rows, Scratch
from gtjax.chunks.segments import Plan, Segment, cut, shared_program
from gtjax.chunks.sizes import Sizes
from gtjax.graph.csr import CSR

Tree = Any


@dataclass(frozen=True)
class Given:
    """Rows that a function is given: all of them, and the shape of one."""

    rows: Rows
    row_shape: tuple[int, ...] = ()


@dataclass
class Edged:
    """The edges that messages flow along, in blocks of both sides."""

    by_receiver: CSR
    by_sender: CSR
    sizes: Sizes
    scratch: Scratch

    @cached_property
    def receivers(self) -> Blocks:
        """Receivers with their in-edges."""
        sizes = self.sizes
        return Blocks(
            self.by_receiver, "receiver", sizes.block_rows, sizes.block_edges, self.scratch
        )

    @cached_property
    def senders(self) -> Blocks:
        """Senders with their out-edges."""
        sizes = self.sizes
        return Blocks(self.by_sender, "sender", sizes.block_rows, sizes.block_edges, self.scratch)

    @cached_property
    def positions(self) -> np.ndarray | None:
        """Where an edge stands by receiver, from its id; None where ids are just that."""
        if not has_ids(self.by_receiver):
            return None
        ids_e = self.by_receiver.edge_ids_e
        positions = self.scratch.array((len(ids_e),), np.int64)
        positions[np.asarray(ids_e)] = np.arange(len(ids_e))
        return positions


class ChunkedFunction:
    """`function(shared, nodes, edges, neighbours)` -> a tree of rows of nodes, chunk by chunk.

    Args:
        function: Of a tree without rows (parameters, a key), dicts of rows of nodes and of edges,
            and neighbours. It must compute every row by itself but for ops.
        shared: An example of the first; leaves of real numbers have gradients.
        nodes: Rows of nodes by name; "degree" is among them.
        edges: Rows of edges by name, in receiver order.
        edged: The edges.
        kernel: Of all ops.
        platform: That kernels are chosen for.
    """

    def __init__(
        self,
        function: Callable[..., Tree],
        shared: Tree,
        nodes: dict[str, Given],
        edges: dict[str, Given],
        edged: Edged,
        kernel: str = "auto",
        platform: str | None = None,
    ):
        self._nodes, self._edges, self._edged = nodes, edges, edged
        self.flow, self._result_tree = traced_flow(function, shared, nodes, edges, edged.sizes)
        self.plan = cut(self.flow)
        self._ops = [
            op_of(self.flow, number, call.op.kernel(kernel, platform))
            for number, call in enumerate(self.flow.ops)
        ]
        self._wanted = [
            value
            for call, op in zip(self.flow.ops, self._ops, strict=True)
            for value in (*(call.leaves[leaf] for leaf in op.shared), call.seed)
        ]
        self._shared_values = jax.jit(shared_program(self.flow, self._wanted))
        self._checked = False
        self.result_shapes = [self.flow.values[v].shape[1:] for v in self.flow.results]

    @property
    def num_ops(self) -> int:
        """Ops that the function calls."""
        return len(self._ops)

    def result_tree(self, leaves: Sequence[Any]) -> Tree:
        """Leaves of the result as the tree that the function gives."""
        return self._result_tree.unflatten(leaves)

    @contextlib.contextmanager
    def run(
        self, shared: Tree, *, keep: bool, told: Callable[[str], None] = lambda text: None
    ) -> Iterator[Run]:
        """The forward pass, and whatever is done with it before its arrays are let go of.

        `keep` is for a backward pass; `told` hears how far it is.
        """
        run = Run(self, jax.tree.leaves(shared), keep=keep, told=told)
        try:
            run.forward()
            yield run
        finally:
            run.close()

    def check(self, shared: Sequence[Any]) -> None:
        """Refuse what is not computed row by row, once."""
        if not self._checked:
            for segment in (each for some in self.plan.segments for each in some):
                given = [shared[self.flow.shared.index(v)] for v in segment.shared]
                segment.check(given, self.flow.rows[segment.kind])
            self._checked = True


def traced_flow(
    function: Callable[..., Tree],
    shared: Tree,
    nodes: dict[str, Given],
    edges: dict[str, Given],
    sizes: Sizes,
) -> tuple[Flow, Any]:
    """The flow of a function for chunks of these sizes, and the tree of its results."""

    def examples(given: dict[str, Given], count: int) -> dict[str, Any]:
        return {
            name: jax.ShapeDtypeStruct((count, *each.row_shape), each.rows.dtype)
            for name, each in given.items()
        }

    trees: list[Any] = []

    def marked(shared: Tree, nodes: dict[str, Any], edges: dict[str, Any]) -> list[Any]:
        neighbours = MarkingNeighbours(nodes["degree"], sizes.edge_rows)
        leaves, treedef = jax.tree.flatten(function(shared, nodes, edges, neighbours))
        trees.append(treedef)
        return leaves

    of_nodes, of_edges = examples(nodes, sizes.node_rows), examples(edges, sizes.edge_rows)
    closed = jax.make_jaxpr(marked)(shared, of_nodes, of_edges)
    leaves = jax.tree.leaves(shared)
    active = [jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves]
    rows = {"node": sizes.node_rows, "edge": sizes.edge_rows}
    return traced(closed, len(leaves), len(of_nodes), active, rows), trees[-1]


class Run:
    """One pass through the function: what is stored, when it is let go of, and the way back."""

    def __init__(
        self,
        chunked: ChunkedFunction,
        shared: Sequence[Any],
        *,
        keep: bool,
        told: Callable[[str], None],
    ):
        self._told = told
        self._function, self._flow, self._plan = chunked, chunked.flow, chunked.plan
        self._shared, self._keep = list(shared), keep
        self._edged = chunked._edged
        self._scratch = self._edged.scratch
        self._rows: dict[int, Rows] = {}  # stored values
        self._saved: dict[int, list[ArrayRows]] = {}  # of each op
        self._gradients: dict[int, ArrayRows] = {}
        self._own: set[int] = set()  # values whose arrays are ours to let go of
        names = sorted(chunked._nodes), sorted(chunked._edges)  # as jax orders a dict
        for value, name in zip(self._flow.nodes, names[0], strict=True):
            self._rows[value] = chunked._nodes[name].rows
        for value, name in zip(self._flow.edges, names[1], strict=True):
            self._rows[value] = chunked._edges[name].rows
        chunked.check(self._shared)
        found = iter(chunked._shared_values(self._shared))
        self._op_shared = [([next(found) for _ in op.shared], next(found)) for op in chunked._ops]
        self._last_use = self._uses()

    # When things are used: segment k at 2 k, op k at 2 k + 1, results after all of it, and the
    # same in reverse.

    def _uses(self) -> dict[Any, int]:
        ops, plan, last = self._function._ops, self._plan, {}
        end = 2 * len(ops) + 1

        def use(what: Any, at: int) -> None:
            last[what] = max(last.get(what, -1), at)

        for number, segments in enumerate(plan.segments):
            for segment in segments:
                for value in segment.outputs:
                    use(value, 2 * number)
                for value in segment.inputs:
                    use(value, 2 * number)
                    if self._keep and segment.graded_outputs:
                        use(value, 2 * end - 2 * number)
        for number, (op, operands) in enumerate(zip(ops, plan.operands, strict=True)):
            out = self._flow.ops[number].out
            use(out, 2 * number + 1)
            use(("saved", number), 2 * number + 1)
            reads = op.read_by("receiver") | op.read_by("sender") if self._keep else set()
            back = 2 * end - 2 * number - 1
            for leaf, value in enumerate(operands):
                use(value, 2 * number + 1)
                if leaf in reads:
                    use(value, back)
            if "out" in reads:
                use(out, back)
            if "saved" in reads:
                use(("saved", number), back)
        for value in self._flow.results:
            use(self._flow.root(value), end)
        return last

    def _done(self, at: int) -> None:
        """Let go of what is used for the last time."""
        for what in [what for what, last in self._last_use.items() if last == at]:
            if isinstance(what, tuple):
                for rows in self._saved.pop(what[1], []):
                    self._scratch.free(rows.array)
            elif what in self._own:
                self._let_go(what)

    def _let_go(self, value: int) -> None:
        self._own.discard(value)
        rows = self._rows.pop(value)
        assert isinstance(rows, ArrayRows)
        self._scratch.free(rows.array)

    def close(self) -> None:
        """Let go of all that is left."""
        for value in list(self._own):
            self._let_go(value)
        for value in list(self._gradients):
            self._scratch.free(self._gradients.pop(value).array)
        for number in list(self._saved):
            for rows in self._saved.pop(number):
                self._scratch.free(rows.array)

    def _count(self, kind: str) -> int:
        csr = self._edged.by_receiver
        return len(csr.offsets) - 1 if kind == "node" else int(csr.offsets[-1])

    def _new(self, value: int, dtype: Any = None) -> ArrayRows:
        known = self._flow.values[value]
        return self._scratch.rows(self._count(known.kind), known.width, dtype or known.dtype)

    # Forward.

    def forward(self) -> None:
        """Compute all stored values, up to the results."""
        for number, segments in enumerate(self._plan.segments):
            self._told(f"forward, {number} of {len(self._function._ops)} ops done")
            for segment in segments:
                self._segment_forward(segment)
            self._done(2 * number)
            if number < len(self._function._ops):
                self._op_forward(number)
                self._done(2 * number + 1)

    def results(self) -> list[np.ndarray]:
        """Leaves of the result, `[nodes, ...]`; mapped where they are in files."""
        found = []
        for value, shape in zip(self._flow.results, self._function.result_shapes, strict=True):
            array = self._rows[self._flow.root(value)].whole()
            found.append(array.reshape(len(array), *shape))
        return found

    def give_away_results(self) -> None:
        """Leave the arrays of the results to whoever has them: they are not used again."""
        for value in self._flow.results:
            self._own.discard(self._flow.root(value))

    def _chunks(self, kind: str) -> list[tuple[int, int]]:
        count, rows = self._count(kind), self._flow.rows[kind]
        return [(start, min(start + rows, count)) for start in range(0, count, rows)]

    def _inputs(self, segment: Segment, start: int, end: int) -> list[jax.Array]:
        rows = self._flow.rows[segment.kind]
        return [
            # Rows after the last one are like it: whatever is computed of it, is of them too.
            on_device(padded(self._rows[v].stretch(start, end), rows, repeat=True))
            for v in segment.inputs
        ]

    def _of_shared(self, segment: Segment) -> list[Any]:
        return [self._shared[self._flow.shared.index(v)] for v in segment.shared]

    def _segment_forward(self, segment: Segment) -> None:
        for value in segment.outputs:
            self._rows[value] = self._new(value)
            self._own.add(value)
        shared = self._of_shared(segment)

        def store(chunk: tuple[int, int], found: Any) -> None:
            start, end = chunk
            for value, rows in zip(segment.outputs, found, strict=True):
                into = self._rows[value]
                assert isinstance(into, ArrayRows)
                into.write(start, np.asarray(rows)[: end - start], add=False)

        pipelined(
            self._chunks(segment.kind),
            lambda chunk: self._inputs(segment, *chunk),
            lambda _, rows: segment.forward(shared, rows),
            store,
        )

    def _op_run(self, number: int) -> OpRun:
        op, operands = self._function._ops[number], self._plan.operands[number]
        shared, seed = self._op_shared[number]
        positions = self._edged.positions if op.edge or op.per_edge else None
        # A value that no later pass reads may be gone.
        given = [None if v < 0 else self._rows.get(v) for v in operands]
        return OpRun(op, given, shared, seed, positions, self._edged.sizes.whole_bytes)

    def _op_forward(self, number: int) -> None:
        run, value = self._op_run(number), self._flow.ops[number].out
        blocks = self._edged.receivers
        out = self._rows[value] = self._new(value)
        self._own.add(value)
        saved = None
        if self._last_use["saved", number] > 2 * number + 1:
            count = self._count("node")
            saved = self._saved[number] = [
                self._scratch.rows(count, *each) for each in run.saved_rows(blocks)
            ]
        run.forward(blocks, out, saved)

    # Backward.

    def backward(self, gradients: Sequence[np.ndarray | None]) -> list[Any]:
        """Gradients of the shared arguments from those of the results; None: no gradient.

        What is computed from parameters without rows on the way to an op is differentiated last.
        """
        flow, ops = self._flow, self._function._ops
        totals: list[Any] = [
            jnp.zeros(x.shape, jnp.float32) if is_fraction(x.dtype) else None for x in self._shared
        ]
        for value, given in zip(flow.results, gradients, strict=True):
            if given is not None and flow.values[flow.root(value)].active:
                self._add_gradient(flow.root(value), ArrayRows(given))
        end, of_ops = 2 * len(ops) + 1, {}
        self._done(end)
        for number in range(len(ops), -1, -1):
            self._told(f"backward, {number} of {len(ops)} ops to go")
            if number < len(ops):
                of_ops[number] = self._op_backward(number)
                self._done(2 * end - 2 * number - 1)
            for segment in reversed(self._plan.segments[number]):
                self._segment_backward(segment, totals)
                for value in segment.outputs:
                    self._drop_gradient(value)
            self._done(2 * end - 2 * number)
        self._shared_backward(of_ops, totals)
        return totals

    def _add_gradient(self, value: int, rows: ArrayRows) -> None:
        into, add = self._target(value)
        for start, end in self._chunks(self._flow.values[value].kind):
            into.write(start, rows.stretch(start, end), add=add)

    def _target(self, value: int) -> tuple[ArrayRows, bool]:
        """Where the gradient of a value is summed up, and whether there is something already."""
        if value in self._gradients:
            return self._gradients[value], True
        self._gradients[value] = self._new(value, np.float32)
        return self._gradients[value], False

    def _drop_gradient(self, value: int) -> None:
        if value in self._gradients:
            self._scratch.free(self._gradients.pop(value).array)

    def _segment_backward(self, segment: Segment, totals: list[Any]) -> None:
        outputs = [segment.outputs[at] for at in segment.graded_outputs]
        known = [self._gradients.get(value) for value in outputs]
        inputs = [segment.inputs[at] for at in segment.graded_inputs]
        at_totals = [self._flow.shared.index(segment.shared[at]) for at in segment.parameters]
        if all(each is None for each in known) or not (inputs or at_totals):
            return
        shared, rows = self._of_shared(segment), self._flow.rows[segment.kind]
        targets = [self._target(value) for value in inputs]
        sums = [totals[at] for at in at_totals]

        def load(chunk: tuple[int, int]) -> Any:
            given = [
                None if each is None else on_device(padded(each.stretch(*chunk), rows))
                for each in known
            ]
            return self._inputs(segment, *chunk), given

        def compute(_: Any, loaded: Any) -> Any:
            nonlocal sums
            sums, found = segment.backward(shared, *loaded, sums)
            return found

        def store(chunk: tuple[int, int], found: Any) -> None:
            start, end = chunk
            for (into, add), each in zip(targets, found, strict=True):
                into.write(start, np.asarray(each)[: end - start], add=add)

        pipelined(self._chunks(segment.kind), load, compute, store)
        for at, total in zip(at_totals, sums, strict=True):
            totals[at] = total

    def _op_backward(self, number: int) -> list[Any]:
        """Gradients of the op's rows are added where they belong; those of what is shared come."""
        op, operands = self._function._ops[number], self._plan.operands[number]
        call, values = self._flow.ops[number], self._flow.values
        shared = [leaf for leaf in op.shared if op.active[leaf]]
        sums = [jnp.zeros(values[call.leaves[x]].shape, jnp.float32) for x in shared]
        dout = self._gradients.get(call.out)
        if dout is None:
            return sums
        run = self._op_run(number)
        # What no gradient reads is not there any more, and nobody asks.
        out = self._rows.get(call.out, dout)
        for side, blocks in (("receiver", "receivers"), ("sender", "senders")):
            wanted = op.wanted(side)  # pyright: ignore[reportArgumentType]
            if not wanted:
                continue
            targets = {}
            for leaf in wanted:
                if leaf not in op.shared:
                    # Two leaves may be one value: the second adds to the first.
                    targets[leaf] = self._target(operands[leaf])
            sums = run.backward(
                side,  # pyright: ignore[reportArgumentType]
                getattr(self._edged, blocks),
                out,
                self._saved.get(number, []),
                dout,
                targets,
                sums,
            )
        self._drop_gradient(call.out)
        return sums

    def _shared_backward(self, of_ops: dict[int, list[Any]], totals: list[Any]) -> None:
        wanted, given = [], []
        for number, sums in of_ops.items():
            op, call = self._function._ops[number], self._flow.ops[number]
            leaves = [call.leaves[leaf] for leaf in op.shared if op.active[leaf]]
            wanted += leaves
            given += sums
        if not wanted:
            return
        places = [at for at, total in enumerate(totals) if total is not None]
        program = shared_program(self._flow, wanted)

        def compute(weights: Sequence[Any]) -> list[Any]:
            every = list(self._shared)
            for at, weight in zip(places, weights, strict=True):
                every[at] = weight
            return program(every)

        found, pull = jax.vjp(compute, [self._shared[at] for at in places])
        (more,) = pull([g.astype(x.dtype) for g, x in zip(given, found, strict=True)])
        for at, each in zip(places, more, strict=True):
            totals[at] = totals[at] + each.astype(jnp.float32)


def rows_of_plan(plan: Plan) -> list[int]:
    """Numbers of a row of a node that a step stores, array by array."""
    flow = plan.flow
    return [
        flow.values[v].width
        for some in plan.segments
        for segment in some
        for v in segment.outputs
        if flow.values[v].kind == "node"
    ] + [flow.values[call.out].width for call in flow.ops]
