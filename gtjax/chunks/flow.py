"""A model as a list of equations and ops, from one trace: nothing of the model itself is changed.

The model is traced with neighbours whose ops are opaque marks in the program. What is left between
the marks is plain computation, of which `segments` makes programs that run on any chunk of rows.
Calls that hold a mark (recomputed blocks, jitted functions) are written out; all others stay as
they are, with their derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, DropVar, Jaxpr, Primitive, jaxpr_as_fun
from jax.extend.core import Literal as Number

from gtjax.core.errors import UserError
from gtjax.sharding.neighbours import Drawn, OpMethods
from pallas_kernels import OPS, Op
from pallas_kernels.driver import result_type

# What a value has a row for: every node, every edge, or nothing (parameters, seeds).
Kind = Literal["shared", "node", "edge"]
LOOPS = {"scan", "while", "cond"}
HEAVY = {"dot_general", "conv_general_dilated", "sort", *LOOPS}
VIEWS = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim"}

# Stands for an op in a trace; it has a shape and is never run.
op_mark = Primitive("op_over_chunks")
op_mark.multiple_results = True
op_mark.def_abstract_eval(lambda *_, shape, **__: [ShapedArray(shape, jnp.float32)])


@dataclass
class MarkingNeighbours(OpMethods):
    """Neighbours of some rows, whose ops are marks in the traced program."""

    degree_n: jax.Array
    num_edges: int  # rows of an array of edges in the trace

    def apply(
        self,
        op: Op | str,
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Leave a mark, with all that the op is given."""
        op = OPS[op] if isinstance(op, str) else op
        rows = jax.tree.map(jnp.asarray, (receiver, sender, edge, shared))

        def row(tree: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)

        said = jax.eval_shape(op.message, *map(row, rows[:3]), rows[3])
        value = said[1] if op.reduce.name == "softmax" else said
        count = self.num_edges if op.reduce.per_edge else self.degree_n.shape[0]
        leaves, treedef = jax.tree.flatten(rows)
        rate, seed = (0.0, 0) if dropout is None else dropout
        seed = jnp.asarray(seed, jnp.uint32)
        shape = (count, *value.shape)
        (out,) = op_mark.bind(*leaves, seed, op=op, treedef=treedef, rate=float(rate), shape=shape)
        return out.astype(result_type(rows[1]))


@dataclass
class Value:
    """One array of the program."""

    shape: tuple[int, ...]
    dtype: Any
    kind: Kind = "shared"
    active: bool = False  # whether it depends on a parameter, so that it has a gradient
    constant: Any = None  # its numbers, where they are known
    made_by: int | None = None  # number of the equation
    of_op: int | None = None  # number of the op

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape[1:])


@dataclass
class Equation:
    """One line of the program; values are numbers."""

    line: Any  # as jax traced it
    run: Any  # a function of the inputs
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    after: int  # ops before it in the program

    @property
    def name(self) -> str:
        """Of what it computes."""
        return self.line.primitive.name


@dataclass
class OpCall:
    """One op: what it is given, and the value that comes of it."""

    op: Op
    treedef: Any
    rate: float
    leaves: tuple[int, ...]
    seed: int
    out: int

    def split(self) -> tuple[Any, Any, Any, Any]:
        """Numbers of leaves, in the trees of receiver, sender, edge and what is shared."""
        return self.treedef.unflatten(range(len(self.leaves)))


@dataclass
class Flow:
    """A traced model: its values, equations and ops, in the order of the program."""

    values: list[Value] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    ops: list[OpCall] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)  # arguments without rows
    nodes: list[int] = field(default_factory=list)  # arguments with a row a node
    edges: list[int] = field(default_factory=list)  # arguments with a row an edge
    results: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)  # of a chunk of nodes, and one of edges

    def root(self, value: int) -> int:
        """What a value is another view of, row by row."""
        while (made_by := self.values[value].made_by) is not None:
            equation = self.equations[made_by]
            if equation.name not in VIEWS or len(equation.inputs) != 1:
                break
            source, here = self.values[equation.inputs[0]], self.values[value]
            same_rows = source.kind != "shared" and source.shape[:1] == here.shape[:1]
            if not same_rows or math.prod(source.shape) != math.prod(here.shape):
                break
            value = equation.inputs[0]
        return value


def traced(
    closed: ClosedJaxpr, shared: int, nodes: int, active: Sequence[bool], rows: dict[str, int]
) -> Flow:
    """The flow of a traced function of so many shared arguments, rows of nodes, rows of edges.

    `active` says of each shared argument whether it is a parameter, which has a gradient; `rows`
    how many rows of a "node" and of an "edge" it was traced for.
    """
    flow = Flow(rows=rows)

    def new(aval: Any, **options: Any) -> int:
        flow.values.append(Value(tuple(aval.shape), aval.dtype, **options))
        return len(flow.values) - 1

    def walk(jaxpr: Jaxpr, given: Sequence[int], consts: Sequence[Any]) -> list[int]:
        known: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            known[var] = new(var.aval, constant=const)

        def read(atom: Any) -> int:
            if isinstance(atom, Number):
                return new(atom.aval, constant=atom.val)
            return known[atom]

        for line in jaxpr.eqns:
            inputs = [read(atom) for atom in line.invars]
            if line.primitive is op_mark:
                outputs = [_add_op(flow, line, inputs, new)]
            elif any(_marked(inner) for inner in _inner(line.params)):
                outputs = walk(*_called(line, inputs))
                outputs = [
                    value
                    for var, value in zip(line.outvars, outputs, strict=True)
                    if not isinstance(var, DropVar)
                ]
            else:
                outputs = _add_equation(flow, jaxpr, line, inputs, new)
            made = [var for var in line.outvars if not isinstance(var, DropVar)]
            known.update(zip(made, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    invars = closed.jaxpr.invars
    for number, var in enumerate(invars):
        kind: Kind = "shared" if number < shared else "node"
        kind = "edge" if number >= shared + nodes else kind
        is_parameter = number < shared and active[number]
        target = {"shared": flow.shared, "node": flow.nodes, "edge": flow.edges}[kind]
        target.append(new(var.aval, kind=kind, active=is_parameter))
    arguments = [*flow.shared, *flow.nodes, *flow.edges]
    flow.results = walk(closed.jaxpr, arguments, closed.consts)
    return flow


def _add_op(flow: Flow, line: Any, inputs: list[int], new: Any) -> int:
    *leaves, seed = inputs
    params = line.params
    op: Op = params["op"]
    kinds = jax.tree.leaves(
        [[kind] * len(jax.tree.leaves(tree)) for kind, tree in _kinds(params["treedef"])]
    )
    for leaf, kind in zip(leaves, kinds, strict=True):
        found = flow.values[leaf].kind
        if found == "shared" and flow.values[leaf].made_by is not None:
            flow.values[leaf].kind = kind  # the same for all, such as ones
        elif found != kind:
            raise UserError(
                f"--batching chunks: the op {op.name} is given rows of every {found} where it "
                f"takes {'what all share' if kind == 'shared' else f'rows of every {kind}'}"
            )
    active = any(flow.values[leaf].active for leaf in leaves)
    kind_of_out: Kind = "edge" if op.reduce.per_edge else "node"
    out = new(line.outvars[0].aval, kind=kind_of_out, active=active, of_op=len(flow.ops))
    flow.ops.append(OpCall(op, params["treedef"], params["rate"], tuple(leaves), seed, out))
    return out


def _kinds(treedef: Any) -> list[tuple[Kind, Any]]:
    receiver, sender, edge, shared = treedef.unflatten(range(treedef.num_leaves))
    return [("node", receiver), ("node", sender), ("edge", edge), ("shared", shared)]


def _add_equation(flow: Flow, jaxpr: Jaxpr, line: Any, inputs: list[int], new: Any) -> list[int]:
    kinds = {kind for each in inputs if (kind := flow.values[each].kind) != "shared"}
    if len(kinds) > 1:
        raise UserError(
            f"--batching chunks: {line.primitive.name} joins rows of nodes and rows of edges "
            f"outside of an op; give both to neighbours.aggregate"
        )
    none: set[Kind] = {"shared"}
    (kind,) = kinds or none
    held = line.params.get("num_consts", 0) if line.primitive.name == "custom_vjp_call" else 0
    if any(flow.values[each].constant is None for each in inputs[:held]):
        raise UserError(
            "--batching chunks: a function with a derivative of its own (jax.custom_vjp) closes "
            "over values that the model computes; give them to it as arguments"
        )
    active = any(flow.values[each].active for each in inputs)
    number = len(flow.equations)
    made = [var for var in line.outvars if not isinstance(var, DropVar)]
    outputs = [
        new(
            var.aval,
            kind=kind,
            active=active and jnp.issubdtype(var.aval.dtype, jnp.inexact),
            made_by=number,
        )
        for var in made
    ]
    # A program of this line alone: how a line is run differs between versions of jax.
    pairs = zip(line.invars, inputs, strict=True)
    read = {atom: value for atom, value in pairs if not isinstance(atom, Number)}
    names = jaxpr.debug_info._replace(arg_names=("",) * len(read), result_paths=("",) * len(made))
    alone = jaxpr.replace(
        constvars=[], invars=list(read), outvars=made, eqns=[line], debug_info=names
    )
    run = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    flow.equations.append(Equation(line, run, tuple(read.values()), tuple(outputs), len(flow.ops)))
    return outputs


def _called(line: Any, inputs: list[int]) -> tuple[Jaxpr, list[int], Sequence[Any]]:
    """The program that a call calls, what it is given, and the constants that it holds."""
    if line.primitive.name in LOOPS:
        raise UserError(
            f"--batching chunks: an op over neighbours stands in a {line.primitive.name} loop; "
            f"write the loop over layers in Python"
        )
    (found,) = (each for each in _inner(line.params) if _marked(each))
    inside, consts = (found.jaxpr, found.consts) if hasattr(found, "jaxpr") else (found, ())
    return inside, inputs[-len(inside.invars) :] if inside.invars else [], consts


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if hasattr(each, "eqns"):
                yield each


def _marked(jaxpr: Any) -> bool:
    return any(
        line.primitive is op_mark or any(_marked(each) for each in _inner(line.params))
        for line in jaxpr.eqns
    )


def is_heavy(equation: Equation) -> bool:
    """Whether it costs more than reading what it is computed from."""

    def heavy(name: str, params: dict[str, Any]) -> bool:
        return name in HEAVY or any(
            heavy(line.primitive.name, line.params) for each in _inner(params) for line in each.eqns
        )

    return heavy(equation.name, equation.line.params)


def evaluated(flow: Flow, equations: Sequence[int], known: dict[int, Any]) -> None:
    """Run some equations, whose results are added to what is known."""

    def read(value: int) -> Any:
        constant = flow.values[value].constant
        return known[value] if constant is None else constant

    for number in equations:
        equation = flow.equations[number]
        found = equation.run(*map(read, equation.inputs))
        known.update(zip(equation.outputs, found, strict=True))


def flat_rows(array: Any) -> Any:
    """Rows as `[rows, numbers]`, as they are stored."""
    return array.reshape(array.shape[0], -1) if array.ndim != 2 else array


def is_fraction(dtype: Any) -> bool:
    """Whether numbers of this type have a gradient."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))
