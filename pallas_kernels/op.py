"""What an op is: a message along every edge, a reduction over each receiver's edges, and kernels.

An op is a value: a function of one edge (its receiver's row, its sender's row, its own row, and
what is shared by all) and a reduction by name. That alone runs everywhere, in XLA (`passes/xla.py`)
and recomputing in the backward pass, so that nothing per edge is kept. An op that many people use
has faster *kernels* beside it, one file a back end, in its folder. A new op is a file and a line in
`OPS` (`pallas_kernels/__init__.py`), or nothing but a function given to `custom`.

Rows are trees of arrays: those of receivers `[receivers, ...]`, of senders `[senders, ...]`, of
edges `[edges, ...]` in receiver order; `shared` has no axis of rows, and is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from pallas_kernels.edges import EdgeForm
from pallas_kernels.reductions import Reduction

PLATFORMS = ("cpu", "gpu", "tpu")

# What devices may share out between them: heads (axis 1 of every table, axis 0 of what is shared),
# channels (the last axis of every table), or nothing.
Split = Literal["heads", "channels"] | None


@dataclass(frozen=True)
class Kernel:
    """One way of computing an op, and where it runs.

    forward:  (op, receiver, sender, shared, edges, edge, draw) -> partial
    backward: (op, receiver, sender, shared, edges, edge, out, saved, dout, draw)
              -> gradients of receiver, sender, shared and edge
    whole:    as forward -> (out, saved), for a kernel that need not go over the partial.
    """

    name: str
    forward: Callable[..., Any]
    backward: Callable[..., tuple[Any, Any, Any, Any]]
    platforms: tuple[str, ...]
    whole: Callable[..., tuple[jax.Array, Any]] | None = None
    needs: tuple[EdgeForm, ...] = ()  # forms of the edges, see `build_edges`
    why_not: Callable[[], str | None] = lambda: None  # what keeps it from running here, if anything


@dataclass(frozen=True)
class Op:
    """What is computed along edges and reduced per receiver.

    message: (receiver row, sender row, edge row, shared) -> value, or (logit, value) for softmax.
             Hashable: a function, or a frozen dataclass that can be called.
    splits:  what devices may share out between them, in order of preference; see `Split`.
    """

    name: str
    message: Callable[[Any, Any, Any, Any], Any]
    reduce: Reduction
    splits: tuple[Split, ...] = ()
    kernels: tuple[Kernel, ...] = ()  # in order of preference; XLA comes last of all, always

    def split(self, size: int, receiver: Any, sender: Any, edge: Any, shared: Any) -> Split:
        """What so many devices share out of these rows: the first that divides evenly, or None."""
        nodes, of_edges = jax.tree.leaves((receiver, sender)), jax.tree.leaves(edge)
        for how in self.splits:
            if how == "heads":
                sizes = [x.shape[1] if x.ndim > 1 else 1 for x in (*nodes, *of_edges)]
                sizes += [x.shape[0] if x.ndim else 1 for x in jax.tree.leaves(shared)]
            else:
                sizes = [x.shape[-1] if x.ndim > 1 else 1 for x in nodes]
            if sizes and all(each % size == 0 for each in sizes):
                return how
        return None

    def kernel(self, name: str = "auto", platform: str | None = None) -> Kernel:
        """The kernel of that name, or with "auto" the first that can run on the platform.

        An op that has no kernel of that name runs in XLA, as every op does.
        """
        platform = platform or jax.default_backend()
        able = [k for k in self.all_kernels() if platform in k.platforms]
        if name == "auto":
            return next(k for k in able if not self.why_not(k))
        check_kernel(name, platform)
        named = next((k for k in able if k.name == name), None)
        if named is not None and (reason := self.why_not(named)):
            raise ValueError(f"kernel {name!r} cannot run: {reason}. Use auto.")
        return named or able[-1]

    def why_not(self, kernel: Kernel) -> str | None:
        """What keeps a kernel of this op from running here, if anything."""
        return kernel.why_not() or DISTRUSTED.get((self.name, kernel.name))

    def all_kernels(self) -> tuple[Kernel, ...]:
        """Those of its own, and XLA's of every platform."""
        from pallas_kernels.passes.xla import XLA, XLA_IN_PLACE

        return *self.kernels, XLA, XLA_IN_PLACE


# Kernels that were found wrong on this machine, by the names of op and kernel, and what is wrong.
DISTRUSTED: dict[tuple[str, str], str] = {}

KERNEL_PLATFORMS = {"cpu": ("cpu",), "gpu": ("gpu",), "tpu": ("tpu",), "xla": PLATFORMS}


def check_kernel(name: str, platform: str) -> None:
    """Refuse a name that stands for no kernel, or for none of this platform."""
    if name not in KERNEL_PLATFORMS:
        raise ValueError(f"kernel is one of auto, {', '.join(KERNEL_PLATFORMS)}; found {name!r}")
    if platform not in KERNEL_PLATFORMS[name]:
        runs_on = ", ".join(KERNEL_PLATFORMS[name])
        raise ValueError(f"kernel {name!r} runs on {runs_on}; this is {platform}. Use auto.")
