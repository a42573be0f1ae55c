"""How a run takes steps and measures itself: by one compiled program, or chunk by chunk.

What a step trains on and what an evaluation sees are two things: each is a `Batch` on the devices
or a graph that is read in chunks. So a run may train on samples that fit and be evaluated exactly
on a graph that does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
import numpy as np

from gtjax.batching.chunked_graph import ChunkedGraph
from gtjax.batching.prepare import Batch
from gtjax.runs import several_seeds
from gtjax.runs.chunked import ChunkedProgram, Told, ignored
from gtjax.runs.program import Outputs, Params, Program, State, find_not_finite
from gtjax.runs.step_cost import peak_bytes


class Trainer(Protocol):
    """Takes training steps."""

    @property
    def peak_bytes(self) -> int:
        """Bytes per device of a step, as far as they are known before it runs; else 0."""
        ...

    @property
    def compiled(self) -> Any:
        """The program of a step, if it is one."""
        ...

    def advance(
        self, state: State, batch: Any, count: int, told: Told = ignored
    ) -> tuple[State, np.ndarray]:
        """Take so many steps, and give their losses; `told` hears how far a long one is."""
        ...

    def find_not_finite(self, state: State, batch: Any) -> str:
        """Run the step that failed again, and name the first thing that is not finite."""
        ...


class Evaluator(Protocol):
    """Measures parameters on all of the graph."""

    @property
    def batch(self) -> Batch:
        """Targets and numbers of nodes, in the order of the outputs."""
        ...

    def evaluate(self, params: Params) -> dict[str, Any]:
        """Metrics of val and test."""
        ...

    def predict(self, params: Params) -> tuple[Outputs, dict[str, Any]]:
        """Outputs and metrics of all nodes."""
        ...


class CompiledTrainer:
    """Steps by one program, several in one dispatch; it overwrites its state.

    Of several seeds, losses are [steps, seeds].
    """

    def __init__(self, program: Program, state: State, batch: Batch, most: int):
        self._program, self._several = program, program.config.seeds > 1
        advance = partial(several_seeds.advance, program) if self._several else program.advance
        self.compiled = program.compiled_as(advance, state, batch, most)
        self.peak_bytes = peak_bytes(self.compiled)

    def advance(
        self, state: State, batch: Any, count: int, told: Told = ignored
    ) -> tuple[State, np.ndarray]:
        """One dispatch."""
        del told  # it says nothing until it is done
        after, losses = self.compiled(state, batch, np.int32(count))
        return after, np.asarray(losses)

    def find_not_finite(self, state: State, batch: Any) -> str:
        """By a program that looks at every activation."""
        find = several_seeds.find_not_finite_seed if self._several else find_not_finite
        return find(self._program, state, batch)


class CompiledEvaluator:
    """Evaluation by one program, on a batch of the whole graph; of several seeds all at once.

    Predictions are of one at a time.
    """

    def __init__(self, program: Program, batch: Batch):
        self.batch = batch
        several = program.config.seeds > 1
        evaluate = partial(several_seeds.evaluate, program) if several else program.evaluate
        self._evaluate, self._predict = jax.jit(evaluate), jax.jit(program.predict)

    def evaluate(self, params: Params) -> dict[str, Any]:
        """Metrics of val and test."""
        return self._evaluate(params, self.batch)

    def predict(self, params: Params) -> tuple[Outputs, dict[str, Any]]:
        """Outputs and metrics of all nodes."""
        return self._predict(params, self.batch)


class ChunkedTrainer:
    """Steps chunk by chunk, one after the other."""

    compiled = None
    peak_bytes = 0

    def __init__(self, chunked: ChunkedProgram):
        self._chunked = chunked

    def advance(
        self, state: State, batch: Any, count: int, told: Told = ignored
    ) -> tuple[State, np.ndarray]:
        """Step by step."""
        return self._chunked.advance(state, count, told)

    def find_not_finite(self, state: State, batch: Any) -> str:
        """The loss, a parameter or a gradient: activations are not looked at one by one."""
        return self._chunked.find_not_finite(state)


def trainer(program: Program, batch: Any, state: State, most: int, evaluator: Evaluator) -> Trainer:
    """What takes steps on batches like this one, at most so many in one dispatch."""
    if isinstance(batch, ChunkedGraph):
        # The same graph is not prepared twice.
        assert isinstance(evaluator, ChunkedProgram)
        return ChunkedTrainer(evaluator)
    return CompiledTrainer(program, state, batch, most)


def evaluator(program: Program, whole: Any) -> Evaluator:
    """What measures parameters on the whole graph: a batch of it, or chunks."""
    if isinstance(whole, ChunkedGraph):
        return ChunkedProgram(program, whole)
    return CompiledEvaluator(program, whole)
