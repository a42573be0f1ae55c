"""Tasks other than classification of nodes, on real graphs, beside what others reach.

    python experiments/tasks.py --data FOLDER [--only links graphs regression]

*links*: cora, 10 % of the edges held out for test and 5 % for validation, seeds 0 to 4; PyG's graph
auto-encoders with GCN and SAGE encoders run on the very same splits (`GTJAX_PEER_PYG` names a
Python that has PyG). *graphs*: tu-mutag, tu-proteins and tu-nci1 in ten folds, by the rule of GIN's
authors (the epoch that is best for the mean of all folds, each validated on its own test fold) and
honestly (each fold's epoch chosen on another fold). *regression*: the mean of a feature that is
taken away over the in-neighbours of amazon-photo's nodes, and a made target; beside a linear model
on propagated features. Settings were chosen by validation; results are in `experiments/tasks/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from contenders.environments import interpreter

import gtjax
from gtjax.core.user_cache import user_cache
from gtjax.graph import ManyGraphs
from gtjax.runs.run_folder import RunFolder

HERE = Path(__file__).parent / "tasks"
RESULTS = HERE / "results.json"
PUBLISHED = {"tu-mutag": 89.4, "tu-proteins": 76.2, "tu-nci1": 82.7}  # GIN, Xu et al. 2019


def train(graph: gtjax.Graph, config: gtjax.TrainConfig) -> tuple[gtjax.Result, list[dict]]:
    """A run in a folder that is thrown away; its result, and its rows of metrics."""
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(config, out=Path(folder) / "run")
        result = gtjax.fit(graph, config=config, show_progress=False)
        return result, RunFolder.open(result.folder)[0].metrics()


def links(data: Path) -> dict[str, Any]:
    """Link prediction on cora, beside PyG on the same splits."""
    graph = gtjax.load(data / "cora.npz")
    config = gtjax.read_config(HERE / "links.toml")
    runs, splits = [], {}
    for seed in range(5):
        seeded = dataclasses.replace(config, seed=seed)
        held = seeded.prepared(graph)
        result, _ = train(graph, seeded)
        runs.append({m: result[f"test_{m}"] for m in ("roc_auc", "average_precision", "mrr")})
        runs[-1]["val_roc_auc"] = result["val_roc_auc"]
        splits[f"{seed}_edges"] = np.stack([held.senders_e, held.receivers_e])
        splits |= {f"{seed}_{name}": pairs for name, pairs in held.links.arrays().items()}
        print("links", seed, runs[-1], flush=True)
    found: dict[str, Any] = {"gtjax": runs, "config": "links.toml"}
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "splits.npz", Path(folder) / "pyg.json"
        np.savez(given, x=graph.x_nf, **splits)
        script = HERE / "pyg_links.py"
        python = interpreter("pyg", user_cache() / "peers")
        subprocess.run([str(python), str(script), str(given), str(out)], check=True)
        return found | json.loads(out.read_text(encoding="utf-8"))


def graphs(name: str, data: Path, folds: Path) -> dict[str, Any]:
    """Ten folds, by both rules; each fold is kept in `folds`, so that a stopped run goes on."""
    config = gtjax.read_config(HERE / f"{name}.toml")
    found = []
    for fold in range(10):
        kept = folds / f"{name}-{fold}.json"
        settings = (HERE / f"{name}.toml").read_text(encoding="utf-8")
        before = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        if before.get("settings") != settings:
            before = {"settings": settings} | one_fold(name, data, config, fold)
            folds.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(before) + "\n", encoding="utf-8")
        found.append(before)
        honest, best, seconds = before["honest"], max(before["curve"]), before["seconds"]
        print(name, fold, f"honest {honest:.3f}, best {best:.3f}, {seconds:.0f} s", flush=True)
    best = int(np.mean([each["curve"] for each in found], axis=0).argmax())
    return {
        "config": f"{name}.toml",
        "as_gin": [each["curve"][best] for each in found],
        "honest": [each["honest"] for each in found],
        "evaluation": best,
        "seconds": sum(each["seconds"] for each in found),
    }


def one_fold(name: str, data: Path, config: gtjax.TrainConfig, fold: int) -> dict[str, Any]:
    """One fold: accuracy at the epoch chosen on another fold, and the curve on its own."""
    started = time.monotonic()
    graph = gtjax.load(data / f"{name}.npz", split=fold)
    assert graph.graphs is not None
    many, masks = graph.graphs, graph.graphs.split_g
    result, _ = train(graph, config)
    both = {"train": masks["train"] | masks["val"], "val": masks["test"]}
    as_gin = ManyGraphs(many.ids_n, many.labels_g, both)
    _, rows = train(dataclasses.replace(graph, graphs=as_gin), config)
    return {
        "honest": result["test_accuracy"],
        "curve": [row["val_accuracy"] for row in rows if "val_accuracy" in row],
        "seconds": time.monotonic() - started,
    }


def regression(data: Path) -> dict[str, Any]:
    """A real and a made target, beside a linear model on propagated features."""
    config = gtjax.read_config(HERE / "regression.toml")
    found: dict[str, Any] = {"config": "regression.toml"}
    for what, graph in targets(gtjax.load(data / "amazon-photo.npz")).items():
        runs = []
        for seed in range(3):
            result, _ = train(graph, dataclasses.replace(config, seed=seed))
            runs.append({m: result[f"test_{m}"] for m in ("mae", "rmse", "r2")})
            print("regression", what, seed, runs[-1], flush=True)
        found[what] = {"gtjax": runs, "linear": linear(graph)}
        print("regression", what, "linear", found[what]["linear"], flush=True)
    return found


def targets(graph: gtjax.Graph) -> dict[str, gtjax.Graph]:
    """A feature's mean over in-neighbours, which the features left do not hold; and a made one."""
    x_nf = graph.x_nf.astype(np.float64)
    common = int(x_nf.mean(axis=0).argmax())
    degree_n = np.bincount(graph.receivers_e, minlength=graph.num_nodes)

    def mean(rows_n: np.ndarray) -> np.ndarray:
        total_n = np.bincount(graph.receivers_e, rows_n[graph.senders_e], graph.num_nodes)
        return np.where(degree_n > 0, total_n / np.maximum(degree_n, 1), np.nan)

    rng = np.random.default_rng(0)
    mixed_n = x_nf @ rng.normal(size=x_nf.shape[1]) / 10
    made_n = np.abs(mean(np.nan_to_num(mean(np.maximum(mixed_n, 0)))))
    rest_nf = np.delete(x_nf, common, axis=1).astype(np.float32)
    result = {"real": (rest_nf, mean(x_nf[:, common])), "made": (graph.x_nf, made_n)}
    return {
        what: dataclasses.replace(
            graph,
            x_nf=x,
            labels_n=y,
            split_n={n: m & ~np.isnan(y) for n, m in graph.split_n.items()},
            name=f"amazon-photo, {what} target",
        )
        for what, (x, y) in result.items()
    }


def linear(graph: gtjax.Graph) -> dict[str, float]:
    """Ridge on features propagated 0 to 3 times, the penalty by validation."""
    import scipy.sparse as sp

    edges = graph.symmetrised().with_self_loops()
    ones = np.ones(edges.num_edges)
    adjacency = sp.coo_array((ones, (edges.receivers_e, edges.senders_e))).tocsr()
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=1), 1))
    adjacency = sp.diags_array(scale) @ adjacency @ sp.diags_array(scale)
    rows = [graph.x_nf.astype(np.float64)]
    for _ in range(3):
        rows.append(adjacency @ rows[-1])
    x = np.hstack([*rows, np.ones((graph.num_nodes, 1))])
    y, split = graph.labels_n.astype(np.float64), graph.split_n
    train_x, train_y = x[split["train"]], y[split["train"]]
    mean, gram, right = train_y.mean(), train_x.T @ train_x, train_x.T @ (train_y - train_y.mean())
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for penalty in 10.0 ** np.arange(-4, 5):
        weight = np.linalg.solve(gram + penalty * np.eye(len(gram)), right)
        error = {n: x[split[n]] @ weight + mean - y[split[n]] for n in ("val", "test")}
        variance = y[split["test"]].var()
        scores = {
            "mae": float(np.abs(error["test"]).mean()),
            "rmse": float(np.sqrt(np.square(error["test"]).mean())),
            "r2": float(1 - np.square(error["test"]).mean() / variance),
        }
        best = min(best, (float(np.abs(error["val"]).mean()), scores), key=lambda each: each[0])
    return best[1]


def table(results: dict[str, Any]) -> str:
    """The results as in the README."""
    lines = ["| task | what | gtjax | beside it |", "|---|---|---|---|"]
    if found := results.get("links"):
        peers = ", ".join(
            f"PyG {name} {_mean([run['roc_auc'] for run in found[name]], 100)}"
            for name in ("gcn", "sage")
            if name in found
        )
        ours = _mean([run["roc_auc"] for run in found["gtjax"]], 100)
        lines.append(f"| links | cora, ROC-AUC, 5 seeds | {ours} | {peers} |")
    for name, published in PUBLISHED.items():
        if found := results.get(name):
            gin, honest = (_mean(found[rule], 100) for rule in ("as_gin", "honest"))
            lines.append(
                f"| graphs | {name}, accuracy, 10 folds | {gin} by GIN's rule, {honest} honestly | "
                f"GIN {published} by its rule |"
            )
    if found := results.get("regression"):
        for what in ("real", "made"):
            ours = _mean([run["r2"] for run in found[what]["gtjax"]])
            mae = _mean([run["mae"] for run in found[what]["gtjax"]])
            other = found[what]["linear"]
            lines.append(
                f"| regression | amazon-photo, {what} target | R2 {ours}, MAE {mae} | linear on "
                f"propagated features: R2 {other['r2']:.3f}, MAE {other['mae']:.3f} |"
            )
    return "\n".join(lines)


def _mean(values: list[float], scale: float = 1.0) -> str:
    digits = 1 if scale > 1 else 3
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return f"{scale * mean:.{digits}f} ± {scale * deviation:.{digits}f}"


def main() -> None:
    """Run what is asked for, and store each as soon as it is there."""
    parser = argparse.ArgumentParser(description="Tasks other than classification of nodes.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the real graphs")
    known = ("links", "regression", *PUBLISHED)
    parser.add_argument("--only", nargs="+", default=list(known), choices=[*known, "graphs"])
    folds = user_cache() / "experiments" / "tasks"
    parser.add_argument("--folds", type=Path, default=folds, help="where finished folds are kept")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    only = [*arguments.only, *(PUBLISHED if "graphs" in arguments.only else ())]
    for what in [each for each in only if each != "graphs"]:
        if what in PUBLISHED:
            results[what] = graphs(what, arguments.data, arguments.folds)
        else:
            results[what] = {"links": links, "regression": regression}[what](arguments.data)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
