"""What the strategies cost, read from compiled programs: memory, bytes moved, balance.

    python experiments/strategies.py [--data FOLDER] [--only memory bytes halo]

Nothing is timed: devices are simulated, and steps are compiled for them but not run. `memory` is a
whole training step of one graph under every strategy on 1 to 32 devices; `bytes` holds what the
strategies say they move against the collectives in the compiled step; `halo` is the exchange of
rows against the rows themselves, and the balance of edges, on generated graphs and on real ones
(FOLDER/ogbn-arxiv.npz and web-cnr-2000.npz; left out without them).

Results and picture are in `experiments/strategies/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

import gtjax
from gtjax.strategies.exchange import plan_rounds

HERE = Path(__file__).parent / "strategies"
DEVICES = 32
GRAPH = "rmat:nodes=1e5,edges=1e6"
SMALL = "rmat:nodes=2e4,edges=2e5"
MODEL = gtjax.TransformerConfig(hidden=64, heads=8, layers=3, dropout=0.3)
EXACT = ("node_all_gather", "node_halo", "node_ring", "feature_all_to_all", "node_by_feature")


def config_for(strategy: str, devices: int, **parallel: Any) -> gtjax.TrainConfig:
    """A training run under a strategy."""
    parallel = {"strategy": strategy if devices > 1 else "single", "devices": devices, **parallel}
    return gtjax.TrainConfig(model=MODEL, parallel=gtjax.ParallelConfig(**parallel))


def memory(data: Path | None) -> dict[str, Any]:
    """Peak bytes per device of a training step, by strategy and number of devices."""
    graph = gtjax.load(GRAPH)
    found: dict[str, dict[str, int]] = {}
    for strategy in EXACT:
        found[strategy] = {}
        for devices in (1, 2, 4, 8, 16, 32):
            if strategy == "feature_all_to_all" and MODEL.heads % devices:
                continue
            if strategy == "node_by_feature" and devices < 4:
                continue
            # Without communities to find, parts with equally many nodes waste least on padding.
            config = config_for(strategy, devices, partitioner="contiguous")
            cost = gtjax.step_cost(graph, config)
            found[strategy][str(devices)] = cost.peak_bytes
            print(f"memory {strategy} {devices}: {cost.peak_bytes / 1e6:.0f} MB", flush=True)
    return {"graph": GRAPH, "partitioner": "contiguous", "peak_bytes": found}


def exponent(peak_bytes: dict[str, int]) -> float:
    """Of the power of the number of devices that fits best, in logarithms."""
    devices = np.array([int(count) for count in peak_bytes])
    return float(np.polyfit(np.log(devices), np.log(list(peak_bytes.values())), 1)[0])


def bytes_moved(data: Path | None) -> dict[str, Any]:
    """Bytes in the compiled step against those demanded, on the busiest device."""
    graph, rows = gtjax.load(SMALL), []
    for strategy in EXACT:
        for devices in (2, 4, 8):
            cost = gtjax.step_cost(graph, config_for(strategy, devices))
            received, demanded = (
                sum(each.values()) for each in (cost.received_bytes, cost.demanded_bytes)
            )
            rows.append(
                {
                    "strategy": strategy,
                    "mesh": cost.mesh,
                    "received": cost.received_bytes,
                    "demanded": cost.demanded_bytes,
                    "ratio": received / demanded,
                }
            )
            print(f"bytes {strategy} {cost.mesh}: {received / demanded:.4f}", flush=True)
    return {"graph": SMALL, "rows": rows}


def halo(data: Path | None) -> dict[str, Any]:
    """Rows that travel against rows that are needed, and edges per device, on eight parts."""
    names = ["rmat:nodes=170e3,edges=2.3e6", "synthetic-citation:nodes=50e3"]
    graphs = {name: gtjax.load(name) for name in names}
    for name in ("ogbn-arxiv", "web-cnr-2000"):
        if data is not None and (data / f"{name}.npz").exists():
            graphs[name] = gtjax.load(data / f"{name}.npz")
    rows = []
    for name, graph in graphs.items():
        graph = graph.symmetrised().with_self_loops()
        if name == "web-cnr-2000":
            order_n = np.random.default_rng(0).permutation(graph.num_nodes)
            graph = graph.reordered(order_n)
        for how in ("metis", "contiguous"):
            cut = gtjax.partition_graph(graph, 8, how).cut(graph)
            rows.append({"graph": name, "partitioner": how, **travelling(cut)})
            print(f"halo {name} {how}: {rows[-1]}", flush=True)
    # A cut as skewed as they come: one part that all others need, and pairs of all sizes.
    rng = np.random.default_rng(0)
    skewed = np.exp(rng.normal(6, 1.5, (8, 8)))
    skewed[:, 0] *= 10
    skewed = skewed.astype(np.int64)
    np.fill_diagonal(skewed, 0)
    rows.append({"graph": "drawn, skewed", "partitioner": "-", **_rows_that_travel(skewed)})
    return {"rows": rows}


def travelling(cut: Any) -> dict[str, Any]:
    """Of a partition: the exchange, and how evenly edges are spread."""
    return {
        "cut": cut.cut,
        "edge_imbalance": cut.edge_imbalance,
        "node_imbalance": cut.node_imbalance,
        **_rows_that_travel(cut.halo_pq),
    }


def _rows_that_travel(halo_pq: np.ndarray) -> dict[str, Any]:
    parts, needed = len(halo_pq), int(halo_pq.sum())
    rounds = plan_rounds(halo_pq)
    shifts = [max(halo_pq[p, (p + r) % parts] for p in range(parts)) for r in range(1, parts)]
    return {
        "rows_needed": needed,
        "rounds": len(rounds),
        "in_rounds": sum(each.rows * len(each.pairs) for each in rounds) / needed,
        "in_rotations": float(sum(shifts) * parts / needed),
        "all_to_all": float(halo_pq.max() * parts * (parts - 1) / needed),
    }


PARTS = {"memory": memory, "bytes": bytes_moved, "halo": halo}


def table(results: dict[str, Any]) -> str:
    """The results as in the README."""
    lines = []
    if "memory" in results:
        peaks = results["memory"]["peak_bytes"]
        counts = sorted({int(count) for each in peaks.values() for count in each})
        lines += [
            "| peak MB per device | " + " | ".join(f"P = {count}" for count in counts) + " | as |",
            "|---|" + "---:|" * len(counts) + "---|",
        ]
        for strategy, found in peaks.items():
            cells = [f"{found[str(c)] / 1e6:,.0f}" if str(c) in found else "" for c in counts]
            power = f"P^{exponent(found):.2f}"
            lines.append(f"| `{strategy}` | {' | '.join(cells)} | {power} |")
    if "halo" in results:
        lines += [
            "",
            "| graph | partition | cut | edges, max/mean | rows sent / needed, in rounds | "
            "in plain rotations | in a padded all-to-all |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for row in results["halo"]["rows"]:
            cut = f"{row['cut']:.3f}" if "cut" in row else ""
            balance = f"{row['edge_imbalance']:.3f}" if "edge_imbalance" in row else ""
            lines.append(
                f"| {row['graph']} | {row['partitioner']} | {cut} | {balance} | "
                f"{row['in_rounds']:.2f} | {row['in_rotations']:.2f} | {row['all_to_all']:.2f} |"
            )
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Memory per device over devices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for strategy, found in results["memory"]["peak_bytes"].items():
        counts = [int(count) for count in found]
        axes.loglog(counts, [size / 1e6 for size in found.values()], marker="o", label=strategy)
    first = results["memory"]["peak_bytes"]["node_ring"]["1"] / 1e6
    counts = [1, 32]
    axes.loglog(counts, [first / c for c in counts], "k:", lw=0.8, label="1 / P")
    axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    axes.set(xlabel="devices", ylabel="peak MB per device")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Compile what is asked for, and store each part as soon as it is there."""
    parser = argparse.ArgumentParser(description="What the strategies cost.")
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    jax.config.update("jax_num_cpu_devices", DEVICES)
    for name in arguments.only:
        results[name] = PARTS[name](arguments.data)
        results["command"] = "python experiments/strategies.py --data FOLDER"
        results["model"] = dataclasses.asdict(MODEL)
        results["device"] = f"{DEVICES} simulated devices on {platform.machine()}"
        results["versions"] = {
            package: importlib.metadata.version(package) for package in ("gtjax", "jax", "numpy")
        }
        HERE.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if "memory" in results:
        draw(results, HERE / "memory.svg")
    print(table(results))


if __name__ == "__main__":
    main()
