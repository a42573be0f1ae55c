"""A traced program, flattened: no calls, nothing twice, nothing that no result needs.

Amounts are told apart by size: nodes and edges have numbers that divide no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from gtjax.planner.step_work import Amount

INLINED = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"}
INLINED |= {"custom_vjp_call_jaxpr", "checkpoint", "remat", "remat2", "custom_lin"}
LOOPS = {"while", "scan", "cond"}
# Written to memory whoever reads them.
SOLID = LOOPS | {"dot_general", "conv_general_dilated", "gather", "scatter", "scatter-add"}
SOLID |= {"scatter_add", "scatter-mul", "scatter-min", "scatter-max", "sort", "cumsum", "top_k"}
SOLID |= {"dynamic_update_slice", "cumlogsumexp", "cummax", "cumprod", "concatenate"}
SOLID |= {"random_bits", "threefry2x32", "pure_callback", "ffi_call", "custom_call"}
SOLID |= {"sparse_product", "sparse_gradient"}
SUMS = {"reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod"}
SUMS |= {"argmax", "argmin", "reduce"}
# Arithmetic on single values is what is left when these are taken away too.
STRUCTURAL = {"broadcast_in_dim", "slice", "dynamic_slice", "pad", "iota", "transpose", "rev"}
STRUCTURAL |= {"split", "select_and_scatter_add", "op_forward", "op_backward"}
APART = LOOPS | {"op_forward", "op_backward", "random_bits"}  # never taken for the same
# Another view of the same memory.
VIEWS = {"reshape", "squeeze", "expand_dims", "stop_gradient", "copy_p", "optimization_barrier"}
VIEWS |= {"sharding_constraint", "copy"}
# Not done twice by a compiler, and counted as several operations on one value.
EXPENSIVE = {"tanh", "exp", "exp2", "expm1", "log", "log1p", "logistic", "erf", "erf_inv", "erfc"}
EXPENSIVE |= {"pow", "sin", "cos", "tan", "atan2", "rsqrt", "sqrt", "cbrt"}
# Assumed, not measured: a polynomial of about that degree. `BEND_OPERATIONS` counts the same way,
# so only the mix of a model against that of a bend depends on it.
EXPENSIVE_OPERATIONS = 8.0  # operations


@dataclass
class Equation:
    """One line of the flattened program; values are numbers."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: dict[str, Any]


@dataclass
class Program:
    """A traced program without calls, and without what nothing needs."""

    equations: list[Equation]
    shapes: list[tuple[int, ...]]
    sizes: list[int]  # bytes of one value of each
    arguments: list[int]
    results: list[int]
    nodes: int
    edges: int
    whole: set[int] = field(default_factory=set)  # not worth a byte of their own: constants

    def amount(self, dims: Iterable[int], factor: float = 1.0) -> Amount:
        """A number that is the product of these, as so much a node, an edge, or at all."""
        left, per = factor, ""
        for each in dims:
            if not per and each and each % self.nodes == 0:
                left, per = left * (each // self.nodes), "node"
            elif not per and each and each % self.edges == 0:
                left, per = left * (each // self.edges), "edge"
            else:
                left *= each
        return Amount(**{per or "constant": left})

    def bytes_of(self, value: int) -> Amount:
        """Of one value."""
        return self.amount(self.shapes[value], self.sizes[value])

    def is_spread(self, value: int) -> bool:
        """Whether it has a row for each node or edge, and so is spread over devices."""
        found = self.bytes_of(value)
        return bool(found.node or found.edge)


def flattened(closed: ClosedJaxpr, nodes: int, edges: int) -> Program:
    """The program with all calls written out, and without what no result needs."""
    program = Program([], [], [], [], [], nodes, edges)

    def new(aval: Any) -> int:
        program.shapes.append(tuple(int(size) for size in getattr(aval, "shape", ())))
        dtype = getattr(aval, "dtype", np.dtype(np.float32))
        program.sizes.append(int(getattr(dtype, "itemsize", 4) or 0))
        return len(program.shapes) - 1

    wide: dict[tuple[int, tuple[int, ...]], int] = {}

    def widened(value: int, equation: Any, output: int) -> int:
        """An operand of arithmetic as wide as the result: the trace leaves that unsaid."""
        shape, target = program.shapes[value], program.shapes[output]
        plain = equation.primitive.name not in STRUCTURAL | SOLID | SUMS | VIEWS
        if not plain or value in program.whole or shape == target or len(shape) != len(target):
            return value
        if any(a not in (1, b) for a, b in zip(shape, target, strict=True)):
            return value
        if (value, target) not in wide:
            made = wide[value, target] = len(program.shapes)
            program.shapes.append(target)
            program.sizes.append(program.sizes[value])
            program.equations.append(Equation("broadcast_in_dim", (value,), (made,), {}))
        return wide[value, target]

    def walk(jaxpr: Jaxpr, given: Sequence[int], constants: Sequence[int]) -> list[int]:
        known: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))
        known.update(zip(jaxpr.constvars, constants, strict=True))

        def read(atom: Any) -> int:
            if isinstance(atom, Literal):
                number = new(atom.aval)
                program.whole.add(number)
                return number
            return known[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(read(atom) for atom in equation.invars)
            inner = _inner(equation) if equation.primitive.name in INLINED else None
            if inner is not None:
                inside, held = inner
                outputs = walk(
                    inside, inputs[-len(inside.invars) :], [new(np.asarray(c)) for c in held]
                )
                known.update(zip(equation.outvars, outputs, strict=True))
                continue
            outputs = tuple(new(var.aval) for var in equation.outvars)
            known.update(zip(equation.outvars, outputs, strict=True))
            params = dict(equation.params)
            inputs = tuple(widened(value, equation, outputs[0]) for value in inputs)
            program.equations.append(Equation(equation.primitive.name, inputs, outputs, params))
        return [read(atom) for atom in jaxpr.outvars]

    program.arguments = [new(var.aval) for var in closed.jaxpr.invars]
    held = [new(np.asarray(c)) if not hasattr(c, "aval") else new(c.aval) for c in closed.consts]
    program.whole.update(held)
    program.results = walk(closed.jaxpr, program.arguments, held)
    _share_what_is_the_same(program)
    drop_unused(program)
    return program


def _inner(equation: Any) -> tuple[Jaxpr, Sequence[Any]] | None:
    """The program that a call calls, and the constants that it holds."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(key)
        if found is not None:
            closed = hasattr(found, "jaxpr")
            return (found.jaxpr, found.consts) if closed else (found, ())
    return None


def _share_what_is_the_same(program: Program) -> None:
    """Compute alike things once, as every compiler does; ops and what draws numbers stay apart."""
    same: dict[int, int] = {}
    known: dict[Any, Equation] = {}
    kept = []
    for equation in program.equations:
        equation.inputs = tuple(same.get(value, value) for value in equation.inputs)
        if equation.name in APART or any(value in program.whole for value in equation.inputs):
            kept.append(equation)
            continue
        shapes = tuple(program.shapes[out] for out in equation.outputs)
        params = str(sorted(equation.params.items(), key=str))
        key = (equation.name, equation.inputs, shapes, params)
        first = known.setdefault(key, equation)
        if first is equation:
            kept.append(equation)
        else:
            same.update(zip(equation.outputs, first.outputs, strict=True))
    program.equations = kept
    program.results = [same.get(value, value) for value in program.results]


def drop_unused(program: Program) -> None:
    """Leave out what no result needs."""
    needed, kept = set(program.results), []
    for equation in reversed(program.equations):
        if any(output in needed for output in equation.outputs):
            needed.update(equation.inputs)
            kept.append(equation)
    program.equations = kept[::-1]
