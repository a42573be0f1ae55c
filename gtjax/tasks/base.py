"""What a task is, and the tasks by name; free of jax, so that `--help` is instant.

A task says what is asked of a graph: which arrays are its targets, the head that turns embeddings
of nodes into outputs, the loss, the metrics. A step, an evaluation and a prediction call it and
know nothing else of it. A new one is a class like those in this folder and a line in `TASKS`, or
`register_task`.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gtjax.core.errors import UserError
from gtjax.nn.models import import_class
from gtjax.tasks.config import TaskConfig

if TYPE_CHECKING:
    import jax
    import numpy as np
    from flax import nnx

    from gtjax.graph import Graph, Table
    from gtjax.nn import Inputs

DEFAULT = "auto"


@dataclass(frozen=True)
class TaskSettings:
    """What a run's config says that a task may want to know."""

    metric: str = "auto"
    """What is validated: one of the task's `METRICS`, a function, or what it takes itself."""
    label_smoothing: float = 0.0
    """Probability spread evenly over the classes in the target."""
    label_input: bool = False
    """Whether the model reads known labels (`Inputs.shown_labels_n`)."""
    hidden_labels: float = 0.5
    """Share of them hidden, and predicted, in each step."""
    symmetrise: bool = True
    """Whether messages flow both ways along every edge."""
    seed: int = 0
    """Of what a task draws before training."""
    asked: TaskConfig = field(default_factory=TaskConfig)
    """What the task leaves open."""


DEFAULTS = TaskSettings()


class Task(abc.ABC):
    """What is asked of a model; subclasses are frozen dataclasses of plain values.

    Targets are a dict of arrays with a row a node, or of `Table`s. On the devices there are rows of
    padding between those of nodes, which are zeros: so a mask among them is False there.
    """

    METRICS: ClassVar[tuple[str, ...]]
    """Names of the metrics that can be validated."""
    SMALLER: ClassVar[tuple[str, ...]] = ()
    """Those of them that are the better the smaller they are."""
    metric: str
    """The one that is validated."""
    ANSWERS: ClassVar[tuple[str, str]] = ("output", "outputs")
    """What an answer is called, and several."""
    OF: ClassVar[Literal["node", "pair", "graph"]] = "node"
    """What has an answer each."""

    @classmethod
    @abc.abstractmethod
    def of(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Self:
        """The task that a `prepared` graph sets; a UserError says what the graph lacks."""

    @classmethod
    def prepared(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Graph:
        """The graph that the model may see, such as without the edges that are asked for."""
        del settings
        return graph

    @abc.abstractmethod
    def targets(self, graph: Graph) -> dict[str, np.ndarray | Table]:
        """What is known, a row a node or in a `Table`; also of a graph that lacks some of it."""

    @abc.abstractmethod
    def head(
        self, width: int, *, dropout: float, dtype: str = "float32", rngs: nnx.Rngs
    ) -> nnx.Module:
        """A module for `head(embeddings_nf, inputs)` that gives the outputs.

        `dropout` and `dtype` (of dense arithmetic) are those of the model that it sits on.
        `inputs.asked` is what `training` and `evaluation` have put there.
        """

    @abc.abstractmethod
    def loss(
        self, outputs: Any, targets: dict[str, jax.Array], weight_n: jax.Array | None
    ) -> jax.Array:
        """The number that training makes smaller; `weight_n` multiplies each node's part in it."""

    def counted(self, targets: dict[str, jax.Array]) -> jax.Array | None:
        """Of how many things `loss` is the mean, given some rows of the targets; None if of none.

        A mean can be summed up chunk by chunk; any other loss sees the outputs of all rows at once.
        """
        del targets
        return None

    @abc.abstractmethod
    def metrics(
        self, outputs: Any, targets: dict[str, jax.Array], split: str
    ) -> dict[str, jax.Array]:
        """The metrics of "train", "val" or "test"; `metric` is among them."""

    def validation_loss(self, outputs: Any, targets: dict[str, jax.Array]) -> jax.Array | None:
        """The loss of "val", to be drawn beside that of training; None if a task has none."""
        del outputs, targets
        return None

    def goodness(self, metric: Any) -> Any:
        """The validated metric as a number that is the better the larger it is; and back."""
        return -metric if self.metric in self.SMALLER else metric

    def answers(self, outputs: Any) -> Any:
        """What is written down as the prediction, a row each: such as probabilities."""
        return outputs

    def ensemble(self, outputs: list[Any]) -> Any:
        """The outputs that several models give together: here the mean."""
        import jax

        return jax.tree.map(lambda *each: sum(each) / len(each), *outputs)

    def training(
        self, inputs: Inputs, targets: dict[str, jax.Array], key: jax.Array
    ) -> tuple[Inputs, dict[str, jax.Array]]:
        """What one step sees and is asked: hides, or shows, what the random `key` says."""
        del key
        return self.evaluation(inputs, targets), targets

    def evaluation(self, inputs: Inputs, targets: dict[str, jax.Array]) -> Inputs:
        """What the model sees when it is asked for val and test."""
        del targets
        return inputs

    def predictions(
        self,
        run: Callable[[Inputs], tuple[Any, jax.Array]],
        inputs: Inputs,
        targets: dict[str, jax.Array],
    ) -> tuple[Any, jax.Array]:
        """Outputs, and embeddings of all nodes, where `run` is the model with its head."""
        return run(self.evaluation(inputs, targets))

    def fitted(self, graph: Graph) -> Graph:
        """Another graph to predict on; a UserError says why it does not fit."""
        return graph

    def to_json(self) -> dict[str, Any]:
        """For the run's folder, and for other processes."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Task:
        """The task that was written."""
        return cls(**known)


@dataclass(frozen=True)
class TaskEntry:
    """Where a task's class is, what it may be validated by, and what it needs of a graph."""

    where: str  # "module:Class", imported when it is needed
    metrics: tuple[str, ...]
    needs: str = ""
    smaller: tuple[str, ...] = ()  # of the metrics, those that are better the smaller they are
    cls: type[Task] | None = None  # if it is known already

    def load(self) -> type[Task]:
        """The class of the task."""
        return self.cls or import_class(self.where, "task")


CLASSIFICATION, LOSSES = ("accuracy", "roc_auc", "cross_entropy"), ("cross_entropy",)
REGRESSION, ERRORS = ("mae", "rmse", "r2"), ("mae", "rmse")
RANKING = ("roc_auc", "average_precision", "mrr", "hits@10", "hits@50", "hits@100")

TASKS: dict[str, TaskEntry] = {
    "node": TaskEntry(
        "gtjax.tasks.node:NodeClassification",
        CLASSIFICATION,
        "classes of nodes, with masks",
        LOSSES,
    ),
    "node_regression": TaskEntry(
        "gtjax.tasks.regression:NodeRegression",
        REGRESSION,
        "real targets of nodes, with masks",
        ERRORS,
    ),
    "graph": TaskEntry(
        "gtjax.tasks.graphs:GraphClassification",
        CLASSIFICATION,
        "many graphs with classes (gtjax.many_graphs)",
        LOSSES,
    ),
    "graph_regression": TaskEntry(
        "gtjax.tasks.graphs:GraphRegression",
        REGRESSION,
        "many graphs with real targets (gtjax.many_graphs)",
        ERRORS,
    ),
    "link": TaskEntry("gtjax.tasks.link:LinkPrediction", RANKING, "edges, and no labels"),
}


def register_task(name: str, cls: type[Task]) -> None:
    """Add a task of one's own to the table; the same name again takes the place of the first."""
    where = f"{cls.__module__}:{cls.__qualname__}"
    TASKS[name] = TaskEntry(where, tuple(cls.METRICS), smaller=tuple(cls.SMALLER), cls=cls)


def task_entry(name: str) -> TaskEntry:
    """The task of that name: of the table, or "module:Class"; a ValueError says what is known."""
    if name not in TASKS and ":" in name:
        register_task(name, import_class(name, "task"))
    if name in TASKS:
        return TASKS[name]
    near = difflib.get_close_matches(name, TASKS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: auto, {', '.join(TASKS)}."
    raise ValueError(f"unknown task {name!r}. {hint} Your own is module:Class.")


def metrics_of(name: str) -> tuple[str, ...]:
    """What may be validated in a task of that name; of "auto", what may be in any."""
    if name != DEFAULT:
        return task_entry(name).metrics
    return tuple(dict.fromkeys(each for entry in TASKS.values() for each in entry.metrics))


def suited_task(graph: Graph) -> str:
    """The name of the task that the labels of a graph set; a UserError says what it could serve."""
    if graph.links is not None:
        return "link"
    if graph.labelled.any():
        what = "node" if graph.graphs is None else "graph"
        return f"{what}_regression" if graph.is_real else what
    needs = "; ".join(f"{name} ({entry.needs})" for name, entry in TASKS.items() if entry.needs)
    raise UserError(
        f"{graph.name} has no labels, so --task has to say what to learn. Without labels there is "
        f"--task link, which holds out edges and learns to find them. Tasks and what they need: "
        f"{needs}."
    )


def name_of(task: Task) -> str:
    """The name by which a task is found again."""
    where = f"{type(task).__module__}:{type(task).__qualname__}"
    found = (n for n, entry in TASKS.items() if entry.cls is type(task) or entry.where == where)
    return next(found, where)


def task_to_json(task: Task) -> dict[str, Any]:
    """The task and its name, for the run's folder and for other processes."""
    return {"name": name_of(task), **task.to_json()}


def task_from_json(known: dict[str, Any]) -> Task:
    """The task that was written."""
    fields = dict(known)
    return task_entry(fields.pop("name", "node")).load().from_json(fields)


def split_masks(graph: Graph) -> dict[str, np.ndarray]:
    """Which rows are for training, validation and test; nobody where the graph does not say."""
    import numpy as np

    nobody = np.zeros(len(graph.labels), bool)
    return {name: graph.splits.get(name, nobody) for name in ("train", "val", "test")}
