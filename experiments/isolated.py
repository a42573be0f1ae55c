"""Training of isolated parts against exact training: accuracy over steps, on real graphs.

    python experiments/isolated.py --data FOLDER [--only amazon-computers]

FOLDER holds the graphs as `NAME.npz` (the schema of `gtjax.save_npz`). For each config in
`experiments/isolated/`, on eight devices (simulated on a CPU): the exact strategy; isolated parts,
drawn anew and weighted by coverage; and isolated parts that stay the same, without weights; both
of parts that METIS cuts, and of random ones, which are there at no cost and cut seven edges of
eight. All have the same model, steps and seeds. Every accuracy is of the whole graph, exactly. The
results (`results.json`) and the picture (`isolated.svg`) are stored beside the configs; each run is
stored as soon as it is there, and one that is there is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import gtjax

HERE = Path(__file__).parent / "isolated"
RESULTS, PICTURE = HERE / "results.json", HERE / "isolated.svg"
SEEDS = {"amazon-computers": 3, "ogbn-arxiv": 1}
BATCHES = ("repartition", "clusters", "coverage")  # settings of batches, not of devices
ALONE = {"strategy": "isolated", "repartition": 0, "coverage": "none"}
CURVES: dict[str, dict[str, Any]] = {
    "exact": {"strategy": "node_halo"},
    "isolated, redrawn and weighted": {"strategy": "isolated"},
    "isolated alone": ALONE,
    "random parts, redrawn and weighted": {"strategy": "isolated", "partitioner": "random"},
    "random parts alone": ALONE | {"partitioner": "random"},
}
# Of middle brightness, on no ground, so that it reads on white and on black pages.
INK, PALETTE = "#7f8791", ("#8d99a6", "#2a9d5c", "#d9635b", "#3f8fd2", "#e09f3e")
COLOURS = dict(zip(CURVES, PALETTE, strict=True))


def run_once(name: str, curve: str, seed: int, data: Path) -> dict[str, Any]:
    """Train one curve of one graph with one seed."""
    config = gtjax.read_config(HERE / f"{name}.toml")
    batches = {name: value for name, value in CURVES[curve].items() if name in BATCHES}
    spread = {name: value for name, value in CURVES[curve].items() if name not in BATCHES}
    parallel = dataclasses.replace(config.parallel, **spread)
    config = dataclasses.replace(config, batches=dataclasses.replace(config.batches, **batches))
    graph = gtjax.load(data / f"{name}.npz")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        config = dataclasses.replace(config, data=name, seed=seed, out=out, parallel=parallel)
        result = gtjax.fit(graph, config=config, show_progress=False)
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    evaluated = [row for row in map(json.loads, lines) if "val_accuracy" in row]
    kept = ("val_accuracy", "test_accuracy", "best_step", "strategy", "approximate", "versions")
    record = {key: result[key] for key in kept}
    record |= {"coverage": result.values.get("coverage"), "seconds": result["seconds_per_step"]}
    record |= {"steps": [row["step"] for row in evaluated]}
    record |= {"validation": [row["val_accuracy"] for row in evaluated]}
    record |= {"config": result["config"] | {"out": None}}
    print(name, curve, seed, "test", round(record["test_accuracy"], 4), flush=True)
    return record


def stored() -> dict[str, Any]:
    """The results so far: by graph, curve and seed."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def missing(names: list[str]) -> Iterator[tuple[str, str, int]]:
    """What is not stored yet, one seed of all graphs before the next."""
    for seed in range(max(SEEDS.values())):
        for name in (name for name in names if seed < SEEDS[name]):
            for curve in CURVES:
                if str(seed) not in stored().get(name, {}).get(curve, {}):
                    yield name, curve, seed


def keep(name: str, curve: str, seed: int, record: dict[str, Any]) -> None:
    """Add a result to those that are stored."""
    results = stored()
    results.setdefault(name, {}).setdefault(curve, {})[str(seed)] = record
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """Test accuracy of every curve, and how far it is from the exact one, as Markdown."""
    lines = ["| graph | training | coverage | test accuracy, % | to exact, points | seeds |"]
    lines.append("|---|---|---|---|---|---|")
    for name, curves in results.items():
        for curve, runs in curves.items():
            shares = [run["coverage"]["mean"] for run in runs.values() if run["coverage"]]
            seen = f"{100 * statistics.fmean(shares):.0f} %" if shares else "100 %"
            accuracies = [100 * run["test_accuracy"] for run in runs.values()]
            spread = f" ± {statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
            off = "-" if curve == "exact" else f"{to_exact(curves, curve):+.2f}"
            lines.append(
                f"| {name} | {curve} | {seen} | {_mean(runs):.2f}{spread} | {off} | {len(runs)} |"
            )
    return "\n".join(lines)


def to_exact(curves: dict[str, Any], curve: str) -> float:
    """By how many points the test accuracy is above exact training with the same seeds."""
    exact = curves["exact"]
    return _mean(curves[curve]) - _mean({seed: exact[seed] for seed in curves[curve]})


def _mean(runs: dict[str, Any]) -> float:
    return 100 * statistics.fmean(run["test_accuracy"] for run in runs.values())


def draw(results: dict[str, Any], path: Path) -> None:
    """Validation accuracy over steps: the mean over the seeds, and each seed thinly."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}
    style |= {f"{part}.color": INK for part in ("text", "xtick", "ytick")}
    style |= {"axes.labelcolor": INK, "axes.edgecolor": INK, "axes.facecolor": "none"}
    with rc_context(style):
        size = (4.2 * len(results), 3.6)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        panels = figure.subplots(1, len(results), squeeze=False)[0]
        for axes, (name, curves) in zip(panels, results.items(), strict=True):
            for curve, runs in curves.items():
                lines = [[100 * value for value in run["validation"]] for run in runs.values()]
                steps = next(iter(runs.values()))["steps"]
                for line in lines if len(lines) > 1 else []:
                    axes.plot(steps, line, color=COLOURS[curve], lw=0.5, alpha=0.4)
                mean = [statistics.fmean(values) for values in zip(*lines, strict=True)]
                axes.plot(steps, mean, color=COLOURS[curve], lw=1.6, label=curve)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set(title=name, xlabel="step", ylabel="validation accuracy, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        with path.open("w", encoding="utf-8") as file:
            FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})


def main() -> None:
    """Run what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description="Isolated against exact training.")
    parser.add_argument("--data", type=Path, help="folder with the graphs")
    parser.add_argument("--only", nargs="*", choices=list(SEEDS), default=list(SEEDS))
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("--data FOLDER says where the graphs are")
    jax.config.update("jax_num_cpu_devices", 8)  # no matter where there are others
    for name, curve, seed in missing(arguments.only):
        keep(name, curve, seed, run_once(name, curve, seed, arguments.data))
        draw(stored(), PICTURE)
    print(table(stored()))


if __name__ == "__main__":
    main()
