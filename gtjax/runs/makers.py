"""Encoder and head of a run: how they are made, and what they ask of edges, found by tracing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn import Sizes
from gtjax.nn.config import setting_of
from gtjax.nn.models import model_entry, model_name
from gtjax.nn.shapes import embedding_width
from gtjax.nn.streams import streams_of
from gtjax.runs.config import TrainConfig
from gtjax.runs.facts import GraphFacts
from gtjax.sharding.recording import Call, RecordingNeighbours
from gtjax.tasks.base import Task


class Makers:
    """Makes the encoder, and the head on top of it, from random streams; knows what they ask."""

    def __init__(self, config: TrainConfig, graph: Graph | GraphFacts, task: Task):
        model = config.model
        name = model_name(model)
        self._model, self._task, self._entry = model, task, model_entry(name)
        has_positions = setting_of(model, "positional") != "none"
        self.sizes = Sizes(
            features=graph.num_features,
            edge_features=graph.num_edge_features,
            positional=setting_of(model, "positional_size") if has_positions else 0,
            classes=graph.num_classes,
        )
        cls = self._entry.load()
        if not issubclass(cls, nnx.Module):
            raise UserError(f"model {name}: a model is a flax.nnx.Module; found {cls!r}")
        try:
            known = _found(model, self.sizes, graph.is_multilabel)
        except TypeError:  # settings that cannot be looked up by
            known = _found.__wrapped__(model, self.sizes, graph.is_multilabel)
        self.reads_sparse, self._width = known.reads_sparse, known.width
        self.calls = list(known.calls)

    def encoder(self, rngs: nnx.Rngs) -> nnx.Module:
        """The model."""
        return self._entry.make(self._model, self.sizes, rngs=rngs)

    def head(self, rngs: nnx.Rngs) -> nnx.Module:
        """What the task puts on top."""
        dropout, dtype = (setting_of(self._model, what) for what in ("dropout", "dense_dtype"))
        return self._task.head(self._width, dropout=dropout, dtype=dtype, rngs=rngs)


@dataclass(frozen=True)
class _Found:
    reads_sparse: bool
    width: int  # of embeddings
    calls: tuple[Call, ...]  # of ops, in training and then in evaluation


@lru_cache(maxsize=8)  # the planner and the run ask the same
def _found(model: Any, sizes: Sizes, multilabel: bool) -> _Found:
    """What a model of these sizes does, found by making and running it on shapes."""
    name = model_name(model)
    shapes = nnx.eval_shape(lambda: model_entry(name).make(model, sizes, rngs=streams_of(0)))
    _check_state(name, shapes)
    calls: list[Call] = []
    width = 0
    try:
        for key in (jax.random.key(0), None):
            width = embedding_width(
                shapes,
                sizes,
                lambda degree_n: RecordingNeighbours(degree_n, calls),
                key=key,
                multilabel=multilabel,
            )
    except ValueError as error:
        raise UserError(f"model {name}: {error}") from error
    return _Found(getattr(shapes, "reads_sparse", False), width, tuple(calls))


def _check_state(name: str, model: nnx.Module) -> None:
    """A step is a function of parameters alone: nothing else may change from step to step."""
    for path, value in nnx.to_flat_state(nnx.state(model)):
        if not isinstance(value, nnx.Param):
            where = ".".join(map(str, path))
            raise UserError(
                f"model {name}: all that it holds are parameters (nnx.Param); {where} is "
                f"{type(value).__name__}. Take randomness from inputs.noise, and normalise with "
                f"gtjax.nn.norm."
            )
