"""Faults on the way to an S3 server, at random requests of saving, loading and resuming.

    pip install "gtjax[s3]" "moto[server]"
    python experiments/object_store.py [--cases 200] [--operations save load resume] [--seed 0]

A real S3 server (moto's) runs on the loopback address; a proxy before it does something wrong
(`stores/faults.py`) at one request, at three in a row, or from one on for good. Every case begins
with an empty cache, as on another machine, and what it left is looked at without faults:

- save: one more checkpoint of a run. What was reported as durable is there, bit for bit.
- load: the newest checkpoint, metrics and a graph. They are right, or the user is told.
- resume: training goes on from step 2 to 6 by `resume`; if it is killed or gives up, it is resumed
  once more without faults. Losses and weights at the end are those of a run that nothing was done
  to, bit for bit.

Tries are 8 as always, but 0.05 s apart instead of up to 20. Results: `object_store/results.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from stores.faults import FOREVER, KINDS, Fault, FaultyProxy
from stores.server import BUCKET, CREDENTIALS, s3_server
from stores.worker import Worker

HERE = Path(__file__).parent / "object_store"
SHARES = {"save": 0.5, "load": 0.38, "resume": 0.12}
GRAPH, SAVED = f"s3://{BUCKET}/graph", f"s3://{BUCKET}/saved"
BEGUN, TRAINED = f"s3://{BUCKET}/begun", f"s3://{BUCKET}/trained"


class Cases:
    """A worker behind the proxy, and one that nothing is done to."""

    def __init__(self, port: int, seed: int):
        self.random = random.Random(seed)
        self.proxy = FaultyProxy(port)
        self.disturbed, self.direct = Worker(self.proxy.port), Worker(port)
        self.usual: dict[str, dict[str, int]] = {}  # requests of each operation, by kind of fault
        self.saved = 3  # steps of the run that is saved to

    def disturb(self, fault: Fault, work: str, *args: Any) -> dict[str, Any]:
        """Do something with a fault."""
        fault.pid = self.disturbed.pid
        self.proxy.arm(fault)
        found = self.disturbed.do(work, *args)
        self.seen = self.proxy.seen
        self.proxy.arm(None)
        return found

    def count(self, operation: str, work: str, *args: Any) -> None:
        """Do it without a fault, and remember how many requests it makes."""
        self.disturb(Fault("slow", FOREVER, 1), work, *args)
        self.usual[operation] = self.seen

    def draw(self, operation: str, kind: str) -> Fault:
        """A moment in the operation, by the requests that it usually makes."""
        count = self.random.choice((1, 1, 3, FOREVER))
        if kind == "stall":
            count = min(count, 3)  # which takes long enough
        if operation == "resume" and kind.startswith("flip"):
            count = min(count, 3)  # what reads wrong for good is damaged, and passed over
        return Fault(kind, self.random.randrange(self.usual[operation][kind]), count)


def main() -> None:
    """Do all cases, store and print what came of them."""
    parser = argparse.ArgumentParser(description="Faults on the way to an S3 server.")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--operations", nargs="+", choices=list(SHARES), default=list(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    os.environ |= CREDENTIALS
    path = arguments.out / "results.json"
    done: list[dict[str, Any]] = []
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))["cases"]
        done = [case for case in stored if case["operation"] not in arguments.operations]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with s3_server() as port:
        cases = Cases(port, arguments.seed)
        wanted = prepare(cases)
        for operation in arguments.operations:
            kinds = [kind for kind in KINDS if kind in cases.usual[operation]]  # it can meet
            for number in range(round(SHARES[operation] * arguments.cases)):
                fault = cases.draw(operation, kinds[number % len(kinds)])
                done.append(OPERATIONS[operation](cases, number, fault, wanted))
                print(json.dumps(done[-1]), flush=True)
                path.write_text(json.dumps(summary(done), indent=1) + "\n", encoding="utf-8")
    results = summary(done)
    print(table(results))
    if not results["held"]:
        sys.exit(1)


def prepare(cases: Cases) -> dict[str, Any]:
    """A graph, an undisturbed run, and the requests that every operation makes."""
    wanted = {"graph": cases.direct.do("convert", "rmat:nodes=500,edges=4e3", GRAPH)["graph"]}
    cases.direct.do("create", SAVED)
    cases.direct.do("save", SAVED, [2])
    cases.count("save", "save", SAVED, [3])
    cases.count("load", "load", SAVED, GRAPH)
    cases.direct.do("train", BEGUN, 2)
    cases.direct.do("copy", BEGUN, TRAINED)
    cases.count("resume", "train", TRAINED, 6)
    return wanted | {"run": cases.direct.do("losses", TRAINED)}


def save(cases: Cases, number: int, fault: Fault, wanted: dict[str, Any]) -> dict[str, Any]:
    """One more checkpoint."""
    before, new = cases.saved, cases.saved + 1
    said = cases.disturb(fault, "save", SAVED, [new])
    found = cases.direct.do("load", SAVED, "")
    step = found.get("step", 0)
    cases.saved = step or before
    # Metrics come with their checkpoint, and may be a step ahead of it.
    metrics = found.get("metrics", [])[:step] == list(range(1, step + 1))
    lost = step < max(before, said["durable"] or 0) or bool(found.get("damaged"))
    return _case("save", fault, said, wrong=not (found.get("same") and metrics), lost=lost)


def load(cases: Cases, number: int, fault: Fault, wanted: dict[str, Any]) -> dict[str, Any]:
    """The newest checkpoint, metrics and a graph."""
    said = cases.disturb(fault, "load", SAVED, GRAPH)
    right = "step" not in said or (
        said["same"]
        and said["graph"] == wanted["graph"]
        and said["metrics"][: cases.saved] == list(range(1, cases.saved + 1))
        and (said["step"] == cases.saved or bool(said["damaged"]))
    )
    return _case("load", fault, said, wrong=not right, lost=False)


def resume(cases: Cases, number: int, fault: Fault, wanted: dict[str, Any]) -> dict[str, Any]:
    """Training from step 2 to 6, once more if it did not end."""
    address = f"s3://{BUCKET}/resume-{number}"
    cases.direct.do("copy", BEGUN, address)
    said = cases.disturb(fault, "train", address, 6)
    found = cases.direct.do("losses", address)
    lost = found.get("step", 0) < max(2, said["durable"] or 0)
    if not said.get("finished"):
        cases.direct.do("train", address, 6)
        found = cases.direct.do("losses", address)
    same = all(found.get(name) == wanted["run"][name] for name in ("rows", "arrays"))
    return _case("resume", fault, said, wrong=not same, lost=lost)


OPERATIONS = {"save": save, "load": load, "resume": resume}


def _case(
    operation: str, fault: Fault, said: dict[str, Any], *, wrong: bool, lost: bool
) -> dict[str, Any]:
    outcome = "right"
    if fault.kind.startswith("kill") and not said["ended"]:
        outcome = "killed"
    elif "told" in said:
        outcome = "told"
    elif said.get("damaged"):
        outcome = "older, told"
    elif "broken" in said or not said["ended"]:
        outcome = "broken"
    return {
        "operation": operation,
        "fault": fault.kind,
        "request": fault.first,
        "times": "for good" if fault.count == FOREVER else fault.count,
        "struck": fault.done,
        "outcome": outcome,
        "said": said.get("told") or said.get("broken"),
        "wrong": bool(wrong),
        "lost": bool(lost),
    }


def summary(done: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all cases in which the fault was met."""
    met = [case for case in done if case["struck"]]
    rows = {
        kind: dict(Counter(case["outcome"] for case in met if case["fault"] == kind))
        for kind in KINDS
    }
    counts = {name: sum(case[name] for case in done) for name in ("wrong", "lost")}
    broken = sum(case["outcome"] == "broken" for case in done)
    operations = dict(Counter(case["operation"] for case in met))
    held = not counts["wrong"] and not counts["lost"] and not broken
    return {
        "injected": len(met),
        "operations": operations,
        **counts,
        "broken": broken,
        "held": held,
        "kinds": rows,
        "versions": {
            name: importlib.metadata.version(name) for name in ("gtjax", "jax", "s3fs", "moto")
        },
        "cases": done,
    }


def table(results: dict[str, Any]) -> str:
    """By kind of fault, for the README."""
    outcomes = ("right", "told", "older, told", "killed", "broken")
    lines = [f"| fault | {' | '.join(outcomes)} |", f"|---|{'---|' * len(outcomes)}"]
    for kind, counts in results["kinds"].items():
        lines.append(f"| {kind} | {' | '.join(str(counts.get(each, 0)) for each in outcomes)} |")
    lines.append(
        f"\n{results['injected']} faults: {results['wrong']} silently wrong, {results['lost']} "
        f"durable checkpoints lost, {results['broken']} broken"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
