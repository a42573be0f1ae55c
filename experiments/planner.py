"""Is the planner right? Bytes, memory, time and choice against compiled and running steps.

    python experiments/planner.py [--data FOLDER] [--unseen] [--cases 0 1 ...] [--rounds 5]
    python experiments/planner.py [--unseen] --again

A case is a graph, a model and a number of simulated devices in one process. Every strategy on every
mesh, with METIS and with contiguous parts, is compiled, and its bytes and memory are read; then all
of them take turns, one step each, and the median of the rounds is what is measured. The planner is
asked for the same, and *regret* is the time of its choice over that of the best. Devices share two
cores, so times test the planner and are not speeds of anything. With `--unseen` the models are
GAT, GCN and one that is defined here: no constant of the planner was ever fitted to them.

`experiments/planner_links.py` does it over real links. Results and pictures are in
`experiments/planner/`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import gtjax
from gtjax.batching.prepare import message_edges, place_batch, prepare, whole_layout
from gtjax.hardware.measure import measured_profile
from gtjax.nn.config import StackConfig
from gtjax.nn.models import register_model
from gtjax.nn.stack import Stack
from gtjax.planner import Candidate, GraphCuts, Plan, price
from gtjax.runs.planning import locality_of, with_option, works_of
from gtjax.runs.program import Program
from gtjax.runs.step_cost import peak_bytes
from gtjax.sharding.collectives import bytes_received

HERE = Path(__file__).parent / "planner"
DEVICES = (2, 4, 8)
SEED = 0


class Case(NamedTuple):
    """A graph and a model."""

    graph: str
    kind: str
    hidden: int
    heads: int
    layers: int = 2
    name: str = "transformer"

    @property
    def model(self) -> Any:
        """Its model; dropout as in training."""
        sizes = {"hidden": self.hidden, "layers": self.layers, "dropout": 0.3}
        if self.name == "transformer":
            return gtjax.TransformerConfig(**sizes, heads=self.heads, remat="elementwise")
        if self.name == "gat":
            return gtjax.GATConfig(**sizes, heads=self.heads)
        return {"gcn": gtjax.GCNConfig, "gated": GatedConfig}[self.name](**sizes)

    @property
    def key(self) -> list[Any]:
        """The model, as it is stored."""
        sizes = [self.layers, self.hidden, self.heads]
        return sizes if self.name == "transformer" else [self.name, *sizes]


@dataclass(frozen=True)
class GatedConfig(StackConfig):
    """Of `Gated`."""


class GatedConv(nnx.Module):
    """Neighbours let through by a gate of both ends, beside their maximum."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(inputs, outputs, rngs=rngs)
        self.gate = nnx.Param(jnp.zeros(outputs))

    def __call__(self, x_nf: jax.Array, neighbours: Any) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""

        def message(receiver_f: Any, sender_f: Any, edge_f: Any, gate_f: Any) -> Any:
            return jax.nn.sigmoid(receiver_f + sender_f + gate_f) * sender_f

        y_nf = self.linear(x_nf)
        summed_nf = neighbours.aggregate(
            message, receiver=y_nf, sender=y_nf, shared=self.gate[...], splits="channels"
        )
        return summed_nf + neighbours.max(y_nf)


class Gated(nnx.Module):
    """A model that gtjax does not have."""

    Config = GatedConfig

    def __init__(self, config: GatedConfig, sizes: Any, *, rngs: nnx.Rngs):
        self.stack = Stack(config, sizes, lambda i, o: GatedConv(i, o, rngs=rngs), rngs=rngs)

    def __call__(self, inputs: Any, neighbours: Any) -> jax.Array:
        """Embeddings of all nodes."""
        return self.stack(inputs, neighbours, lambda conv, x_nf, near: conv(x_nf, near))


UNSEEN = (
    Case("synthetic-citation:nodes=40e3", "well cut", 64, 8, 2, "gat"),
    Case("grid:rows=200,columns=200", "well cut", 64, 1, 2, "gcn"),
    Case("uniform:nodes=30e3,edges=400e3", "badly cut", 64, 1, 2, "gated"),
    Case("rmat:nodes=30e3,edges=400e3", "power law", 128, 8, 2, "gat"),
    Case("rmat:nodes=8e3,edges=1e6", "dense", 128, 1, 3, "gcn"),
    Case("amazon-computers", "real", 64, 1, 2, "gated"),
)

CASES = (
    Case("synthetic-citation:nodes=40e3", "well cut", 32, 8),
    Case("synthetic-citation:nodes=40e3", "well cut", 128, 8),
    Case("grid:rows=200,columns=200", "well cut", 64, 8),
    Case("uniform:nodes=30e3,edges=400e3", "badly cut", 32, 8),
    Case("uniform:nodes=30e3,edges=400e3", "badly cut", 128, 8),
    Case("rmat:nodes=30e3,edges=400e3", "power law", 64, 8),
    Case("rmat:nodes=8e3,edges=1e6", "dense", 64, 8),
    Case("amazon-computers", "real", 64, 8, 3),
)


def load(case: Case, data: Path | None) -> Any:
    """The graph, or None where a real one is not there."""
    if ":" in case.graph:
        return gtjax.load(case.graph)
    path = None if data is None else data / f"{case.graph}.npz"
    return gtjax.load(path) if path is not None and path.exists() else None


class Running:
    """One candidate, compiled and ready to take steps."""

    def __init__(self, graph: Any, config: gtjax.TrainConfig, candidate: Candidate):
        config = with_option(config, candidate.option)
        self.candidate = candidate
        self.program = Program(config, graph, config.task_of(graph))
        host = prepare(graph, self.program.settings)
        spread = self.program.spread
        assert candidate.parts is not None
        layout, _ = whole_layout(
            host, self.program.settings, spread, partition=candidate.parts.partition
        )
        self.batch = place_batch(host, layout, spread)
        self.state = self.program.initial_state()
        self.step = self.program.compiled(self.state, self.batch, 1)
        self.times: list[float] = []

    def run(self) -> None:
        """One step, timed."""
        started = time.perf_counter()
        self.state, losses = self.step(self.state, self.batch, np.int32(1))
        losses.block_until_ready()
        self.times.append(time.perf_counter() - started)


def settings_of(case: Case, devices: int) -> tuple[gtjax.TrainConfig, Any]:
    """The config of a case, and the hardware, which is measured once."""
    parallel = gtjax.ParallelConfig(devices=devices)
    config = gtjax.TrainConfig(model=case.model, parallel=parallel, seed=SEED)
    return config, measured_profile(jax.devices()[:devices])


def measure(case: Case, graph: Any, devices: int, rounds: int) -> dict[str, Any]:
    """Everything of one case."""
    config, hardware = settings_of(case, devices)
    started = time.perf_counter()
    plan = gtjax.plan(graph, config=config, hardware=hardware)
    seconds = time.perf_counter() - started
    running = [Running(graph, config, each) for each in plan.candidates if is_timed(each, plan)]
    for number in range(rounds + 1):
        for each in running:
            each.run()
            if number == 0:  # the first run of a program is not like the others
                each.times.clear()
    predictor = Predictor(graph, config, hardware)
    rows = [_row(each, predictor, devices) for each in running]
    assert plan.chosen is not None
    return {
        "graph": case.graph,
        "kind": case.kind,
        "model": case.key,
        "devices": devices,
        "plan_seconds": seconds,
        "why": plan.flip,
        **_outcome(name_of(plan.chosen), rows),
    }


def is_timed(each: Candidate, plan: Plan) -> bool:
    """All that may be fastest; of the slower inner strategies and orders not every combination."""
    option = each.option
    if each.price is None or each is plan.chosen:
        return each.price is not None
    if option.inner == "node_ring":
        return False
    return option.partitioner == "metis" or option.strategy.name in ("node_all_gather", "node_halo")


def name_of(each: Candidate) -> str:
    """A candidate, as tables show it."""
    option = each.option
    return f"{option.name} {option.mesh.node}x{option.mesh.feature} {option.partitioner}"


class Predictor:
    """Prices of a case, for the very partitions that ran."""

    def __init__(self, graph: Any, config: gtjax.TrainConfig, hardware: Any):
        prepared = message_edges(graph, config.prepare, config.model.hidden)
        self._works = works_of(config, graph, hardware.platform)
        self._hardware = hardware
        self._locality = locality_of(prepared)
        self._cuts = GraphCuts(prepared.edges, SEED)

    def __call__(self, option: Any) -> dict[str, Any]:
        """Predicted bytes, memory and time."""
        cut = self._cuts.exact(option.partitioner, option.mesh.node).cut
        settings = (self._works[option.remat], option.mesh, self._hardware, self._locality)
        predicted = price(option.strategy, cut, *settings)
        return {
            "predicted_bytes": predicted.moved_bytes,
            "predicted_peak_bytes": predicted.peak_bytes,
            "predicted_seconds": predicted.seconds,
            "split": predicted.to_json(),
        }


def _row(each: Running, predictor: Predictor, devices: int) -> dict[str, Any]:
    """Prediction beside what was compiled and measured."""
    received = bytes_received(each.step.as_text(), devices)
    return {
        "name": name_of(each.candidate),
        "received_bytes": sum(received.values()),
        "peak_bytes": peak_bytes(each.step),
        "measured_seconds": statistics.median(each.times),
        **predictor(each.candidate.option),
    }


def predict_again(found: dict[str, Any], data: Path | None) -> dict[str, Any] | None:
    """A stored case with new predictions and choice beside its old measurements.

    None if the choice was not among those that were timed.
    """
    known = (found["graph"], found["model"])
    (case,) = [each for each in CASES + UNSEEN if (each.graph, each.key) == known]
    graph, devices = load(case, data), found["devices"]
    config, hardware = settings_of(case, devices)
    plan = gtjax.plan(graph, config=config, hardware=hardware)
    predictor = Predictor(graph, config, hardware)
    options = {name_of(each): each.option for each in plan.candidates}
    rows = [{**row, **predictor(options[row["name"]])} for row in found["rows"]]
    assert plan.chosen is not None
    name = name_of(plan.chosen)
    if name not in {row["name"] for row in rows}:
        return None
    return found | _outcome(name, rows) | {"why": plan.flip}


def _outcome(chosen: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    best = min(rows, key=lambda row: row["measured_seconds"])
    (taken,) = [row for row in rows if row["name"] == chosen]
    regret = taken["measured_seconds"] / best["measured_seconds"]
    return {"chosen": chosen, "best": best["name"], "regret": regret, "rows": rows}


def main() -> None:
    """Run the cases that are asked for, and store each as soon as it is there."""
    parser = argparse.ArgumentParser(description="Is the planner right?")
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--unseen", action="store_true", help="models it was never fitted to")
    parser.add_argument("--cases", type=int, nargs="+", help="their numbers; by default all")
    parser.add_argument("--devices", type=int, nargs="+", default=list(DEVICES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--again", action="store_true", help="predict anew what was measured")
    arguments = parser.parse_args()
    cases = UNSEEN if arguments.unseen else CASES
    path = arguments.out / ("unseen.json" if arguments.unseen else "results.json")
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cases": []}
    if arguments.again:
        jax.config.update("jax_num_cpu_devices", max(DEVICES))
        again = [predict_again(case, arguments.data) for case in results["cases"]]
        results["cases"] = [new or old for new, old in zip(again, results["cases"], strict=True)]
        print(f"{again.count(None)} choices were not timed: those cases keep their old predictions")
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    else:
        jax.config.update("jax_num_cpu_devices", max(DEVICES))
        arguments.out.mkdir(exist_ok=True, parents=True)
        register_model("gated", Gated)
        for case in [cases[n] for n in arguments.cases or range(len(cases))]:
            graph = load(case, arguments.data)
            if graph is None:
                print(f"{case.graph} is absent", flush=True)
                continue
            for devices in arguments.devices:
                found = measure(case, graph, devices, arguments.rounds)
                key = (found["graph"], found["model"], devices)
                results["cases"] = [
                    c for c in results["cases"] if (c["graph"], c["model"], c["devices"]) != key
                ] + [found]
                print(summary(found), flush=True)
                results |= known()
                path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results, arguments.out / ("unseen.svg" if arguments.unseen else "planner.svg"))
    print(table(results))


def known() -> dict[str, Any]:
    """Where and with what it was measured."""
    return {
        "command": "python experiments/planner.py --data FOLDER",
        "device": f"simulated devices on {platform.machine()}, 2 cores",
        "versions": {
            package: importlib.metadata.version(package) for package in ("gtjax", "jax", "numpy")
        },
    }


def summary(case: dict[str, Any]) -> str:
    """One case, on some lines."""
    lines = [
        f"{case['graph']} {case['model']} P={case['devices']}: chose {case['chosen']}, best "
        f"{case['best']}, regret {case['regret']:.3f}, planned in {case['plan_seconds']:.1f} s"
    ]
    for row in sorted(case["rows"], key=lambda row: row["measured_seconds"]):
        ratio = [row[f"predicted_{n}"] / row[m] for n, m in _PAIRS]
        split = row["split"]
        lines.append(
            f"  {row['name']:42} {row['measured_seconds']:.3f} s; predicted/actual time "
            f"{ratio[0]:.2f}, bytes {ratio[1]:.3f}, peak {ratio[2]:.2f}  "
            f"d{split['dense']:.3f} o{split['ops']:.3f} c{split['communication']:.3f} "
            f"m{split['memory']:.3f}"
        )
    return "\n".join(lines)


_PAIRS = (
    ("seconds", "measured_seconds"),
    ("bytes", "received_bytes"),
    ("peak_bytes", "peak_bytes"),
)


def figures(results: dict[str, Any]) -> dict[str, float]:
    """What is claimed of all cases together."""
    from scipy.stats import spearmanr

    rows = [row for case in results["cases"] for row in case["rows"]]
    bytes_ = np.array([row["predicted_bytes"] / row["received_bytes"] for row in rows])
    peaks = np.array([row["predicted_peak_bytes"] / row["peak_bytes"] for row in rows])
    timed = [row for case in results["cases"] if case["devices"] < 8 for row in case["rows"]]
    predicted = np.array([row["predicted_seconds"] for row in timed])
    measured = np.array([row["measured_seconds"] for row in timed])
    regrets = np.array([case["regret"] for case in results["cases"]])
    return {
        "steps": len(rows),
        "bytes_median": float(np.median(np.abs(bytes_ - 1))),
        "bytes_worst": float(np.abs(bytes_ - 1).max()),
        "peak_median": float(np.median(np.abs(peaks - 1))),
        "peak_lowest": float(peaks.min()),
        "peak_highest": float(peaks.max()),
        "timed": len(timed),
        "time_median": float(np.median(np.abs(predicted / measured - 1))),
        "rank": float(np.asarray(spearmanr(predicted, measured))[0]),
        "cases": len(regrets),
        "regret_mean": float(regrets.mean()),
        "regret_worst": float(regrets.max()),
    }


def table(results: dict[str, Any]) -> str:
    """The results as in the README."""
    if not results["cases"]:
        return "no results"
    f = figures(results)
    lines = [
        "| what | measured |",
        "|---|---|",
        f"| bytes predicted against compiled, {f['steps']} steps | median error "
        f"{100 * f['bytes_median']:.1f} %, worst {100 * f['bytes_worst']:.1f} % |",
        f"| peak memory predicted against compiled, {f['steps']} steps | median error "
        f"{100 * f['peak_median']:.0f} %, from {f['peak_lowest']:.2f} to {f['peak_highest']:.2f} "
        f"times |",
        f"| step time predicted against measured, {f['timed']} steps on 2 and 4 devices | median "
        f"error {100 * f['time_median']:.0f} %, rank correlation {f['rank']:.2f} |",
        f"| regret over {f['cases']} cases | mean {f['regret_mean']:.3f}, worst "
        f"{f['regret_worst']:.2f} |",
        "",
        "| graph | layers, hidden, heads | devices | chosen | fastest measured | regret |",
        "|---|---|---|---|---|---|",
    ]
    for case in results["cases"]:
        model = ", ".join(map(str, case["model"]))
        lines.append(
            f"| {case['graph']} ({case['kind']}) | {model} | {case['devices']} | {case['chosen']} "
            f"| {case['best']} | {case['regret']:.2f} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Predicted over measured: step time, and memory; a point for every step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    pairs = (
        ("measured_seconds", "predicted_seconds", 1.0, "seconds a step"),
        ("peak_bytes", "predicted_peak_bytes", 1e6, "peak MB a device"),
    )
    for axes, (measured, predicted, unit, name) in zip(figure.subplots(1, 2), pairs, strict=True):
        for devices in DEVICES:
            rows = [r for c in results["cases"] if c["devices"] == devices for r in c["rows"]]
            x, y = ([row[key] / unit for row in rows] for key in (measured, predicted))
            axes.plot(x, y, ".", ms=5, alpha=0.7, label=f"{devices} devices")
        ends = np.array(axes.get_xlim())
        axes.plot(ends.clip(1e-9), ends.clip(1e-9), "k:", lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"{name}, actual", ylabel=f"{name}, predicted")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
