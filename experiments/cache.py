"""Which rows to keep in memory: hit rates of the cache of features, for sampled batches.

    python experiments/cache.py [--data FOLDER] [--only rmat ogbn-arxiv]

Batches as training draws them (fan-out 15, 10, 5, 1024 nodes) ask the cache for their rows, for
three policies and three sizes: scored, the highest degrees, least recently used. `best` keeps the
rows that this very run asks for most often: what no choice of rows that stays can exceed. Numbers
are counts, so a busy machine does not matter. Results are in `experiments/cache/results.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import gtjax
from gtjax.batching.row_cache import CacheCounts, RowCache
from gtjax.batching.sampler import Bounds, DoesNotFitError, Sampler

HERE = Path(__file__).parent / "cache"
FAN_OUTS, BATCH_SIZE, FEATURES = (15, 10, 5), 1024, 128
SHARES = (0.01, 0.05, 0.2)  # of all rows
POLICIES = ("scored", "degree", "lru")
STEPS = {"rmat": 300, "ogbn-arxiv": 450}
GRAPHS = {"rmat": "rmat:nodes=1e6,edges=1e7", "ogbn-arxiv": "ogbn-arxiv.npz"}


class Rows:
    """A table of which only the number of rows matters."""

    def __init__(self, nodes: int):
        self.nodes = nodes

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.zeros((len(np.arange(self.nodes)[index]), 1), np.float32)


def batches(name: str, graph: gtjax.Graph, steps: int) -> Any:
    """The nodes of each batch, as training draws them."""
    edges = graph.symmetrised().with_self_loops()
    train = np.flatnonzero(graph.split_n["train"]) if "train" in graph.split_n else None
    rng = np.random.default_rng(0)
    if train is None or name == "rmat":  # a tenth of the nodes, of which each is asked in turn
        train = rng.permutation(graph.num_nodes)[: graph.num_nodes // 10]
    sampler = Sampler(edges.by_receiver, FAN_OUTS, seed=0)
    marks = sampler.marks()
    bounds = Bounds((BATCH_SIZE, 1, 1, 1), (1, 1, 1))
    per_epoch, order = len(train) // BATCH_SIZE, train
    for step in range(steps):
        if step % per_epoch == 0:
            order = rng.permutation(train)
        seeds = order[step % per_epoch * BATCH_SIZE :][:BATCH_SIZE]
        while True:
            try:
                draw = sampler.draw(seeds, step, bounds, marks)
                break
            except DoesNotFitError as error:
                bounds = bounds.with_room_for(error.needed)
        nodes = draw.nodes_r
        yield np.unique(nodes[nodes >= 0])


def run(name: str, graph: gtjax.Graph, steps: int) -> dict[str, Any]:
    """All policies and sizes side by side."""
    degrees = np.bincount(graph.symmetrised().senders_e, minlength=graph.num_nodes)
    table, count = Rows(graph.num_nodes), graph.num_nodes
    caches = {
        (policy, share): RowCache(table, int(share * count), degrees, policy)
        for share in SHARES
        for policy in POLICIES
    }
    uses, asked, settled = np.zeros(count, np.int64), 0, {}
    for step, nodes in enumerate(batches(name, graph, steps)):
        uses[nodes] += 1
        asked += len(nodes)
        for cache in caches.values():
            cache.rows(nodes)
        if step == steps // 2:  # the second half, when what can be learned is
            settled = {key: (c.counts.hits, c.counts.misses) for key, c in caches.items()}
    result: dict[str, Any] = {
        "nodes": count,
        "steps": steps,
        "rows_per_batch": asked / steps,
        "row_bytes": 4 * FEATURES,
        "sizes": {},
    }
    most = np.sort(uses)[::-1].cumsum()
    for share in SHARES:
        size = int(share * count)
        found: dict[str, Any] = {"rows": size, "best": float(most[size - 1] / asked)}
        for policy in POLICIES:
            counts: CacheCounts = caches[policy, share].counts
            hits, misses = settled[policy, share]
            later = (counts.hits - hits) / max(1, counts.hits + counts.misses - hits - misses)
            read = counts.bytes_read * FEATURES  # whose rows have one number here
            found[policy] = {
                "hit_rate": counts.hit_rate,
                "second_half": later,
                "bytes_read": read,
            }
        result["sizes"][str(share)] = found
    return result


def table(results: dict[str, Any]) -> str:
    """As in the README."""
    lines = [
        "| graph | rows kept | scored | highest degrees | least recently used | best |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        for share, found in result["sizes"].items():
            known = [found[policy] for policy in POLICIES]
            cells = [
                f"{100 * each['hit_rate']:.1f} %, {each['bytes_read'] / 1e9:.2f} GB"
                for each in known
            ]
            lines.append(
                f"| {name} | {100 * float(share):g} % | {' | '.join(cells)} | "
                f"{100 * found['best']:.1f} % |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--only", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--quick", action="store_true", help="smoke run: a tiny graph")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    arguments = parser.parse_args()
    path = arguments.out / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in arguments.only:
        where: Any = GRAPHS[name]
        if name != "rmat":
            if arguments.data is None:
                print(f"{name}: absent: --data FOLDER says where the real graphs are")
                continue
            where = arguments.data / where
        elif arguments.quick:
            where = "rmat:nodes=2e4,edges=1e5"
        steps = 20 if arguments.quick else STEPS[name]
        results[name] = run(name, gtjax.load(where), steps)
        arguments.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
