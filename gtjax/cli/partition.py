"""`gtjax partition DATA -k PARTS`: cut a graph into parts, and say what that costs."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.remote.address import shown

if TYPE_CHECKING:
    from gtjax.graph import Graph
    from gtjax.partition import CutStats, Partition


@dataclass(frozen=True)
class PartitionArguments:
    """Cut a graph into parts with few edges between them, as training would for as many devices."""

    data: tyro.conf.Positional[str]
    """Name or path of a data set."""
    parts: Annotated[int, tyro.conf.arg(aliases=["-k"])]
    """Number of parts."""
    partitioner: str = "auto"
    """metis, streaming, contiguous, random, auto, or a .npy file with the part of every node."""
    seed: int = 0
    """The same seed gives the same parts."""
    out: Path | None = None
    """New folder to write the graph to, part by part; or an address such as s3://bucket/parts."""
    picture: Path | None = None
    """Picture of the parts and what crosses between them: .svg or .png."""
    json: bool = False
    """Print JSON."""


def run(argv: list[str]) -> int:
    """Load, prepare as training does, partition, and print what is cut."""
    arguments = parse(PartitionArguments, "partition", [_as_named(word) for word in argv])

    from gtjax.batching.config import PrepareConfig
    from gtjax.batching.prepare import prepare_graph
    from gtjax.core.progress import progress, say
    from gtjax.datasets import load
    from gtjax.partition.partition import check_num_parts
    from gtjax.partition.partitioners import check_partitioner
    from gtjax.partition.picture import check_picture, draw_cut
    from gtjax.partition.store import check_new_folder, save_partition

    # Before minutes of work: what can be known to go wrong at the end.
    check_num_parts(arguments.parts)
    if arguments.picture is not None:
        check_picture(arguments.picture)
    if arguments.out is not None:
        check_new_folder(arguments.out)
    graph = prepare_graph(load(arguments.data), PrepareConfig())
    started = time.monotonic()
    how = arguments.partitioner
    is_file = how.endswith(".npy")
    if not is_file:
        check_partitioner(how)
    partition = _partition(graph, arguments, how, is_file=is_file)
    seconds = time.monotonic() - started
    cut = partition.cut(graph)
    if arguments.picture is not None:
        draw_cut(cut, arguments.picture, f"{graph.name}, {how}")
        say(f"wrote {arguments.picture}")
    if arguments.out is not None:
        with progress("writing", 1.0) as update:
            save_partition(arguments.out, graph, partition, progress=update)
        say(f"wrote {shown(arguments.out)}")
    if arguments.json:
        known = {
            "graph": graph.name,
            "partitioner": how,
            "seed": arguments.seed,
            "seconds": seconds,
        }
        print(json.dumps(known | cut.to_json()))
    else:
        _print(graph, how, seconds, cut)
    return 0


def _as_named(word: str) -> str:
    """As the option is called everywhere; --how is what it was called here."""
    return re.sub(r"^--how(?==|$)", "--partitioner", word)


def _partition(
    graph: Graph, arguments: PartitionArguments, how: str, *, is_file: bool
) -> Partition:
    from gtjax.core.progress import progress
    from gtjax.partition import partition_graph, read_owners

    if is_file:
        partition = read_owners(how, arguments.parts)
        partition.check_fits(graph)
        return partition
    with progress(how, 1.0) as update:
        return partition_graph(graph, arguments.parts, how, seed=arguments.seed, progress=update)


def _print(graph: Graph, how: str, seconds: float, cut: CutStats) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", show_footer=True, footer_style="bold")
    totals = (
        "all",
        f"{cut.num_nodes:,}",
        f"{cut.num_edges:,}",
        f"{cut.halo_p.sum():,}",
        f"{cut.cut:.1%}",
    )
    for name, total in zip(("part", "nodes", "edges", "halo", "cut"), totals, strict=True):
        table.add_column(name, total, justify="right")
    share_p = cut.cut_edges_p / cut.edges_p.clip(1)
    for part in range(cut.num_parts):
        counts = (cut.nodes_p[part], cut.edges_p[part], cut.halo_p[part])
        table.add_row(str(part), *(f"{count:,}" for count in counts), f"{share_p[part]:.1%}")
    console = Console()
    console.print(table)
    console.print(
        f"{graph.name} by {how} in {seconds:.1f} s: cut {cut.cut:.1%} of the edges; largest part "
        f"over mean: edges {cut.edge_imbalance:.3f}, nodes {cut.node_imbalance:.3f}",
        highlight=False,
        soft_wrap=True,
    )
