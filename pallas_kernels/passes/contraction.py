"""A kernel's arithmetic in the instructions that a GPU has for it, whichever op it was traced from.

XLA rounds every product before it adds it, and computes `exp` to the last bit: two instructions
where a GPU has one, and eight where it has two. `contracted` traces a function and gives the same
function with products and sums as multiply-adds, exponentials of base 2 by the unit that has
them (2 units in the last place, denormal results are zero), and sums of products that first add up
what one thread holds. Gradients by `jax.vjp` are contracted like everything else, since it is what
they are traced to that is looked at.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

try:  # deprecated since jax 0.12: its end must not be that of the other back ends
    triton: Any = importlib.import_module("jax.experimental.pallas.triton")
except ImportError:
    triton = None

LOG2_E = math.log2(math.e)
# Primitives that only call a function, and where they keep it.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}


@dataclass(frozen=True)
class Arithmetic:
    """How to compute: in a GPU's own instructions, or in jax's where kernels are interpreted.

    lanes: channels next to each other that one thread holds.
    """

    lanes: int
    interpret: bool = False

    def multiply_add(self, a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        """`a * b + c`, rounded once."""
        shape = jnp.broadcast_shapes(a.shape, b.shape, c.shape)
        operands = [jnp.broadcast_to(x, shape) for x in (a, b, c)]
        if self.interpret:
            return operands[0] * operands[1] + operands[2]
        return _instruction("fma.rn.f32 $0, $1, $2, $3;", operands)

    def exp2(self, x: jax.Array) -> jax.Array:
        """2 to the x."""
        return jnp.exp2(x) if self.interpret else _instruction("ex2.approx.ftz.f32 $0, $1;", [x])

    def dot(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """The sum of products along the last axis."""
        lanes = math.gcd(self.lanes, a.shape[-1])
        first, *others = zip(_lanes(a, lanes), _lanes(b, lanes), strict=True)
        total = reduce(lambda c, ab: self.multiply_add(*ab, c), others, first[0] * first[1])
        return total.sum(axis=-1)


def contracted(function: Callable[[], Any], arithmetic: Arithmetic) -> Any:
    """What the function returns, computed in that arithmetic."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)()
    results = _evaluate(closed.jaxpr, closed.consts, (), arithmetic)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _evaluate(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], by: Arithmetic) -> list[Any]:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))
    made_by: dict[Any, Any] = {}

    def value(atom: Any) -> Any:
        aval: Any = atom.aval
        return jnp.asarray(atom.val, aval.dtype) if isinstance(atom, Literal) else known[atom]

    def source(atom: Any, name: str) -> tuple[Any, Any] | None:
        """The two that an atom was computed of, if by that primitive and in float32."""
        aval: Any = atom.aval
        made = None if isinstance(atom, Literal) else made_by.get(atom)
        if made is None or made.primitive.name != name or aval.dtype != jnp.float32:
            return None
        first, second = made.invars
        return value(first), value(second)

    def computed(eqn: Any) -> list[Any]:
        name, atoms = eqn.primitive.name, eqn.invars
        if name in ("add", "add_any", "sub"):
            sign = -1.0 if name == "sub" else 1.0
            if factors := source(atoms[0], "mul"):
                return [by.multiply_add(*factors, sign * value(atoms[1]))]
            if factors := source(atoms[1], "mul"):
                return [by.multiply_add(sign * factors[0], factors[1], value(atoms[0]))]
        if name == "reduce_sum" and (factors := source(atoms[0], "mul")):
            ndim = atoms[0].aval.ndim
            if eqn.params["axes"] == (ndim - 1,) and factors[0].shape == factors[1].shape:
                return [by.dot(*factors)]
        if name == "exp" and atoms[0].aval.dtype == jnp.float32:
            if terms := source(atoms[0], "sub"):
                return [by.exp2(by.multiply_add(terms[0], jnp.float32(LOG2_E), terms[1] * -LOG2_E))]
            return [by.exp2(value(atoms[0]) * LOG2_E)]
        values = [value(x) for x in atoms]
        if name == "exp2" and atoms[0].aval.dtype == jnp.float32:
            return [by.exp2(*values)]
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]]
            return _evaluate(inner.jaxpr, inner.consts, values, by)
        found = eqn.primitive.bind(*values, **eqn.params)
        return found if eqn.primitive.multiple_results else [found]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, computed(eqn), strict=True))
        made_by.update((out, eqn) for out in eqn.outvars)
    return [value(atom) for atom in jaxpr.outvars]


def _lanes(x: jax.Array, count: int) -> list[jax.Array]:
    """Every `count`-th of the last axis, from each of the first `count`."""
    if count == 1:
        return [x]
    pairs = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    axis = pairs.ndim - 1
    even, odd = (jax.lax.squeeze(y, (axis,)) for y in jax.lax.split(pairs, (1, 1), axis))
    # Lane i of the pairs' halves is lane 2 i of the even ones, 2 i + 1 of the odd ones.
    return [*_lanes(even, count // 2), *_lanes(odd, count // 2)]


def _instruction(code: str, operands: list[jax.Array]) -> jax.Array:
    like = jax.ShapeDtypeStruct(operands[0].shape, jnp.float32)
    [result] = triton.elementwise_inline_asm(
        code,
        args=operands,
        constraints=",".join(["=r", *["r"] * len(operands)]),
        pack=1,
        result_shape_dtypes=[like],
    )
    return result
