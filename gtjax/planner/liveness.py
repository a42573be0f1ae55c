"""What of a traced program is in memory, and when.

Compilers fuse: most values of a program are never written to memory. The rules that stand for that
here are XLA's own, in short. Products, ops, gathers, scatters, sorts, loops and sums write what
they make. All else is computed where it is used, as part of what uses it, and written only where

- a product, an op or another of those reads it, or it is a result of the program, or
- several fused computations use it, and doing it again costs: it is transcendental, or it is made
  of more than one array of its size (`InstructionFusion::ComputeGloballyUnfusible` in XLA).

What is quick to do again, or used by but one fused computation, is done again there even where it
is written for others.
What the backward pass needs of the forward pass then follows by itself: what is written early and
read late.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gtjax.planner.flat_program import EXPENSIVE, SUMS, VIEWS, Equation, Program

# That a library of sums computes as part of a sum.
SUMMED = {"mul", "add", "sub", "neg", "square", "integer_pow", "add_any"}


@dataclass(frozen=True)
class Rules:
    """In what compilers differ."""

    breadth_first: bool  # does all that it can as soon as it can
    sums_read: bool  # sums read from memory all but arithmetic that is done for them alone


# By looking at what jaxlib 0.10.2 makes of steps on a CPU, where sums are calls of a library
# (YNNPACK) and the schedule is breadth first. Those of others are XLA's fusion passes as published.
RULES = {"cpu": Rules(True, True), "gpu": Rules(False, False), "tpu": Rules(False, False)}


@dataclass(frozen=True)
class Event:
    """Something that writes to memory: an equation, with all that is fused into it."""

    equation: int  # its place in the program
    reads: tuple[int, ...]  # values that are in memory
    writes: tuple[int, ...]


def events(program: Program, is_solid: Callable[[Equation], bool], rules: Rules) -> list[Event]:
    """What writes to memory, in the order in which it happens."""
    return _Fusion(program, is_solid, rules).events()


class _Fusion:
    """Who writes what, and who reads it."""

    def __init__(self, program: Program, is_solid: Callable[[Equation], bool], rules: Rules):
        self.program, self.rules = program, rules
        self.equations = program.equations
        self.maker = {out: at for at, each in enumerate(self.equations) for out in each.outputs}
        self.users: dict[int, list[int]] = {}
        for at, equation in enumerate(self.equations):
            for value in dict.fromkeys(equation.inputs):
                self.users.setdefault(value, []).append(at)
        self.solid = {at for at, each in enumerate(self.equations) if is_solid(each)}
        self.sums = {at for at, each in enumerate(self.equations) if each.name in SUMS}
        self.spreading = self._spreading()
        self.cheap = {at for at in range(len(self.equations)) if self._is_cheap(at)}
        self.absorbed: set[int] = set()  # by sums
        self.summed: set[int] = set()  # values that sums read from memory
        if rules.sums_read:
            self._absorb()
        self.written = self._written()
        self.sources: dict[int, frozenset[int]] = {}

    def events(self) -> list[Event]:
        """In order."""
        found: dict[int, Event] = {}
        for at, equation in enumerate(self.equations):
            writes = tuple(out for out in equation.outputs if out in self.written)
            if writes:
                reads = frozenset().union(*(self._read(at, value) for value in equation.inputs))
                found[at] = Event(at, tuple(sorted(reads)), writes)
        return [found[at] for at in _order(found, self.rules)]

    def _read(self, at: int, value: int) -> frozenset[int]:
        """What an event reads from memory of one of its inputs."""
        if value in self.program.whole:
            return frozenset()
        if at in self.solid:
            return self._in_memory(value)
        if at in self.sums and self.rules.sums_read:
            maker = self.maker.get(value)
            if maker not in self.absorbed:
                return self._in_memory(value)
            inputs = self.equations[maker].inputs
            return frozenset().union(*(self._read(at, each) for each in inputs))
        return self._source(value)

    def _in_memory(self, value: int) -> frozenset[int]:
        return frozenset((value,)) if value in self.written else self._source(value)

    def _source(self, value: int) -> frozenset[int]:
        """What has to be in memory for a fused computation to compute a value."""
        at = self.maker.get(value)
        if value in self.program.whole:
            return frozenset()
        if at is None or (value in self.written and not self._is_done_again(at)):
            return frozenset((value,))
        if value not in self.sources:
            inputs = self.equations[at].inputs
            self.sources[value] = frozenset().union(*(self._source(each) for each in inputs))
        return self.sources[value]

    def _is_done_again(self, at: int) -> bool:
        """Whether fused computations do it themselves, also where it is written for others."""
        return at in self.cheap and at not in self.solid and at not in self.sums

    def _written(self) -> set[int]:
        """Values that are written to memory."""
        results, written = set(self.program.results), set()
        roots: dict[int, frozenset[int]] = {}  # of an equation: the events that it is a part of
        for at in reversed(range(len(self.equations))):
            equation = self.equations[at]
            if at in self.absorbed:
                roots[at] = frozenset()
                continue
            ends: set[int] = set()
            read_whole = any(out in results or out in self.summed for out in equation.outputs)
            for value in equation.outputs:
                for user in self.users.get(value, ()):
                    if user in self.solid:
                        in_passing = _reads_in_passing(self.equations[user], value)
                        read_whole |= not in_passing
                        ends |= {user} if in_passing else set()
                    elif user in self.sums:
                        ends |= set() if self.rules.sums_read else {user}
                    else:
                        ends |= roots[user]
            if at in self.solid or at in self.sums:
                written.update(equation.outputs)
                roots[at] = frozenset((at,))
            elif read_whole and not self._is_there_anyway(at):
                written.update(equation.outputs)
                if len(ends) == 1 and equation.name not in EXPENSIVE:
                    self.cheap.add(at)
                roots[at] = frozenset((at, *(ends if at in self.cheap else ())))
            elif len(ends) > 1 and at not in self.cheap and self._is_asked_for_twice(at):
                written.update(equation.outputs)
                roots[at] = frozenset((at,))
            else:
                roots[at] = frozenset(ends)
        return written

    def _is_asked_for_twice(self, at: int) -> bool:
        """XLA looks at who uses a value before it fuses; what is slow it never does again."""
        equation = self.equations[at]
        users = {user for value in equation.outputs for user in self.users.get(value, ())}
        return equation.name in EXPENSIVE or len(users) > 1

    def _is_there_anyway(self, at: int) -> bool:
        """Whether it is a view of what is in memory, or turned, which products do as they read."""
        if self.equations[at].name == "transpose":
            return True
        while self.equations[at].name in VIEWS:
            value = self.equations[at].inputs[0]
            if value not in self.maker:
                return value not in self.program.whole
            at = self.maker[value]
            if at in self.solid or at in self.sums:
                return True
        return False

    def _absorb(self) -> None:
        """Find the arithmetic that is done for one sum alone, and what sums read of the rest."""
        for at in self.sums:
            waiting = list(self.equations[at].inputs)
            while waiting:
                value = waiting.pop()
                maker = self.maker.get(value)
                if maker is None or maker in self.solid or maker in self.sums:
                    continue
                alone = len(self.users[value]) == 1 and value not in self.program.results
                arithmetic = self.equations[maker].name in SUMMED
                if alone and arithmetic and maker not in self.spreading:
                    self.absorbed.add(maker)
                    waiting += self.equations[maker].inputs
                else:
                    self.summed.add(value)

    def _spreading(self) -> set[int]:
        """Equations that make a row for every node or edge of what has none, or a number a row."""
        program, found, broad = self.program, set(), set(self.program.whole)
        for at, equation in enumerate(self.equations):
            out = equation.outputs[0]
            if at in self.solid or at in self.sums or not program.is_spread(out):
                continue
            given = equation.inputs
            if equation.name == "broadcast_in_dim":
                narrow = given[0] not in program.whole
                if narrow and program.bytes_of(given[0]) != program.bytes_of(out):
                    found.add(at)
                    broad.add(out)
            elif given and any(v not in program.whole for v in given) and broad.issuperset(given):
                found.add(at)
                broad.update(equation.outputs)
        return found

    def _is_cheap(self, at: int) -> bool:
        """Whether a compiler would do it again for every use: of one array at most, and quick."""
        equation, program = self.equations[at], self.program
        if equation.name in EXPENSIVE:
            return False
        if equation.name in VIEWS:
            return True
        size = math.prod(program.shapes[equation.outputs[0]])
        full = 0
        for value in dict.fromkeys(equation.inputs):
            if value in program.whole or math.prod(program.shapes[value]) < size:
                continue
            maker = self.maker.get(value)
            idle = maker in self.spreading or (
                maker is not None and self.equations[maker].name == "iota"
            )
            full += not idle
        return full <= 1


def _reads_in_passing(equation: Equation, value: int) -> bool:
    """Whether a solid equation computes this input as it goes: indices, and rows that it adds."""
    if equation.name == "concatenate":
        return True
    return equation.name.startswith(("gather", "scatter")) and value != equation.inputs[0]


def _order(found: dict[int, Event], rules: Rules) -> list[int]:
    """That of the trace; or, where a compiler does all that it can at once, by what waits for what.

    Breadth first, an event's turn comes when the longest chain of events before it is done, so what
    needs little is there early, and stays until it is used.
    """
    if not rules.breadth_first:
        return list(found)
    writer = {value: at for at, event in found.items() for value in event.writes}
    depth: dict[int, int] = {}
    for at, event in found.items():
        before = [depth[writer[value]] for value in event.reads if value in writer]
        depth[at] = 1 + max(before, default=0)
    return sorted(found, key=lambda at: (depth[at], at))
