"""Misses in a GPU's cache while attention gathers rows of senders, simulated.

    python experiments/attention_gpu_cache.py --data FOLDER

FOLDER has `ogbn-arxiv.npz`. The forward pass of the GPU kernels reads a sender's keys and values
for every edge; a cache of 40 MB (the L2 of an A100) that evicts what was used least recently is
given all of these reads and nothing else, in the order of the pieces (`pallas_kernels/edges/
pieces.py`): those that run at the same time take turns, an edge each. It is compared with pieces
sorted by length over all rows. Nodes stand in the order that training puts them in, or shuffled.
The result is `experiments/attention/gpu_cache.json`: misses per edge. They are counted exactly for
this model of a cache; no GPU was there to say how much of it is true.
"""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

import gtjax
from gtjax.batching.prepare import message_edges
from gtjax.strategies.numbering import number_nodes
from gtjax.strategies.part_edges import edges_by_part
from pallas_kernels import DOT_PRODUCT, build_edges

RESULTS = Path(__file__).parent / "attention" / "gpu_cache.json"
CACHE_BYTES = 40 * 2**20
HIDDEN = 128
TOGETHER = 4096  # pieces: 32 warps on each of 128 multiprocessors
BYTES = {"float32": 4, "bfloat16": 2}


def misses(rows: np.ndarray, held: int) -> float:
    """Share of reads that a cache of so many rows, the last used ones, does not have."""
    cache: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for row in rows.tolist():
        if row in cache:
            cache.move_to_end(row)
            continue
        missed += 1
        cache[row] = None
        if len(cache) > held:
            cache.popitem(last=False)
    return missed / len(rows)


def reads(starts_p: np.ndarray, lengths_p: np.ndarray) -> np.ndarray:
    """Edges in the order of their reads: pieces that run together take turns."""
    first_p = np.cumsum(lengths_p) - lengths_p
    turn_e = np.arange(lengths_p.sum()) - np.repeat(first_p, lengths_p)
    group_e = np.repeat(np.arange(len(starts_p)) // TOGETHER, lengths_p)
    edge_e = turn_e + np.repeat(starts_p, lengths_p)
    return edge_e[np.lexsort((turn_e, group_e))]


def simulated(graph: gtjax.Graph, order_n: np.ndarray | None) -> dict[str, dict[str, float]]:
    """Misses per edge, by order of the pieces and type of the rows."""
    nodes = number_nodes(gtjax.Partition(np.zeros(graph.num_nodes, np.int32), 1), order_n)
    [part] = edges_by_part(graph, nodes, nodes)
    edges = build_edges(
        part.senders_e,
        part.receivers_e,
        num_senders=graph.num_nodes,
        num_receivers=graph.num_nodes,
        forms=DOT_PRODUCT.kernel("gpu", "gpu").needs,
    )
    assert edges.pieces is not None
    walked = edges.pieces.by_receiver.walked
    lengths_p = walked.ends_p - walked.starts_p
    by_length = np.lexsort((walked.starts_p, -np.round(2 * np.log2(np.maximum(lengths_p, 0.5)))))
    orders = {"by length": by_length, "as walked": np.arange(len(lengths_p))}
    found = {}
    for order, order_p in orders.items():
        read_e = edges.senders_e[reads(walked.starts_p[order_p], lengths_p[order_p])]
        found[order] = {
            dtype: round(misses(read_e, CACHE_BYTES // (2 * HIDDEN * size)), 3)
            for dtype, size in BYTES.items()
        }
    return found


def table(results: dict[str, Any]) -> str:
    """The stored misses, as Markdown."""
    lines = [
        "| ogbn-arxiv, nodes | pieces | misses per edge, float32 | bfloat16 |",
        "|---|---|---|---|",
    ]
    for nodes, found in results["misses"].items():
        for order, by_type in found.items():
            cells = (nodes, order, *(f"{by_type[dtype]:.3f}" for dtype in BYTES))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Simulate both orders of the nodes, and store what they miss."""
    parser = argparse.ArgumentParser(description="Simulated misses in the cache of a GPU.")
    parser.add_argument("--data", type=Path, required=True, help="folder with ogbn-arxiv.npz")
    graph = gtjax.load(parser.parse_args().data / "ogbn-arxiv.npz")
    prepared = message_edges(graph, gtjax.PrepareConfig(), HIDDEN)
    without = message_edges(graph, gtjax.PrepareConfig(self_loops=False), HIDDEN)
    shuffled = np.random.default_rng(0).permutation(graph.num_nodes)
    ways = {
        "in training's order": (prepared.edges, prepared.order_n),
        "in training's order, without self-loops": (without.edges, without.order_n),
        "shuffled": (prepared.edges, shuffled),
    }
    found = {}
    for name, (edges, order_n) in ways.items():
        found[name] = simulated(edges, order_n)
        print(name, found[name], flush=True)
    result = {
        "what": "misses per edge of a simulated cache, rows of keys and values read together",
        "cache_bytes": CACHE_BYTES,
        "hidden": HIDDEN,
        "pieces_together": TOGETHER,
        "misses": found,
        "command": "python experiments/attention_gpu_cache.py --data FOLDER",
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
