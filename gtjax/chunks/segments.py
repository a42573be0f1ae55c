"""The row-wise computation between ops, as programs that run on any chunk of rows.

Segment k is what the model computes after op k: of each node (or edge) by itself, from what is
stored of it. It gives the operands of later ops and what later segments still need. What is cheap
to compute again from the graph's own rows (dropout of features, factors of degrees) is not stored.
A segment is checked before it is used: rows of another content must not change a row, nor may its
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.chunks.flow import Flow, Kind, evaluated, flat_rows, is_fraction, is_heavy
from gtjax.core.errors import UserError

# Rows that have nothing to do with each other agree but for the order of sums within a row.
TOLERANCE = 1e-4


@dataclass(eq=False)
class Segment:
    """One program of rows: `outputs` from `inputs`, by `equations`.

    `shared` are the arguments without rows that it reads; inputs and outputs are stored rows.
    """

    flow: Flow
    number: int
    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shared: tuple[int, ...]
    equations: tuple[int, ...]

    def run(self, shared: Sequence[Any], rows: Sequence[Any]) -> list[jax.Array]:
        """Rows of the outputs, `[rows, numbers]` each, from those of the inputs."""
        known = dict(zip(self.shared, shared, strict=True))
        for value, given in zip(self.inputs, rows, strict=True):
            known[value] = given.reshape(self.flow.values[value].shape)
        evaluated(self.flow, self.equations, known)
        return [flat_rows(known[value]) for value in self.outputs]

    @cached_property
    def forward(self) -> Any:
        """`run`, compiled."""
        return jax.jit(self.run)

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Those of `shared` that have a gradient, by their place there."""
        return tuple(i for i, v in enumerate(self.shared) if self.flow.values[v].active)

    @cached_property
    def graded_inputs(self) -> tuple[int, ...]:
        """Those of `inputs` that have a gradient, by their place there."""
        return tuple(i for i, v in enumerate(self.inputs) if self.flow.values[v].active)

    @cached_property
    def graded_outputs(self) -> tuple[int, ...]:
        """Those of `outputs` that have one, by their place there."""
        return tuple(i for i, v in enumerate(self.outputs) if self.flow.values[v].active)

    @cached_property
    def backward(self) -> Any:
        """(shared, rows, gradients of graded outputs, totals) -> totals, of graded inputs.

        Totals are sums of gradients of `parameters`. A gradient that is None is zero.
        """

        def run(shared: Any, rows: Any, gradients: Any, totals: Any) -> tuple[Any, Any]:
            shared, rows = list(shared), list(rows)

            def compute(weights: Any, inputs: Any) -> Any:
                for at, weight in zip(self.parameters, weights, strict=True):
                    shared[at] = weight
                for at, given in zip(self.graded_inputs, inputs, strict=True):
                    rows[at] = given
                found = self.run(shared, rows)
                return [found[at] for at in self.graded_outputs]

            weights = [shared[at] for at in self.parameters]
            inputs = [rows[at] for at in self.graded_inputs]
            found, pull = jax.vjp(compute, weights, inputs)
            given = [
                jnp.zeros_like(x) if d is None else d.astype(x.dtype)
                for x, d in zip(found, gradients, strict=True)
            ]
            of_weights, of_inputs = pull(given)
            totals = [a + b.astype(jnp.float32) for a, b in zip(totals, of_weights, strict=True)]
            return totals, [x.astype(jnp.float32) for x in of_inputs]

        return jax.jit(run, donate_argnums=3)

    def check(self, shared: Sequence[Any], rows: int) -> None:
        """Refuse a segment in which a row depends on other rows, or on its place among them."""
        half = rows // 2
        draw = np.random.default_rng(0)

        def made(value: int, number: int) -> np.ndarray:
            known = self.flow.values[value]
            shape = (half, known.width)
            if is_fraction(known.dtype):
                return draw.normal(size=shape).astype(known.dtype)
            return np.full(shape, number).astype(known.dtype)

        one, other = ([made(v, i) for v in self.inputs] for i in (0, 1))
        odd = [x[: rows - 2 * half] for x in one]
        same = self.forward(shared, [np.concatenate(x) for x in zip(one, one, odd, strict=True)])
        mixed = self.forward(shared, [np.concatenate(x) for x in zip(one, other, odd, strict=True)])
        for value, a, b in zip(self.outputs, same, mixed, strict=True):
            first, again, beside = (np.asarray(x, np.float32) for x in (a[:half], a[half:], b))
            again, beside = again[:half], beside[:half]
            scale = TOLERANCE * max(1.0, float(np.abs(np.nan_to_num(first)).max(initial=0)))
            for found, what in ((beside, "other rows"), (again, "its place among the rows")):
                if not np.allclose(first, found, atol=scale, rtol=TOLERANCE, equal_nan=True):
                    raise UserError(
                        f"--batching chunks computes every {self.kind} by itself but for what ops "
                        f"bring from its neighbours; here a row of what the model computes "
                        f"after {self.number} ops (shape "
                        f"{list(self.flow.values[value].shape[1:])}) depends on {what}. Leave out "
                        f"what mixes all nodes (batch normalisation, global attention, means over "
                        f"the graph), draw randomness from inputs.noise, or use --batching full."
                    )


@dataclass
class Plan:
    """What runs before, between and after the ops of a flow, and what is stored for it."""

    flow: Flow
    segments: list[list[Segment]]  # after so many ops; of nodes and of edges
    operands: list[list[int]]  # of each op: the stored value of each leaf, or -1 for shared ones

    def readers(self, value: int) -> list[int]:
        """Segments, by the number of ops before them, that read a stored value."""
        return [
            number
            for number, segments in enumerate(self.segments)
            if any(value in segment.inputs for segment in segments)
        ]


def cut(flow: Flow) -> Plan:
    """Cut a flow at its ops."""
    last = len(flow.ops)
    cheap = _cheap(flow)
    stored: list[dict[int, None]] = [{} for _ in range(last + 1)]  # in order, as sets have none
    homes: dict[int, int] = {}

    def is_given(value: int) -> bool:
        known = flow.values[value]
        return known.made_by is None and known.constant is None

    def require(value: int, after: int) -> int:
        """See to it that the value is stored once so many ops are done."""
        value = flow.root(value)
        known = flow.values[value]
        if known.kind == "shared" or is_given(value) or value in homes:
            return value
        assert known.made_by is not None
        home = after if cheap[value] else flow.equations[known.made_by].after
        homes[value] = home
        stored[home][value] = None
        return value

    for value in (value for call in flow.ops for value in call.leaves):
        _check_rows(flow, value)
    operands = [
        [
            -1 if flow.values[leaf].kind == "shared" else require(leaf, number)
            for leaf in call.leaves
        ]
        for number, call in enumerate(flow.ops)
    ]
    for value in flow.results:
        _check_rows(flow, value)
        require(value, last)
    segments: list[list[Segment]] = [[] for _ in range(last + 1)]
    for number in range(last, -1, -1):
        kinds: tuple[Kind, Kind] = ("node", "edge")
        for kind in kinds:
            outputs = tuple(v for v in stored[number] if flow.values[v].kind == kind)
            if outputs:
                segments[number].append(
                    _segment(flow, number, kind, outputs, cheap, require, is_given)
                )
    return Plan(flow, segments, operands)


def _segment(
    flow: Flow,
    number: int,
    kind: Kind,
    outputs: tuple[int, ...],
    cheap: Any,
    require: Any,
    given: Any,
) -> Segment:
    inputs: dict[int, None] = {}
    shared: dict[int, None] = {}
    equations: set[int] = set()
    left, seen = list(outputs), set()
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        known = flow.values[value]
        if known.constant is not None:
            continue
        if given(value):
            (shared if known.kind == "shared" else inputs)[value] = None
            continue
        assert known.made_by is not None
        equation = flow.equations[known.made_by]
        is_view = flow.root(value) != value
        earlier = known.kind != "shared" and equation.after < number
        if earlier and not is_view and not cheap[value]:
            _check_rows(flow, value)
            inputs[require(value, equation.after)] = None
            continue
        equations.add(known.made_by)
        left.extend(equation.inputs)
    return Segment(
        flow, number, kind, tuple(inputs), outputs, tuple(shared), tuple(sorted(equations))
    )


def _cheap(flow: Flow) -> list[bool]:
    """Which values are computed from the graph's own rows by little arithmetic."""
    cheap = [value.of_op is None for value in flow.values]
    for equation in flow.equations:
        light = not is_heavy(equation) and all(cheap[value] for value in equation.inputs)
        for value in equation.outputs:
            # What all share is computed again wherever it is needed.
            cheap[value] = light or flow.values[value].kind == "shared"
    return cheap


def _check_rows(flow: Flow, value: int) -> None:
    known = flow.values[value]
    if known.kind == "shared":
        return
    rows = flow.rows[known.kind]
    if known.shape[:1] != (rows,):
        raise UserError(
            f"--batching chunks computes every {known.kind} by itself: what the model keeps "
            f"between ops has a row each; found shape {list(known.shape)} for {rows} rows. Leave "
            f"out what mixes all nodes, or use --batching full."
        )


def shared_program(flow: Flow, wanted: Sequence[int]) -> Any:
    """A function from the shared arguments to values that depend on nothing else."""
    equations: set[int] = set()
    left = list(wanted)
    while left:
        known = flow.values[left.pop()]
        if known.made_by is not None and known.made_by not in equations:
            equations.add(known.made_by)
            left.extend(flow.equations[known.made_by].inputs)

    def run(shared: Sequence[Any]) -> list[Any]:
        known = dict(zip(flow.shared, shared, strict=True))
        evaluated(flow, sorted(equations), known)
        return [
            known[v] if flow.values[v].constant is None else jnp.asarray(flow.values[v].constant)
            for v in wanted
        ]

    return run
