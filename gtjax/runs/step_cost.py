"""What a training step costs under a strategy, from the compiled program, without running it.

Compiles the very program that training runs and reads its memory and its collectives, so it is
exact where a plan estimates; it takes as long as compiling does.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from gtjax.batching.prepare import place_batch, prepare, whole_layout
from gtjax.graph import Graph, required_graph
from gtjax.planner.price import transfers_of
from gtjax.runs.abstract_step import work_of
from gtjax.runs.config import TrainConfig, checked_config
from gtjax.runs.program import Program
from gtjax.sharding.collectives import bytes_received


@dataclass(frozen=True)
class StepCost:
    """One training step on the busiest device."""

    strategy: str
    mesh: dict[str, int]
    peak_bytes: int
    received_bytes: dict[str, float]  # by collective, as in the compiled program
    demanded_bytes: dict[str, float]  # by collective, as the strategy's arithmetic says
    edges_per_device: list[int]  # that each part's devices work on, padding left out
    padded_edges: int  # that every device works on, padding included
    cut: dict[str, Any]  # see `CutStats.to_json`
    compile_seconds: float


def step_cost(graph: Graph, config: TrainConfig) -> StepCost:
    """Compile a training step for the devices that the config asks for, and read what it costs."""
    config = checked_config(config)
    graph = config.prepared(required_graph(graph, "step_cost"))
    program = Program(config, graph, config.task_of(graph))
    spread, state = program.spread, program.abstract_state()
    host = prepare(graph, program.settings)
    layout, partition = whole_layout(host, program.settings, spread)
    batch = place_batch(host, layout, spread)
    start = time.perf_counter()
    compiled = program.compiled(state, batch, 1)
    seconds = time.perf_counter() - start
    devices, cut = spread.shape.devices, partition.cut(host.edges)
    work = work_of(config, graph, spread.platform)
    moved: dict[str, float] = {}
    for each in transfers_of(spread.strategy, cut, work, spread.shape):
        moved[each.collective] = moved.get(each.collective, 0.0) + each.bytes * each.count
    return StepCost(
        strategy=spread.strategy.name,
        mesh=asdict(spread.shape),
        peak_bytes=peak_bytes(compiled),
        received_bytes=bytes_received(compiled.as_text(), devices),
        demanded_bytes=moved,
        edges_per_device=layout.edges_p.tolist(),
        padded_edges=layout.edge_pe.shape[1],
        cut=cut.to_json(),
        compile_seconds=seconds,
    )


def peak_bytes(compiled: Any) -> int:
    """Bytes per device of a compiled program's arguments, results and temporaries."""
    memory = compiled.memory_analysis()
    if memory is None:
        return 0
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
