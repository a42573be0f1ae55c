"""Settings of graph classification, chosen by validation alone: what is tested is not even there.

    python experiments/choose_graphs.py --data FOLDER [--only tu-nci1]

Trains each candidate below on the first folds of a data set, with the split of the test graphs
taken away, and compares the highest points of the mean validation curves. The winner's settings are
in `experiments/tasks/NAME.toml`, which a test holds in place; results are in
`experiments/tasks/choices.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from tasks import HERE, train

import gtjax
from gtjax.graph import ManyGraphs

CHOICES = HERE / "choices.json"
FOLDS = {"tu-nci1": 2, "tu-proteins": 4}
FIRST, DECAYED = (
    {"learning_rate": 0.01, "weight_decay": 0.0},
    {"learning_rate": 0.003, "weight_decay": 0.01},
)
# What differs from the settings of the toml, which has all others.
CANDIDATES: dict[str, dict[str, dict[str, Any]]] = {
    "tu-nci1": {
        f"{pool}, {hidden}": {
            "model": {"hidden": hidden},
            "asked": {"pool": pool},
            "steps": steps,
            "eval_every": 100,
        }
        for pool, hidden, steps in (("mean", 64, 3000), ("sum", 64, 3000), ("mean", 128, 2000))
    },
    "tu-proteins": {
        label: {"model": {"hidden": hidden}, "asked": {"pool": pool}, "optim": optim}
        for label, pool, hidden, optim in (
            ("sum", "sum", 32, FIRST),
            ("mean", "mean", 32, FIRST),
            ("mean, 64, decayed", "mean", 64, DECAYED),
            ("sum, 16, decayed", "sum", 16, DECAYED),
        )
    },
}


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """The config with these settings, section by section."""
    new = {
        name: changed(getattr(config, name), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **new)


def curve(name: str, data: Path, fold: int, config: gtjax.TrainConfig) -> list[float]:
    """Validation accuracy of one fold along a run that has no test graphs."""
    graph = gtjax.load(data / f"{name}.npz", split=fold)
    assert graph.graphs is not None
    many, masks = graph.graphs, graph.graphs.split_g
    seen = {split: masks[split] for split in ("train", "val")}
    graph = dataclasses.replace(graph, graphs=ManyGraphs(many.ids_n, many.labels_g, seen))
    _, rows = train(graph, config)
    return [row["val_accuracy"] for row in rows if "val_accuracy" in row]


def choose(name: str, data: Path) -> dict[str, Any]:
    """Validation accuracy of every candidate, and the name of the best."""
    base, found = gtjax.read_config(HERE / f"{name}.toml"), {}
    for label, changes in CANDIDATES[name].items():
        config, started = changed(base, changes), time.monotonic()
        curves = [curve(name, data, fold, config) for fold in range(FOLDS[name])]
        best = float(np.mean(curves, axis=0).max())
        seconds = time.monotonic() - started
        found[label] = {"val_accuracy": best, "seconds": seconds, "changes": changes}
        print(f"{name}: {label}: {100 * best:.1f}, {seconds:.0f} s", flush=True)
    chosen = max(found, key=lambda label: found[label]["val_accuracy"])
    return {"folds": FOLDS[name], "candidates": found, "chosen": chosen}


def main() -> None:
    """Choose for what is asked."""
    parser = argparse.ArgumentParser(description="Settings of graph classification.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the graphs")
    names = list(CANDIDATES)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    arguments = parser.parse_args()
    choices = json.loads(CHOICES.read_text(encoding="utf-8")) if CHOICES.exists() else {}
    for name in arguments.only:
        choices[name] = choose(name, arguments.data)
        CHOICES.write_text(json.dumps(choices, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
