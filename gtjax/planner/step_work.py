"""What a training step does and holds, in numbers: for each node, for each edge, and at all.

A `Work` is found by tracing (`trace.py`) and names no device: what a device has to do follows from
the rows and edges that a strategy gives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gtjax.strategies import OpWork
from pallas_kernels import Op

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Amount:
    """So much for each node, for each edge, and however many there are."""

    node: float = 0.0
    edge: float = 0.0
    constant: float = 0.0

    def of(self, rows: float, edges: float) -> float:
        """On a device with so many rows and edges."""
        return self.node * rows + self.edge * edges + self.constant

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.node + other.node, self.edge + other.edge, self.constant + other.constant
        )

    def __sub__(self, other: Amount) -> Amount:
        return self + other.times(-1)

    def times(self, factor: float) -> Amount:
        """So many times as much."""
        return Amount(factor * self.node, factor * self.edge, factor * self.constant)


@dataclass(frozen=True)
class OpCall:
    """Uses of an op that are alike, in the whole step: recomputation counts as forward."""

    op: Op
    work: OpWork
    rounds: int = 0  # of propagation with the same weights; 0: the op by itself
    forwards: int = 1
    backwards: int = 1
    again: int = 0  # of the forwards, those on rows that an earlier op has had fetched
    rereads: bool = True  # the backward pass needs the senders' rows again
    keeps_result: bool = True  # and the result
    fuses_result: bool = False  # something else computes with the result as part of a fusion


@dataclass(frozen=True)
class Moment:
    """A point of the step, and what is in memory then, arguments left out."""

    alive: Amount  # bytes, without what the running op makes or is given last
    open: tuple[int, ...]  # of each of `Work.calls`: forward passes whose backward is to come
    running: int | None = None  # which of `Work.calls` runs
    direction: str = ""  # in which it runs
    own: Amount = Amount()  # bytes of the running op's results and of the gradient it is given


@dataclass(frozen=True)
class Work:
    """One training step, forward and backward, as traced."""

    calls: tuple[OpCall, ...]
    products: tuple[tuple[int, Amount], ...]  # smallest side, flops of all products as narrow
    arithmetic: Amount  # operations on single values, see `liveness.EXPENSIVE`
    traffic: Amount  # bytes read and written by what is not a product or an op
    sums: tuple[float, ...]  # bytes of each sum over all nodes or edges, gradients among them
    moments: tuple[Moment, ...]  # those that may be the fullest
    kept: Amount  # bytes that the forward pass leaves for the backward pass
    inputs: Amount  # bytes of features, targets and the like
    parameter_bytes: float
    state_bytes: float  # parameters, and what the optimiser and an average of them keep
    gathered: Amount = Amount()  # bytes of rows that products of sparse features gather

    @property
    def works(self) -> tuple[OpWork, ...]:
        """Of all ops, for strategies that have to divide them."""
        return tuple(dict.fromkeys(call.work for call in self.calls))
