"""`trace_step`: what a training step does and holds, counted in its traced program.

The loss runs once on shapes alone, with neighbours that note what is asked of them; flops, bytes
and what autodiff keeps are then read from the program of the loss and its gradient. So a model that
the planner has never seen is planned like any other, and what a model recomputes in its backward
pass is counted because it is there. It costs what tracing costs: a fraction of a second a layer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from gtjax.planner.flat_program import (
    EXPENSIVE,
    EXPENSIVE_OPERATIONS,
    LOOPS,
    SOLID,
    SUMS,
    VIEWS,
    Equation,
    Program,
    drop_unused,
    flattened,
)
from gtjax.planner.liveness import RULES, Event, Rules, events
from gtjax.planner.step_work import BACKWARD, FORWARD, Amount, Moment, OpCall, Work
from gtjax.planner.traced_neighbours import EDGES, NODES, TracedNeighbours
from gtjax.planner.traced_rows import gathered_bytes, is_sparse_product
from gtjax.sharding.recording import Call

ADAM_COPIES = 3  # of the parameters in a state: themselves, and two moments


def _keep_what_is_read(program: Program) -> None:
    """Leave out of the backward passes of ops what no gradient that is used needs."""
    used = {value for equation in program.equations for value in equation.inputs}
    used.update(program.results)
    for equation in program.equations:
        if equation.name != "op_backward":
            continue
        reads = zip(equation.params["reads"], equation.outputs, strict=True)
        wanted = {each for some, out in reads if out in used for each in some}
        leaves = equation.params["leaves"]
        names = [*range(leaves), "out", *["saved"] * (len(equation.inputs) - leaves - 2)]
        given = zip(names, equation.inputs, strict=False)
        kept = [value for name, value in given if name in wanted]
        equation.inputs = (*kept, equation.inputs[-1])
        equation.params["wanted"] = wanted
    drop_unused(program)


def trace_step(
    loss: Callable[[Any, Any, TracedNeighbours], jax.Array],
    params: Any,
    inputs_of: Callable[[int, int], Any],
    *,
    state_bytes: float | None = None,
    platform: str = "cpu",
    nodes: int = NODES,
    edges: int = EDGES,
) -> Work:
    """What a step of this loss does and holds.

    Args:
        loss: of parameters, inputs and neighbours; a number.
        params: arrays, or their shapes.
        inputs_of: shapes of the inputs, a tree, of so many nodes and edges.
        state_bytes: of parameters and all that the optimiser keeps; by default Adam's.
        platform: whose compiler will make a program of it.
        nodes: and `edges`, to trace with: primes that no size of the model is a multiple of.
    """
    inputs = inputs_of(nodes, edges)
    degree_n = jax.ShapeDtypeStruct((nodes,), jnp.float32)
    calls: list[Call] = []

    def of_step(params: Any, inputs: Any, degree_n: jax.Array) -> jax.Array:
        return loss(params, inputs, TracedNeighbours(degree_n, calls))

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
    closed = jax.make_jaxpr(jax.value_and_grad(of_step))(shapes, inputs, degree_n)
    program = flattened(closed, nodes, edges)
    _keep_what_is_read(program)
    parameter_bytes = float(sum(_bytes(leaf) for leaf in jax.tree.leaves(shapes)))
    used = {value for equation in program.equations for value in equation.inputs}
    given = [v for v in program.arguments[len(jax.tree.leaves(shapes)) :] if v in used]
    return counted(
        program,
        calls,
        RULES[platform],
        inputs=sum((program.bytes_of(value) for value in given), Amount()),
        parameter_bytes=parameter_bytes,
        state_bytes=ADAM_COPIES * parameter_bytes if state_bytes is None else state_bytes,
    )


def _bytes(array: Any) -> int:
    return math.prod(array.shape) * jnp.dtype(array.dtype).itemsize


def counted(
    program: Program,
    calls: list[Call],
    rules: Rules,
    *,
    inputs: Amount,
    parameter_bytes: float,
    state_bytes: float,
) -> Work:
    """The work of a flattened program."""
    happening = events(program, _is_solid, rules)
    groups, group_of = _groups(program, calls, _fused_reads(program, happening, rules))
    return Work(
        calls=groups,
        products=_products(program),
        arithmetic=sum((_arithmetic(program, each) for each in program.equations), Amount()),
        traffic=sum((_traffic(program, each) for each in happening), Amount()),
        sums=tuple(_sums(program)),
        moments=_fullest(program, happening, group_of, len(groups)),
        kept=_kept(program, happening),
        inputs=inputs,
        parameter_bytes=parameter_bytes,
        state_bytes=state_bytes,
        gathered=sum(
            (gathered_bytes(program, e) for e in program.equations if is_sparse_product(e)),
            Amount(),
        ),
    )


def _is_op(equation: Equation) -> bool:
    return equation.name in ("op_forward", "op_backward")


def _is_timed_apart(equation: Equation) -> bool:
    return _is_op(equation) or equation.name == "dot_general" or is_sparse_product(equation)


def _is_solid(equation: Equation) -> bool:
    return equation.name in SOLID or _is_op(equation)


def _fused_reads(program: Program, happening: list[Event], rules: Rules) -> set[int]:
    """Values in memory that fused computations read, beside those that read them as they are."""
    whole = SOLID | SUMS if rules.sums_read else SOLID
    found: set[int] = set()
    for event in happening:
        equation = program.equations[event.equation]
        if equation.name not in whole and not _is_op(equation):
            found.update(event.reads)
    return found


def _groups(
    program: Program, calls: list[Call], fused: set[int]
) -> tuple[tuple[OpCall, ...], dict[int, int]]:
    """Calls that are alike, and which of them each number of the trace is.

    Gradients that nothing needs are not brought home, so a backward pass counts those that are.
    """
    used = {value for equation in program.equations for value in equation.inputs}
    used.update(program.results)
    needs: dict[int, set[str]] = {}
    reads: dict[int, tuple[bool, bool]] = {}
    fuses: set[int] = set()
    times: Counter[tuple[int, str]] = Counter()
    repeated = _fetched_before(program)
    for equation in program.equations:
        if not _is_op(equation):
            continue
        number = equation.params["number"]
        times[number, equation.name] += 1
        if equation.name == "op_forward" and equation.outputs[0] in fused:
            fuses.add(number)
        if equation.name == "op_backward":
            owners = zip(equation.params["owners"], equation.outputs, strict=True)
            needs.setdefault(number, set()).update(o for o, out in owners if out in used)
            wanted = equation.params["wanted"]
            again = bool(wanted.intersection(equation.params["senders"]))
            reads[number] = (again, "out" in wanted)
    found: dict[tuple[Any, ...], list[int]] = {}
    for number in dict.fromkeys(number for number, _ in times):
        work = calls[number].work
        if number in needs and "sender" not in needs[number]:
            work = replace(work, gradient_tables=())
        if number in needs and "edge" not in needs[number]:
            work = replace(work, edge_gradient_bytes=0)
        again = reads.get(number, (False, False))
        key = (calls[number].op, work, calls[number].rounds, *again, number in fuses)
        found.setdefault(key, []).append(number)
    groups = tuple(
        OpCall(
            *key[:3],
            rereads=key[3],
            keeps_result=key[4],
            fuses_result=key[5],
            forwards=sum(times[number, "op_forward"] for number in numbers),
            backwards=sum(times[number, "op_backward"] for number in numbers),
            again=sum(repeated[number] for number in numbers),
        )
        for key, numbers in found.items()
    )
    return groups, {n: at for at, numbers in enumerate(found.values()) for n in numbers}


def _fetched_before(program: Program) -> Counter[int]:
    """How often each op goes forward on the very rows that an op before it has had fetched."""
    viewed: dict[int, int] = {}  # what a value is a view of
    seen: set[tuple[int, ...]] = set()
    found: Counter[int] = Counter()
    for equation in program.equations:
        if equation.name in VIEWS:
            viewed[equation.outputs[0]] = viewed.get(equation.inputs[0], equation.inputs[0])
        elif equation.name == "op_forward":
            tables: list[int] = [equation.inputs[at] for at in equation.params["senders"]]
            rows = tuple(viewed.get(value, value) for value in tables)
            found[equation.params["number"]] += bool(rows) and rows in seen
            seen.add(rows)
    return found


def _products(program: Program) -> tuple[tuple[int, Amount], ...]:
    """Flops of matrix products, by their smallest side."""
    found: dict[int, Amount] = {}

    def add(equation: Equation | Any, shapes: Any, times: float) -> None:
        (contract, _), (batch, _) = equation.params["dimension_numbers"]
        left, right = shapes
        inner = [left[axis] for axis in contract]
        taken = {*equation.params["dimension_numbers"][0][1]}
        taken |= {*equation.params["dimension_numbers"][1][1]}
        rows = [size for axis, size in enumerate(left) if axis not in contract]
        columns = [size for axis, size in enumerate(right) if axis not in taken]
        sides = [math.prod(inner), math.prod(columns)]
        sides += [math.prod(s for a, s in enumerate(left) if a not in (*contract, *batch))]
        flops = program.amount((*inner, *rows, *columns), 2.0 * times)
        width = int(min(sides))
        found[width] = found.get(width, Amount()) + flops

    for equation in program.equations:
        if equation.name == "dot_general":
            add(equation, [program.shapes[value] for value in equation.inputs], 1.0)
        elif equation.name in LOOPS:
            for inner, times in _inside(equation):
                if inner.primitive.name == "dot_general":
                    add(inner, [var.aval.shape for var in inner.invars], times)
    return tuple(sorted(found.items()))


def _inside(equation: Equation, times: float = 1.0) -> Any:
    """Equations within a loop, and how often each runs as far as that is known."""
    again = times * equation.params.get("length", 1)
    for value in equation.params.values():
        for each in value if isinstance(value, tuple) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            for inner in getattr(jaxpr, "eqns", ()):
                yield inner, again
                nested = Equation(inner.primitive.name, (), (), dict(inner.params))
                yield from _inside(nested, again)


def _arithmetic(program: Program, equation: Equation) -> Amount:
    """Operations on single values."""
    if _is_timed_apart(equation) or equation.name in VIEWS | LOOPS | {"broadcast_in_dim"}:
        return Amount()
    values = equation.inputs if equation.name in SUMS else equation.outputs
    most = max(values, key=lambda value: math.prod(program.shapes[value]), default=None)
    cost = EXPENSIVE_OPERATIONS if equation.name in EXPENSIVE else 1.0
    return Amount() if most is None else program.amount(program.shapes[most], cost)


def _traffic(program: Program, event: Event) -> Amount:
    """Bytes that it reads and writes; products and ops are timed with theirs."""
    equation = program.equations[event.equation]
    if _is_timed_apart(equation):
        return Amount()
    touched = (*event.reads, *event.writes)
    return sum((program.bytes_of(value) for value in touched), Amount())


def _sums(program: Program) -> list[float]:
    """Bytes of what is summed over nodes or edges, which all devices then add up."""
    used = {value for equation in program.equations for value in equation.inputs}
    used.update(program.results)
    found = []
    for equation in program.equations:
        if equation.name not in SUMS | {"dot_general", "op_backward", "sparse_gradient"}:
            continue
        spread = any(program.is_spread(v) for v in equation.inputs if v not in program.whole)
        found += [
            program.bytes_of(value).constant
            for value in equation.outputs
            if spread and value in used and not program.is_spread(value)
        ]
    return found


def _kept(program: Program, happening: list[Event]) -> Amount:
    """What is written before the loss is known and read after."""
    maker = {out: at for at, each in enumerate(program.equations) for out in each.outputs}
    last = maker.get(program.results[0], 0)
    ends = [at for at, event in enumerate(happening) if event.equation == last]
    middle = ends[0] if ends else len(happening)
    early = {value for event in happening[:middle] for value in event.writes}
    late = {value for event in happening[middle:] for value in event.reads}
    return sum((program.bytes_of(value) for value in early & late), Amount())


def _fullest(
    program: Program, happening: list[Event], group_of: dict[int, int], count: int
) -> tuple[Moment, ...]:
    """What is in memory at every event, without those that others exceed in everything."""
    ends: dict[int, int] = {}
    for at, event in enumerate(happening):
        for value in event.reads:
            ends[value] = at
    for value in program.results:
        ends[value] = len(happening)
    backwards = Counter(
        program.equations[event.equation].params["number"]
        for event in happening
        if program.equations[event.equation].name == "op_backward"
    )
    alive: dict[int, Amount] = {}
    total, opened = Amount(), [0] * count
    moments: list[Moment] = []
    for at, event in enumerate(happening):
        equation = program.equations[event.equation]
        dying = [v for v in event.reads if ends.get(v) == at and v in alive]
        made = {value: program.bytes_of(value) for value in event.writes}
        new = sum(made.values(), Amount())
        if _is_op(equation):
            group, given = group_of[equation.params["number"]], Amount()
            if equation.name == "op_backward":
                last = equation.inputs[-1]
                given = alive.get(last, Amount()) if last in dying else Amount()
                opened[group] -= 1
            way = FORWARD if equation.name == "op_forward" else BACKWARD
            moments.append(Moment(total - given, tuple(opened), group, way, new + given))
            if equation.name == "op_forward" and backwards[equation.params["number"]]:
                opened[group] += 1
        else:
            reused = _reused(program, event, dying)
            moments.append(Moment(total + new - reused, tuple(opened)))
        alive.update(made)
        total = total + new
        for value in (*dying, *(v for v in event.writes if ends.get(v, -1) <= at)):
            if value in alive:
                total = total - alive.pop(value)
    return tuple(_not_exceeded(moments))


def _reused(program: Program, event: Event, dying: list[int]) -> Amount:
    """Memory of what is read for the last time, that a fused computation writes over."""
    if program.equations[event.equation].name in SOLID | SUMS | VIEWS:
        return Amount()
    free = {(program.shapes[value], program.sizes[value]) for value in dying}
    for new in event.writes:
        if (program.shapes[new], program.sizes[new]) in free:
            return program.bytes_of(new)
    return Amount()


def _not_exceeded(moments: list[Moment]) -> list[Moment]:
    def numbers(moment: Moment) -> tuple[float, ...]:
        every = moment.alive + (Amount() if moment.running is not None else moment.own)
        own = moment.own
        return (every.node, every.edge, every.constant, own.node, own.edge, *moment.open)

    kept: dict[tuple[int | None, str], list[Moment]] = {}
    ordered = sorted(moments, key=lambda m: (m.alive.node, m.alive.edge), reverse=True)
    for moment in ordered:
        rivals = kept.setdefault((moment.running, moment.direction), [])
        mine = numbers(moment)
        if not any(all(a >= b for a, b in zip(numbers(o), mine, strict=True)) for o in rivals):
            rivals.append(moment)
    return [moment for rivals in kept.values() for moment in rivals]


def operations_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Operations on single values of a function, counted as those of a step are."""
    program = flattened(jax.make_jaxpr(function)(*arguments), NODES, EDGES)
    return sum((_arithmetic(program, each) for each in program.equations), Amount()).constant
