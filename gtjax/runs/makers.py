"""Encoder and head of a run: how they are made, and what they ask of edges, found by tracing."""

from __future__ import annotations

from flax import nnx

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn import Sizes
from gtjax.nn.config import setting_of
from gtjax.nn.models import model_entry, model_name
from gtjax.nn.shapes import embedding_width
from gtjax.nn.streams import Streams
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
        shapes = nnx.eval_shape(lambda: self.encoder(Streams(0)))
        _check_state(name, shapes)
        self.reads_sparse: bool = getattr(shapes, "reads_sparse", False)
        self.calls: list[Call] = []  # of ops, in training and then in evaluation
        try:
            for training in (True, False):
                self._width = embedding_width(
                    shapes,
                    self.sizes,
                    lambda degree_n: RecordingNeighbours(degree_n, self.calls),
                    training=training,
                    multilabel=graph.is_multilabel,
                )
        except ValueError as error:
            raise UserError(f"model {name}: {error}") from error

    def encoder(self, rngs: nnx.Rngs) -> nnx.Module:
        """The model."""
        return self._entry.make(self._model, self.sizes, rngs=rngs)

    def head(self, rngs: nnx.Rngs) -> nnx.Module:
        """What the task puts on top."""
        dropout, dtype = (setting_of(self._model, what) for what in ("dropout", "dense_dtype"))
        return self._task.head(self._width, dropout=dropout, dtype=dtype, rngs=rngs)


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
