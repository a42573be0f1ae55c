"""The ops of GNN layers against their peers: attention, GAT, GATv2, sums and max along edges.

    python experiments/ops.py [--only gat sum] [--contenders cpu pyg] [--rounds 7]

What a layer does along edges, without its dense layers, on an R-MAT graph of the size of
ogbn-arxiv: attention with 8 heads of 16, aggregation of rows of 128. Our kernels, PyG over an
`edge_index`, DGL, and the gather bound, which reads the rows that the op reads (of one table where
the op has one) and nothing else. All are checked to compute the same, then timed in turns, each in
a process of its own, as in `attention.py`.

Results and picture are in `experiments/ops/`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attention import machine
from contenders.arguments import add_arguments, parsed
from contenders.comparison import CONTENDERS, DisagreementError, Settings, compare
from contenders.graphs import PROBLEMS, write_op
from contenders.kinds import OP_KINDS
from contenders.picture import draw
from contenders.table import BOUND, WORDS, cell, shares

import gtjax

HERE = Path(__file__).parent / "ops"
GRAPH, SMALL = PROBLEMS["arxiv-like"].graph, PROBLEMS["arxiv-like"].small
BY_HEAD = ("attention", "gat", "gatv2")
TAKE_PART = ("cpu", "xla", "dgl", "pyg", "gather")
ROUNDS = 7


def run_op(kind: str, graph: gtjax.Graph, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything about one op."""
    settings = Settings(tuple(arguments.contenders), arguments.rounds, arguments.peers_folder)
    heads, width = (8, 16) if kind in BY_HEAD else (1, 128)
    with tempfile.TemporaryDirectory() as folder:
        case = write_op(kind, graph, heads, width, Path(folder))
        print(f"{kind}: {case}", flush=True)
        started = time.monotonic()
        found = compare(kind, Path(folder), settings)
    result = {
        "graph": arguments.graph,
        **vars(case),
        "rounds": arguments.rounds,
        "wall_seconds": round(time.monotonic() - started, 1),
        "machine": machine(),
        **found,
    }
    return {**result, "share_of_gather_bound": shares(result)}


def table(results: dict[str, Any]) -> str:
    """Medians, with how many times ours they are in brackets, and our share of the bound."""
    ops = results.get("ops", {})
    shown = [n for n in TAKE_PART if any(n in op["contenders"] for op in ops.values())]
    titles = [CONTENDERS[name].title for name in shown]
    head = ["op", "", *titles, "share of the bound"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for kind, result in ops.items():
        found = result["contenders"]
        for operation in ("forward", "both"):
            values = {n: record["median_seconds"][operation] for n, record in found.items()}
            share = result["share_of_gather_bound"].get(operation)
            row = [
                OP_KINDS[kind].title if operation == "forward" else "",
                WORDS[operation],
                *(cell(name, values, "{:.3g}") for name in shown),
                "-" if share is None else f"{share:.2f}",
            ]
            lines.append("| " + " | ".join(row) + " |")
        peaks = {n: record["peak"]["bytes"] for n, record in found.items() if n != BOUND}
        megabytes = {n: None if peak is None else peak / 1e6 for n, peak in peaks.items()}
        cells = [cell(name, megabytes, "{:.0f}") for name in shown]
        lines.append("| " + " | ".join(["", "peak memory, MB", *cells, "-"]) + " |")
    reasons = [
        f"- {CONTENDERS[name].title}, {OP_KINDS[kind].title}: {reason}"
        for kind, result in ops.items()
        for name, reason in result["absent"].items()
    ]
    return "\n".join([*lines, *(["", "Not measured:", "", *reasons] if reasons else [])])


def stored(out: Path) -> dict[str, Any]:
    """The results so far."""
    path = out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(out: Path, kind: str, result: dict[str, Any]) -> None:
    """Put one op's result in its place among the stored ones, and draw them all."""
    ops = stored(out).get("ops", {}) | {kind: result}
    ordered = {kind: ops[kind] for kind in OP_KINDS if kind in ops}
    results = {"command": "python experiments/ops.py", "ops": ordered}
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, allow_nan=False)
    (out / "results.json").write_text(text + "\n", encoding="utf-8")
    draw({"graphs": {OP_KINDS[kind].title: ordered[kind] for kind in ordered}}, out / "ops.svg")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="The ops of GNN layers against their peers.",
        epilog="Smoke runs, and runs on other graphs, of fewer contenders or of fewer rounds than "
        "usual, are stored only in a folder given by --out.",
    )
    parser.add_argument("--only", nargs="+", choices=list(OP_KINDS), default=list(OP_KINDS))
    parser.add_argument("--graph", help=f"as gtjax.load knows it; {GRAPH} if not given")
    add_arguments(parser, TAKE_PART, ROUNDS)
    arguments = parsed(parser, argv, TAKE_PART, ROUNDS, HERE)
    arguments.graph = arguments.graph or (SMALL if arguments.quick else GRAPH)
    return arguments


def main() -> None:
    """Run what is asked for, and store each op's result as soon as it is there."""
    arguments = parse()
    graph = gtjax.load(arguments.graph)
    results: dict[str, Any] = {"ops": {}}
    for kind in arguments.only:
        try:
            result = run_op(kind, graph, arguments)
        except DisagreementError as error:
            sys.exit(f"{kind}: {error}")
        results["ops"][kind] = result
        if arguments.out is not None:
            store(arguments.out, kind, result)
    print(table(results))


if __name__ == "__main__":
    main()
