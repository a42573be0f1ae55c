"""`gtjax plan`: choose how to spread a graph and a model over devices, and say why."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gtjax.cli.arguments import parse, taken
from gtjax.core.errors import UserError
from gtjax.nn.config import TransformerConfig
from gtjax.nn.models import DEFAULT
from gtjax.runs.config import TrainConfig, with_model
from gtjax.sharding.config import ParallelConfig

if TYPE_CHECKING:
    from gtjax.planner import Plan

LONGEST = 1000  # columns of a line where there is no terminal, which none needs


@dataclass(frozen=True)
class PlanArguments:
    """Price every strategy, mesh and partitioner for a graph, a model and devices; choose, explain.

    Give a data set, or --nodes and --edges of a graph that is not at hand."""

    data: tyro.conf.Positional[str | None] = None
    """Name or path of a data set."""
    nodes: float | None = None
    """Instead of a data set: nodes of the graph, such as 111e6."""
    edges: float | None = None
    """Instead of a data set: edges that messages flow along, such as 1.6e9."""
    cut: float | None = None
    """Share of the edges between parts, if known; by default as bad as can be."""
    features: int = 128
    """Without a data set: features of a node."""
    classes: int = 40
    """Without a data set: classes."""
    edge_features: int = 0
    """Without a data set: features of an edge."""
    kernel: str = "auto"
    """Attention back end."""
    seed: int = 0
    """Seed of the partitioner."""
    json: bool = False
    """Print JSON."""
    all: bool = False
    """Show every candidate."""
    picture: Path | None = None
    """Picture of the predicted times and memory: .svg or .png."""
    verify: bool = False
    """Compile the chosen step for the hardware, which need not be here (needs the extra "aot" for
    TPUs and GPUs), and compare its memory with the prediction."""
    target: Path | None = None
    """With --verify for a GPU: its description as XLA reads it (a text proto)."""
    parallel: Annotated[ParallelConfig, tyro.conf.arg(name="")] = field(
        default_factory=ParallelConfig
    )
    name: Annotated[str, tyro.conf.arg(name="model")] = DEFAULT
    """Name of the model: transformer, decoupled, gcn, sage, gin, gat, gatv2, or your own as
    module:Class."""
    model: Any = field(default_factory=TransformerConfig)


def run(argv: list[str]) -> int:
    """Plan, and print the plan."""
    known, rest = taken(argv, "plan", "model")
    name = known["model"] or DEFAULT
    default = PlanArguments(name=name, model=with_model(TrainConfig(), name).model)
    arguments = parse(PlanArguments, "plan", rest, default)
    by_numbers = arguments.nodes is not None or arguments.edges is not None
    if by_numbers == (arguments.data is not None):
        raise UserError("gtjax plan takes a data set, or --nodes and --edges: one of the two")
    if by_numbers and (arguments.nodes is None or arguments.edges is None):
        raise UserError("a graph that is not at hand is given by both --nodes and --edges")
    if arguments.picture is not None:
        from gtjax.partition.picture import check_picture

        check_picture(arguments.picture)
    if arguments.parallel.hardware is None:
        from gtjax.sharding.mesh import simulate_devices

        simulate_devices(arguments.parallel)
    made, graph, config = _planned(arguments)
    if arguments.picture is not None:
        from gtjax.planner.explain import save_picture

        save_picture(made, arguments.picture)
    found = _verified(arguments, graph, config, made) if arguments.verify else None
    if arguments.json:
        print(json.dumps(made.to_json() | ({"verified": found} if found else {})))
    else:
        _print(made, arguments.all, found)
    if made.chosen is None:
        from gtjax.planner import refuse_what_does_not_fit

        refuse_what_does_not_fit(made)
    return 0


def _planned(arguments: PlanArguments) -> tuple[Plan, Any, TrainConfig]:
    from gtjax.core.progress import progress, say
    from gtjax.runs.planning import Sizes, notice_of_measuring, plan

    config = TrainConfig(
        parallel=arguments.parallel,
        model=arguments.model,
        kernel=arguments.kernel,
        seed=arguments.seed,
    )
    if arguments.data is None:
        assert arguments.nodes is not None
        assert arguments.edges is not None
        graph: Any = Sizes(
            int(arguments.nodes),
            int(arguments.edges),
            arguments.features,
            arguments.classes,
            arguments.edge_features,
            arguments.cut,
        )
    else:
        from gtjax.datasets import load
        from gtjax.graph import required_graph

        graph = required_graph(load(arguments.data), "plan")
    if notice := notice_of_measuring(config.parallel):
        say(notice)
    with progress("planning", 1.0) as update:
        return plan(graph, config=config, progress=update), graph, config


def _verified(arguments: PlanArguments, graph: Any, config: TrainConfig, made: Plan) -> Any:
    from gtjax.runs.verify import verify

    return verify(made, graph, config, target=arguments.target)


def _print(made: Plan, everything: bool, verified: Any) -> None:
    from rich.console import Console

    from gtjax.planner.explain import candidates_of, notes

    piped = not sys.stdout.isatty()
    console = Console(highlight=False, width=LONGEST if piped else None)
    width = None if piped else console.width
    console.print(candidates_of(made, width, everything=everything))
    console = Console(soft_wrap=piped, highlight=False)  # words stay whole on a terminal
    console.print("\n" + "\n".join(notes(made, everything=everything)))
    if verified:
        console.print(
            f"verified: compiled for {verified['compiled_for']} in "
            f"{verified['compile_seconds']:.0f} s: {verified['peak_bytes'] / 2**30:.3g} GiB a "
            f"device, {verified['ratio']:.2f} times the predicted "
            f"{verified['predicted_bytes'] / 2**30:.3g} GiB"
        )
