"""Runs an op's kernel on a small awkward graph, forward and backward, beside what XLA makes of it.

A kernel that was only ever compiled, or interpreted, may still be wrong on a device: choose this on
the machine itself, before trusting it. The graph has hubs at both ends (so that pieces and tiles
are merged), nodes without edges, self-loops and multi-edges. It takes the time of compiling the op
twice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.driver import segment
from pallas_kernels.edges import Edges, build_edges
from pallas_kernels.op import Kernel, Op

Tree = Any
NODES = 521  # three blocks of rows on a TPU, and a prime
# Largest difference over the largest number. Both sum in float32, in another order; results in
# bfloat16 are rounded to 8 bits.
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.03}


class RowShapes(NamedTuple):
    """What an op is given: trees of `jax.ShapeDtypeStruct`, of one row and of what is shared."""

    receiver: Tree = None
    sender: Tree = None
    edge: Tree = None
    shared: Tree = None

    @staticmethod
    def of(receiver: Tree, sender: Tree, edge: Tree, shared: Tree) -> RowShapes:
        """Of arrays with a leading axis of rows, but for what is shared."""

        def row(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

        def whole(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(x.shape, x.dtype)

        of_receiver, of_sender, of_edge = jax.tree.map(row, (receiver, sender, edge))
        return RowShapes(of_receiver, of_sender, of_edge, jax.tree.map(whole, shared))

    @property
    def dtype(self) -> str:
        """The coarsest type of fractions among them."""
        types = {str(leaf.dtype) for leaf in jax.tree.leaves(tuple(self))}
        return "bfloat16" if "bfloat16" in types else "float32"


@dataclass(frozen=True)
class Outcome:
    """The largest difference of the result and of each gradient, over the largest number there."""

    errors: Mapping[str, float]
    tolerance: float

    @property
    def worst(self) -> tuple[str, float]:
        """What differs most, and by how much: the result before the gradients that follow from it.

        What is not a number differs most of all.
        """
        if not self.errors["result"] <= self.tolerance:
            return "result", self.errors["result"]
        return max(self.errors.items(), key=lambda each: np.nan_to_num(each[1], nan=np.inf))

    @property
    def agrees(self) -> bool:
        """Whether all of it is within the tolerance."""
        return bool(self.worst[1] <= self.tolerance)


def awkward_edges(nodes: int = NODES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, sorted by receiver; a tenth of the nodes have no edge."""
    rng = np.random.default_rng(seed)
    some, hub = nodes - nodes // 10, nodes // 3
    ends = rng.integers(0, some, (2, 5 * nodes))
    ends[1, : 2 * nodes] = hub  # receives and sends a third of all
    ends[0, 2 * nodes : 4 * nodes] = hub
    ends = np.concatenate([ends, ends[:, -nodes:], np.arange(some)[None].repeat(2, 0)], axis=1)
    senders_e, receivers_e = ends[:, np.argsort(ends[1], kind="stable")]
    return senders_e, receivers_e


def rows_of(shapes: RowShapes, nodes: int, edges: int, seed: int = 1) -> dict[str, Tree]:
    """Random rows of these shapes."""
    rng = np.random.default_rng(seed)

    def drawn(tree: Tree, *leading: int) -> Tree:
        return jax.tree.map(
            lambda x: jnp.asarray(rng.standard_normal((*leading, *x.shape)), x.dtype), tree
        )

    return {
        "receiver": drawn(shapes.receiver, nodes),
        "sender": drawn(shapes.sender, nodes),
        "edge": drawn(shapes.edge, edges),
        "shared": drawn(shapes.shared),
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def both_passes(op: Op, kernel: Kernel, rows: dict[str, Tree], edges: Edges) -> tuple[Any, Any]:
    """The result, and the gradients of all rows for a gradient that differs everywhere."""
    out, pull = jax.vjp(lambda rows: segment(op, edges, **rows, kernel=kernel), rows)
    dout = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
    return out, pull(dout.astype(out.dtype))[0]


def compare(got: tuple[Any, Any], wanted: tuple[Any, Any], dtype: str) -> Outcome:
    """Two results of `both_passes`."""
    errors = {}
    found = jax.tree_util.tree_leaves_with_path({"result": got[0], "gradient": got[1]})
    want = jax.tree.leaves({"result": wanted[0], "gradient": wanted[1]})
    for (path, ours), theirs in zip(found, want, strict=True):
        ours, theirs = (np.asarray(x, np.float64) for x in (ours, theirs))
        scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-3)
        difference = float(np.abs(ours - theirs).max(initial=0.0))
        errors[jax.tree_util.keystr(path, simple=True, separator=" ")] = difference / scale
    return Outcome(errors, TOLERANCE[dtype])


def trial(op: Op, kernel: Kernel, shapes: RowShapes, platform: str) -> Outcome:
    """The kernel beside XLA, on a device that jax runs on by default."""
    senders_e, receivers_e = awkward_edges()
    xla = op.kernel("xla", platform)
    edges = build_edges(
        senders_e,
        receivers_e,
        num_senders=NODES,
        num_receivers=NODES,
        forms={*kernel.needs, *xla.needs},
    )
    rows = rows_of(shapes, NODES, edges.num_edges)
    got, wanted = (both_passes(op, each, rows, edges) for each in (kernel, xla))
    return compare(got, wanted, shapes.dtype)
