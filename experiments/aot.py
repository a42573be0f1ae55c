"""Whole training steps compiled for TPUs that are not there: memory, and what travels, by strategy.

Nobody has to own a TPU for this: the compiler that comes with libtpu (`pip install -e ".[aot]"`)
says how much memory a program takes on a chip, and its text shows the collectives. A step is the
loss, its gradient and the update of AdamW, with our kernel for TPUs. Nothing is run.

    python experiments/aot.py [--only node_ring] [--slices v5e:2x4] [--graphs rmat]

It writes `experiments/aot/results.json`; with options, only the rows that they name. Each case is a
process of its own, and one that the compiler refuses, or takes too long for, is a row with the
reason. Seconds are of the processor, in all threads: how long one waits depends on what else runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jax.experimental import topologies

import gtjax
from gtjax.batching.prepare import abstract_batch, prepare, whole_layout
from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.nn import TransformerConfig
from gtjax.planner.price import transfers_of
from gtjax.runs import verify
from gtjax.runs.abstract_step import work_of
from gtjax.runs.config import TrainConfig, from_mapping
from gtjax.runs.program import Program
from gtjax.sharding.collectives import bytes_received, collectives
from gtjax.sharding.config import ParallelConfig

RESULT = Path(__file__).parent / "aot" / "results.json"
NODES, EDGES, FEATURES, CLASSES = 200_003, 3_000_000, 128, 40
COMMUNITIES = 32
MODEL = TransformerConfig(layers=4, hidden=128, heads=8)
SLICES = ("v5e:2x4", "v5e:4x8")
STRATEGIES = (
    "node_all_gather",
    "node_halo",
    "node_halo ragged",
    "node_ring",
    "feature_all_to_all",
    "node_by_feature",
)
# What does not fetch by the edges moves the same on every graph.
GRAPHS = {"rmat": STRATEGIES, "communities": ("node_halo", "node_halo ragged", "node_ring")}
LIMIT_SECONDS = 1200

# Before libtpu is loaded: compile only, without looking for a chip or for the machine's name.
COMPILE_ONLY = {"JAX_PLATFORMS": "cpu", **verify.COMPILE_ONLY}


@dataclasses.dataclass(frozen=True)
class Case:
    """One step to compile."""

    graph: str
    slice: str
    strategy: str  # and, after a space, how its halos travel

    @property
    def parallel(self) -> ParallelConfig:
        """As users ask for it."""
        strategy, exchange, *_ = [*self.strategy.split(), "rounds"]
        return from_mapping(ParallelConfig, {"strategy": strategy, "exchange": exchange}, "case")


def graph_of(name: str) -> Any:
    """A power-law graph that cuts badly, or one of communities, which cuts well along them."""
    if name == "rmat":
        return GENERATORS["rmat"](nodes=NODES, edges=EDGES, features=FEATURES, classes=CLASSES)
    return GENERATORS["synthetic-citation"](
        nodes=NODES,
        mean_degree=EDGES / NODES,
        features=FEATURES,
        classes=COMMUNITIES,
        homophily=0.95,
    )


def partition_of(graph: Any, edges: Any, parts: int) -> Any:
    """Whole communities where there are such, else ranges with equally many edges."""
    if graph.name == "synthetic-citation" and COMMUNITIES % parts == 0:
        return gtjax.Partition(graph.labels_n * parts // COMMUNITIES, parts)
    return gtjax.partition_graph(edges, parts, "contiguous")


def compile_step(case: Case) -> dict[str, Any]:
    """Lay the graph out, compile the step, and read what came of it."""
    graph = graph_of(case.graph)
    config = TrainConfig(
        kernel="tpu",
        model=MODEL,
        parallel=case.parallel,
        prepare=gtjax.PrepareConfig(reorder="never"),  # it changes no size
    )
    chips = topologies.get_topology_desc(platform="tpu", topology_name=case.slice).devices
    try:
        program = Program(config, graph, config.task_of(graph), chips)
    except UserError as error:
        return {"why_not": str(error)}
    spread = program.spread
    host = prepare(graph, program.settings)
    edges = host.edges
    partition = partition_of(graph, edges, spread.shape.node)
    settings = program.settings
    layout, _ = whole_layout(host, settings, spread, partition=partition)
    batch = abstract_batch(host, layout, spread)
    cut = partition.cut(edges)
    demanded: dict[str, float] = {}
    for each in transfers_of(spread.strategy, cut, work_of(config, graph, "tpu"), spread.shape):
        moved_bytes = each.bytes * each.count
        demanded[each.collective] = demanded.get(each.collective, 0.0) + moved_bytes
    row = {
        "mesh": str(spread.shape),
        "cut": round(cut.cut, 3),
        "edge_imbalance": round(cut.edge_imbalance, 3),
        "demanded_bytes": demanded,
    }
    start = time.process_time()
    try:
        compiled = program.compiled(program.abstract_state(), batch, 1)
    except Exception as error:  # the compiler's own kinds: what it says is the result
        return row | {"why_not": str(error).strip().splitlines()[0][:300]}
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert memory is not None
    counts: dict[str, int] = {}
    for each in collectives(text):
        counts[each.kind] = counts.get(each.kind, 0) + 1
    moved = bytes_received(text, spread.shape.devices)
    return row | {
        "compile_cpu_seconds": round(time.process_time() - start, 1),
        "arguments_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "program_bytes": memory.generated_code_size_in_bytes,
        "collectives": {k: {"count": counts[k], "bytes": moved[k]} for k in sorted(moved)},
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
    }


def in_a_process(case: Case) -> dict[str, Any]:
    """Compile in a process of its own, which may take only so long."""
    command = [sys.executable, __file__, "--case", json.dumps(dataclasses.asdict(case))]
    try:
        done = subprocess.run(
            command,
            env=os.environ | COMPILE_ONLY,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"why_not": f"not compiled after {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"why_not": f"the compiler's process ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def table(results: dict[str, Any]) -> str:
    """The stored rows, as Markdown."""
    lines = [
        "| graph (cut) | slice, mesh | strategy | HBM a chip, MiB: arguments + temporary | "
        "received a chip and step, MB (operations) | demanded, MB | compiling, CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        graph = row["graph"] + (f" ({row['cut']:.2f})" if "cut" in row else "")
        mesh = f"{row['slice']}, {row['mesh']}" if "mesh" in row else row["slice"]
        cells = [graph, mesh, row["strategy"]]
        if "why_not" in row:
            lines.append("| " + " | ".join([*cells, row["why_not"], "", "", ""]) + " |")
            continue
        mib = [row[name] / 2**20 for name in ("arguments_bytes", "temporary_bytes")]
        moved = [
            f"{kind} {each['bytes'] / 1e6:.1f} ({each['count']})"
            for kind, each in row["collectives"].items()
        ]
        demanded = [f"{kind} {size / 1e6:.1f}" for kind, size in row["demanded_bytes"].items()]
        cells += [f"{mib[0]:.0f} + {mib[1]:.0f} = {sum(mib):.0f}", ", ".join(moved)]
        cells += [", ".join(demanded), f"{row['compile_cpu_seconds']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """The cases that the options name."""
    return [
        Case(graph, chips, strategy)
        for graph, strategies in GRAPHS.items()
        for chips in SLICES
        for strategy in strategies
        if graph in options.graphs and chips in options.slices and strategy in options.only
    ]


def stored() -> dict[str, Any]:
    """What was measured before, if anything."""
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"rows": []}


def store(case: Case, row: dict[str, Any]) -> None:
    """Put a row in its place."""
    key = dataclasses.asdict(case)
    rows = [r for r in stored()["rows"] if {name: r[name] for name in key} != key]
    order = [(g, s, n) for g, names in GRAPHS.items() for s in SLICES for n in names]
    versions = {name: version(name) for name in ("jax", "jaxlib", "libtpu")}
    rows.append(key | row | {"versions": versions})
    rows.sort(key=lambda r: order.index((r["graph"], r["slice"], r["strategy"])))
    result = {
        "program": "one training step, compiled and not run",
        "graph": {"nodes": NODES, "edges": EDGES, "communities": COMMUNITIES},
        "model": {"layers": MODEL.layers, "hidden": MODEL.hidden, "heads": MODEL.heads},
        "rows": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Compile the cases, and store each as soon as it is there."""
    parser = argparse.ArgumentParser(description="Training steps compiled for absent TPUs.")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--slices", nargs="+", default=SLICES, choices=SLICES)
    parser.add_argument("--only", nargs="+", default=STRATEGIES, choices=STRATEGIES)
    parser.add_argument("--case", help=argparse.SUPPRESS)  # of the process that compiles
    options = parser.parse_args()
    if options.case:
        print(json.dumps(compile_step(Case(**json.loads(options.case)))))
        return
    cases = chosen_cases(options)
    for number, case in enumerate(cases, 1):
        print(f"{number} of {len(cases)}: {case}", file=sys.stderr, flush=True)
        store(case, in_a_process(case))
    print(table(stored()))


if __name__ == "__main__":
    main()
