"""What happens to real runs, done to real processes: killed, stopped, stuck, preempted, disk full.

    python experiments/chaos.py [--rows disturb stuck ...] [--data FOLDER] [--short] [--seed 0]
    python experiments/chaos.py --table

Every row starts runs of gtjax as a user would, as processes over gloo on the loopback address, does
something to them, and compares what is left with a run that nothing was done to. `--short` does
everything once or twice, in some minutes. Rows that fill a disk or make it read-only mount a small
file system and need root. Results are in `experiments/chaos/results.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gtjax.distributed.supervisor import ENTRY, free_port
from gtjax.training.checkpoint_files import read_manifest, steps_in

HERE = Path(__file__).parent / "chaos"
# Small, since every process compiles it; steps take a tenth of a second on two cores.
MODEL = ("--model.layers", "1", "--model.hidden", "16", "--model.heads", "4")
DATA = ("--data", "rmat:nodes=1000,edges=10e3")
INTERVAL = 4  # steps between checkpoints
STEPS = 20
STRATEGIES = (
    ("node_all_gather", ()),
    ("node_halo", ()),
    ("node_ring", ()),
    ("feature_all_to_all", ()),
    ("node_by_feature", ()),
    ("isolated", ("--repartition", "5")),
)
STUCK = """
import sys, time
import gtjax.training.turns as turns
take = turns.Turns._take
def stuck(self, snapshot, turn, update):
    if int(snapshot.state.step) >= {step}:
        print("STUCK", flush=True, file=sys.stderr)
        while True:
            time.sleep(1)
    return take(self, snapshot, turn, update)
turns.Turns._take = stuck
from gtjax.cli.main import main
sys.exit(main())
"""


def main() -> None:
    """Do the rows that are asked for, store and print them."""
    parser = argparse.ArgumentParser(description="What happens to real runs.")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--data", type=Path, help="folder with ogbn-arxiv, for overhead and speed")
    parser.add_argument("--short", action="store_true", help="everything once or twice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--table", action="store_true", help="print the stored results")
    arguments = parser.parse_args()
    path = arguments.out / "results.json"
    results: dict[str, Any] = {"rows": {}}
    if path.exists() and not (arguments.short and not arguments.table):
        results = json.loads(path.read_text(encoding="utf-8"))
    if arguments.table:
        print(table(results))
        return
    chaos = Chaos(arguments.short, arguments.data)
    for name in arguments.rows:
        chaos.random.seed(f"{arguments.seed} {name}")
        started = time.monotonic()
        found = ROWS[name](chaos)
        if found is None:
            continue
        found |= {"seconds": round(time.monotonic() - started), "seed": arguments.seed}
        found |= {"command": f"python experiments/chaos.py --rows {name} --seed {arguments.seed}"}
        found |= {"versions": versions(), "cores": os.cpu_count()}
        results["rows"][name] = found
        print(f"{name}: {json.dumps({k: v for k, v in found.items() if k != 'cases'})}", flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    if any(not row["held"] for row in results["rows"].values()):
        sys.exit(1)


class Chaos:
    """Runs in a folder of their own, and what they are compared with."""

    def __init__(self, short: bool, data: Path | None):
        self.short, self.data = short, data
        self.processes = 2 if short else 4
        self.random = random.Random()
        self.folder = Path(tempfile.mkdtemp(prefix="gtjax-chaos-"))

    def times(self, long: int, short: int) -> int:
        """How often to do something."""
        return short if self.short else long

    @contextlib.contextmanager
    def new_folder(self) -> Iterator[Path]:
        """For one run."""
        path = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


# --- processes --------------------------------------------------------------------------------


def train_options(out: Path, *more: str) -> tuple[str, ...]:
    """A small run with a checkpoint every few steps."""
    every = ("--checkpoint-steps", str(INTERVAL), "--eval-every", "100", "--steps", str(STEPS))
    how = () if "--strategy" in more else ("--strategy", "node_halo")
    return ("train", *DATA, *MODEL, *every, "--out", str(out), *how, *more)


def start(*command: str, log: Path, code: str | None = None) -> subprocess.Popen:
    """A command of gtjax in the background, what it says in a file."""
    entry = ENTRY if code is None else (sys.executable, "-c", code)
    with log.open("ab") as file:
        return subprocess.Popen([*entry, *command], stdout=file, stderr=file)


def launch(processes: int, *command: str, log: Path) -> subprocess.Popen:
    """Under the supervisor."""
    return start(
        "launch", "--processes", str(processes), "--restarts", "9", "--", *command, log=log
    )


def done(process: subprocess.Popen, seconds: float = 300.0) -> int:
    """The exit code."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -999


def workers_of(pid: int) -> list[int]:
    """The processes that a supervisor has started, in their order."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def last_step(run: Path) -> int:
    """Of metrics.jsonl, whose last line may be half written."""
    path = run / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    steps = re.findall(r'^\{"step": (\d+).*\}$', text, re.MULTILINE)
    return int(steps[-1]) if steps else 0


def final_hash(run: Path) -> list[str]:
    """Of every array of the newest checkpoint."""
    folder = run / "checkpoints"
    manifest = read_manifest(folder, steps_in(folder)[0])
    return [str(manifest["step"]), *(each["hash"] for each in manifest["arrays"])]


def result(run: Path) -> dict[str, Any]:
    """What the run left."""
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


def apart(found: list[float], wanted: list[float]) -> float:
    """The largest relative difference."""
    if len(found) != len(wanted):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(found, wanted, strict=True))


# --- rows -------------------------------------------------------------------------------------


def losses(chaos: Chaos) -> dict[str, Any]:
    """Every strategy on 2 and 4 processes gives the losses of one process."""
    cases = []
    with chaos.new_folder() as folder:
        for strategy, options in STRATEGIES[1:2] if chaos.short else STRATEGIES:
            for count in (2,) if chaos.short else (2, 4):
                name = f"{strategy}-{count}"
                how = ("--strategy", strategy, *options, "--devices", str(count), "--steps", "20")
                one, many = folder / f"{name}-one", folder / f"{name}-many"
                log = folder / f"{name}.log"
                # One device, or for isolated, whose losses are those of parts, as many simulated.
                alone = how if strategy == "isolated" else ("--steps", "20", "--strategy", "single")
                one = one if strategy == "isolated" else folder / "single"
                if not one.exists():
                    done(start(*train_options(one, *alone), log=log))
                code = done(launch(count, *train_options(many, *how), log=log))
                off = apart(result(many)["losses"], result(one)["losses"]) if code == 0 else None
                case = {"strategy": strategy, "processes": count, "apart": off}
                print(case, flush=True)
                cases.append(case)
    worst = max((c["apart"] if c["apart"] is not None else float("inf")) for c in cases)
    return {"cases": cases, "worst": worst, "held": worst <= 2e-5}


def disturbed(chaos: Chaos) -> dict[str, Any]:
    """One run, disturbed again and again: SIGTERM to a process, then kill -9 of one, and so on.

    Preempted, all processes save at the same step and end, and the run is resumed from there. When
    one is killed, the supervisor starts all of them again. At the end nothing is done to the run
    any more, and it has to end as one that was never disturbed.
    """
    cases: list[dict[str, Any]] = []
    options = ("--steps", str(chaos.times(600, 200)))
    with chaos.new_folder() as folder:
        whole, run, log = (folder / name for name in ("whole", "run", "run.log"))
        code = done(launch(chaos.processes, *train_options(whole, *options), log=log), 1200)
        assert code == 0, log.read_text()
        log.unlink()
        process = launch(chaos.processes, *train_options(run, *options), log=log)
        with _until_interrupted():
            while len(cases) < 2 * chaos.times(50, 1) and process.poll() is None:
                how = ("SIGTERM", "SIGKILL")[len(cases) % 2]
                if chaos.random.random() < 0.3 and not chaos.short:  # while it starts
                    time.sleep(chaos.random.uniform(0.5, 15.0))
                else:
                    now = last_step(run)
                    _wait_until(lambda n=now, p=process: last_step(run) > n or p.poll() == 0, 120)
                    time.sleep(chaos.random.uniform(0.0, 0.3 if chaos.short else 2.0))
                if process.poll() is not None:
                    break
                victim = chaos.random.randrange(chaos.processes)
                case = {"how": how, "process": victim, "reached": last_step(run)}
                before = len(_resumed_at(log))
                _signal_worker(process, victim, signal.Signals[how])
                asked = time.monotonic()
                if how == "SIGTERM":
                    case["code"] = done(process)
                    case["seconds_to_end"] = round(time.monotonic() - asked, 2)
                    case["reached"] = last_step(run)
                    begun = (run / "config.json").exists()
                    command = ("resume", str(run)) if begun else train_options(run, *options)
                    process = launch(chaos.processes, *command, log=log)
                _wait_until(lambda n=before: len(_resumed_at(log)) > n, 120)
                steps = _resumed_at(log)
                case["resumed"] = steps[-1] if len(steps) > before else 0
                case["lost"] = max(0, case["reached"] - case["resumed"])
                case["seconds_to_resume"] = round(time.monotonic() - asked, 1)
                print(len(cases), case, flush=True)
                cases.append(case)
        code = done(process, 1800)
        same = code == 0 and final_hash(run) == final_hash(whole)
    terms = [case for case in cases if case["how"] == "SIGTERM"]
    kills = [case for case in cases if case["how"] == "SIGKILL"]
    known = {
        "cases": cases,
        "preempted": len(terms),
        "killed": len(kills),
        "exited_with_0": sum(case["code"] == 0 for case in terms),
        "slowest_exit": max((case["seconds_to_end"] for case in terms), default=0),
        "most_lost_preempted": max((case["lost"] for case in terms), default=0),
        "most_lost_killed": max((case["lost"] for case in kills), default=0),
        "finished": code == 0,
        "same": same,
    }
    fast = known["slowest_exit"] <= 30 and known["exited_with_0"] == len(terms)
    lost = known["most_lost_preempted"] == 0 and known["most_lost_killed"] <= INTERVAL
    return known | {"held": bool(cases) and same and fast and lost}


def _resumed_at(log: Path) -> list[int]:
    found = re.findall(r"resuming .* at step (\d+)", log.read_text(errors="replace"))
    return [int(step) for step in found]


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C ends a row early; what is done by then counts."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


def _signal_worker(process: subprocess.Popen, victim: int, number: signal.Signals) -> None:
    """To the worker of that number, once it is there."""
    _wait_until(lambda: len(workers_of(process.pid)) > victim or process.poll() is not None, 60)
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(workers_of(process.pid)[victim], number)


def stuck(chaos: Chaos) -> dict[str, Any]:
    """A process that is stopped, or stuck in Python: the others end, and name it."""
    cases, limit, count = [], 20, chaos.processes
    with chaos.new_folder() as folder, _until_interrupted():
        for number in range(chaos.times(20, 1)):
            how = ("stuck", "stopped")[number % 2]
            victim = chaos.random.randrange(count)
            step = chaos.random.randrange(3, 15)
            run, port = folder / f"run-{number}", free_port()
            logs = [folder / f"{number}-{index}.log" for index in range(count)]
            workers = []
            for index in range(count):
                place = ("--coordinator", f"127.0.0.1:{port}", "--num-processes", str(count))
                options = train_options(run, "--watchdog-seconds", str(limit))
                code = STUCK.format(step=step) if (how, index) == ("stuck", victim) else None
                each = (*options, *place, "--process-id", str(index))
                workers.append(start(*each, log=logs[index], code=code))
            if how == "stopped":
                began = _wait_until(lambda s=step, r=run: last_step(r) >= s, 120)
                workers[victim].send_signal(signal.SIGSTOP)
            else:
                began = _wait_until(lambda log=logs[victim]: "STUCK" in log.read_text(), 120)
            at = time.monotonic()
            others = [worker for index, worker in enumerate(workers) if index != victim]
            codes = [done(worker, limit + 60) for worker in others]
            ended = time.monotonic() - at
            named = any(
                f"process {victim} did not arrive" in log.read_text(errors="replace")
                for log in logs
            )
            workers[victim].kill()
            workers[victim].wait()
            stacks = (run / "stacks" / f"process-{victim}.txt").exists()
            case = {
                "how": how,
                "process": victim,
                "began": began,
                "codes": codes,
                "seconds_to_end": round(ended, 1),
                "named": named,
                "stacks": stacks,
            }
            print(number, case, flush=True)
            if not named:
                print(*(log.read_text(errors="replace")[-1500:] for log in logs), sep="\n-----\n")
            cases.append(case)
    held = [
        c["named"] and 0 not in c["codes"] and -999 not in c["codes"]
        and c["seconds_to_end"] <= limit + 2
        for c in cases
    ]  # fmt: skip
    return {
        "cases": cases,
        "times": len(cases),
        "named": sum(c["named"] for c in cases),
        "limit": limit,
        "slowest_exit": max(c["seconds_to_end"] for c in cases),
        "held": all(held),
    }


def resumed(chaos: Chaos) -> dict[str, Any]:
    """The rest of a run on other devices and by other strategies."""
    cases = []
    with chaos.new_folder() as folder:
        whole, log = folder / "whole", folder / "whole.log"
        options = train_options(whole, "--steps", "30", "--checkpoint-steps", "5")
        code = done(start(*options, "--devices", "4", "--checkpoint-keep", "99", log=log))
        assert code == 0, log.read_text()
        wanted = result(whole)["losses"]
        ways: list[tuple[str, ...]] = [("--devices", str(count)) for count in (1, 2, 3, 8)]
        ways += [
            ("--devices", "4", "--strategy", name)
            for name in ("node_ring", "node_all_gather", "feature_all_to_all")
        ]
        ways += [("--mesh", "node=2,feature=2", "--strategy", "node_by_feature")]
        for way in ways[1:4:2] if chaos.short else ways:
            run = folder / "-".join(way).replace("--", "")
            shutil.copytree(whole, run)
            (run / "result.json").unlink()
            for step in steps_in(run / "checkpoints"):
                if step > 15:  # as if it had been killed then
                    shutil.rmtree(run / "checkpoints" / str(step))
            code = done(start("resume", str(run), *way, log=folder / f"{run.name}.log"))
            off = apart(result(run)["losses"], wanted) if code == 0 else None
            case = {"way": " ".join(way), "code": code, "apart": off}
            print(case, flush=True)
            cases.append(case)
    worst = max((c["apart"] if c["apart"] is not None else float("inf")) for c in cases)
    return {"cases": cases, "worst": worst, "held": worst <= 1e-5}


def damaged(chaos: Chaos) -> dict[str, Any]:
    """A checkpoint with a bit flipped, cut off or without a file: the one before it is used."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from gtjax.training.checkpoint import Best, Checkpoints, Snapshot
    from gtjax.training.step import State

    def snapshot(step: int) -> Snapshot:
        drawn = np.random.default_rng(step).normal(size=(24, 24)).astype(np.float32)
        params = {"weights": drawn, "bias": np.arange(17, dtype=np.int32)}
        state = State(params, None, (drawn * 2,), jnp.int32(step), jnp.array(True))
        return Snapshot(state, Best(params, jnp.float32(0.5), jnp.int32(3)))

    def equal(found: Snapshot, wanted: Snapshot) -> bool:
        return all(jax.tree.leaves(jax.tree.map(np.array_equal, found, wanted)))

    older, newer = snapshot(10), snapshot(20)
    counts = {kind: {"unharmed": 0, "refused": 0, "wrong": 0} for kind in HARMS}
    with chaos.new_folder() as folder:
        with Checkpoints(folder) as checkpoints:
            checkpoints.save(older)
            checkpoints.save(newer)
        for kind, path, content in harms(folder / "checkpoints" / "20", chaos):
            before = path.read_bytes()
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            with Checkpoints(folder) as checkpoints:
                found = checkpoints.restore(newer)
                outcome = "wrong"
                if checkpoints.damaged and equal(found, older):
                    outcome = "refused"
                elif not checkpoints.damaged and equal(found, newer):
                    outcome = "unharmed"
            counts[kind][outcome] += 1
            path.write_bytes(before)
    wrong = sum(each["wrong"] for each in counts.values())
    return {"kinds": counts, "wrong": wrong, "held": wrong == 0}


HARMS = ("removals", "cuts", "flips")


def harms(folder: Path, chaos: Chaos) -> Iterator[tuple[str, Path, bytes | None]]:
    """Files of a checkpoint, and what they hold afterwards; None is nothing at all."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        yield "removals", path, None
    for path in files:
        whole = path.read_bytes()
        lengths = range(len(whole))
        if chaos.short:
            lengths = sorted(chaos.random.sample(lengths, min(10, len(whole))))
        for length in lengths:
            yield "cuts", path, whole[:length]
    sizes = [path.stat().st_size for path in files]
    for _ in range(chaos.times(2000, 100)):
        (path,) = chaos.random.choices(files, sizes)
        content = bytearray(path.read_bytes())
        content[chaos.random.randrange(len(content))] ^= 1 << chaos.random.randrange(8)
        yield "flips", path, bytes(content)


def disk(chaos: Chaos) -> dict[str, Any] | None:
    """A disk that is full or becomes read-only: a clear error, and a run that can go on."""
    cases = []
    with chaos.new_folder() as folder, _until_interrupted():
        mount = folder / "disk"
        mount.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "none", str(mount)], capture_output=True
        ).returncode:
            print("disk: skipped, since file systems cannot be mounted here")
            return None
        subprocess.run(["umount", str(mount)], check=True)
        one = ("--strategy", "single")
        code = done(start(*train_options(folder / "whole", *one), log=folder / "whole.log"))
        assert code == 0
        wanted = final_hash(folder / "whole")
        taken = sum(p.stat().st_size for p in (folder / "whole").rglob("*") if p.is_file()) // 1024
        for number in range(2 * chaos.times(20, 1)):
            how = ("full", "read-only")[number % 2]
            run, log = mount / "run", folder / f"{number}.log"
            size = 10 * taken if how == "read-only" else int(taken * chaos.random.uniform(0.4, 1.0))
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(mount)], check=True
            )
            try:
                process = start(*train_options(run, *one), log=log)
                if how == "read-only":
                    step = chaos.random.randrange(1, STEPS - 8)
                    _wait_until(lambda s=step, r=run: last_step(r) >= s, 120)
                    _wait_until(lambda: _remounted(mount, "ro"), 20)
                code = done(process)
                text = log.read_text(errors="replace")
                clear = (
                    code == 2
                    and "Traceback" not in text
                    and ("No space left" in text or "Read-only file system" in text)
                )
                had = steps_in(run / "checkpoints") if (run / "checkpoints").is_dir() else []
                _remounted(mount, f"rw,size={20 * taken}k")
                begun = (run / "config.json").exists()
                if not begun:
                    shutil.rmtree(run, ignore_errors=True)
                command = ("resume", str(run)) if begun else train_options(run, *one)
                again = done(start(*command, log=folder / f"{number}-more.log"))
                case = {
                    "how": how,
                    "code": code,
                    "clear": clear,
                    "said": text.strip().splitlines()[-1][-300:],
                    "checkpoints": had,
                    "same": again == 0 and final_hash(run) == wanted,
                }
            finally:
                subprocess.run(["umount", "-l", str(mount)], check=True)
            print(number, case, flush=True)
            cases.append(case)
    held = all(case["clear"] and case["same"] for case in cases)
    return {
        "cases": cases,
        "times": len(cases),
        "clear": sum(case["clear"] for case in cases),
        "same": sum(case["same"] for case in cases),
        "held": held,
    }


def _remounted(mount: Path, how: str) -> bool:
    command = ["mount", "-o", f"remount,{how}", str(mount)]
    return subprocess.run(command, capture_output=True).returncode == 0


def repeated(chaos: Chaos) -> dict[str, Any]:
    """The same seed on the same mesh, several times."""
    with chaos.new_folder() as folder:
        hashes = []
        for number in range(chaos.times(10, 2)):
            run = folder / f"run-{number}"
            code = done(launch(2, *train_options(run), log=folder / f"{number}.log"))
            hashes.append(final_hash(run) if code == 0 else [str(number)])
            print(number, code, flush=True)
    different = len({tuple(each) for each in hashes})
    return {"times": len(hashes), "different": different, "held": different == 1}


def _arxiv(chaos: Chaos) -> str:
    if chaos.data is None:  # as many nodes and edges
        return "rmat:nodes=169343,edges=1166243"
    return str(chaos.data / "ogbn-arxiv.npz")


def overhead(chaos: Chaos) -> dict[str, Any]:
    """Whole turns, with checkpoints, watchdog and metrics, against the bare compiled step."""
    os.environ["GTJAX_SUPERVISED"] = "1"  # so that a process that is alone is watched as well
    import numpy as np

    from gtjax import RuntimeConfig, TrainConfig, load
    from gtjax.training.batches import make_batches
    from gtjax.training.interrupt import StopRequest
    from gtjax.training.loop import fit
    from gtjax.training.step import Program
    from gtjax.training.task import Task

    class Clock(StopRequest):
        """Is looked at once before each turn."""

        def __init__(self) -> None:
            super().__init__()
            self.looks: list[float] = []

        @property
        def asked(self) -> bool:
            self.looks.append(time.perf_counter())
            return False

        @asked.setter
        def asked(self, value: bool) -> None:
            pass

    graph, steps = load(_arxiv(chaos)), chaos.times(21, 11)
    runtime = RuntimeConfig(checkpoint_steps=10, checkpoint_seconds=1e9)
    seconds: dict[str, list[float]] = {"bare": [], "whole": []}
    outside = []
    with chaos.new_folder() as folder:
        for turn in range(chaos.times(2, 1)):
            config = TrainConfig(
                steps=steps, eval_every=1000, runtime=runtime, out=folder / str(turn)
            )
            program = Program(config, graph, Task.of(graph))
            batches = make_batches(graph, config, program.spread, program.exact)
            state, batch = program.initial_state(), batches.at(0)
            advance = program.compiled(state, batch, 1)
            times = []
            for _ in range(steps):
                started = time.perf_counter()
                state, losses_ = advance(state, batch, np.int32(1))
                np.asarray(losses_)
                times.append(time.perf_counter() - started)
            seconds["bare"] += times[1:]
            del state, batch, batches, advance
            clock = Clock()
            made = fit(graph, config=config, stop=clock, show_progress=False)
            # Before placing, before compiling, and then before every turn of one or more steps.
            rows = [json.loads(x) for x in (made.folder / "metrics.jsonl").read_text().splitlines()]
            turns = [row for row in rows if "seconds_per_step" in row]
            starts = clock.looks[-len(turns) :]
            counts = np.diff([0, *(row["step"] for row in turns)])
            walls = np.diff(starts)
            seconds["whole"] += list(walls[1:] / counts[1:-1])
            within = np.array([row["seconds_per_step"] for row in turns]) * counts
            outside.append(float(walls[1:].sum() / within[1:-1].sum() - 1))
            print(
                {name: round(float(np.mean(v)), 4) for name, v in seconds.items()},
                outside,
                flush=True,
            )
    del os.environ["GTJAX_SUPERVISED"]
    means = {name: statistics.fmean(each) for name, each in seconds.items()}
    ratio = means["whole"] / means["bare"] - 1
    return {
        "seconds_per_step": means,
        "overhead": ratio,
        "outside_of_steps": statistics.fmean(outside),
        "held": ratio <= 0.05,
    }


def speedup(chaos: Chaos) -> dict[str, Any]:
    """Two processes of one device and one core each against one, for a model that is wide."""
    times: dict[str, list[float]] = {}
    model = ("--model.hidden", "256", "--model.heads", "8", "--model.layers", "2")
    ways = {
        "one process": ("--strategy", "single"),
        "node_halo": ("--strategy", "node_halo", "--partitioner", "contiguous"),
    }
    with chaos.new_folder() as folder:
        for turn in range(chaos.times(2, 1)):
            for name, how in ways.items():
                run, log = folder / f"{name}-{turn}", folder / f"{name}-{turn}.log"
                common = ("--data", _arxiv(chaos), "--steps", "4", "--eval-every", "100")
                command = ("train", *common, *model, "--out", str(run), *how)
                if name == "one process":
                    with log.open("wb") as file:
                        worker = subprocess.Popen(
                            ["taskset", "-c", "0", *ENTRY, *command], stdout=file, stderr=file
                        )
                else:
                    worker = launch(2, *command, log=log)
                code = done(worker, 900)
                assert code == 0, log.read_text()
                times.setdefault(name, []).append(result(run)["seconds_per_step"])
                print(name, times[name], flush=True)
                shutil.rmtree(run)
    medians = {name: statistics.median(each) for name, each in times.items()}
    best = min(medians, key=medians.__getitem__)
    ratio = medians["one process"] / medians[best]
    return {"seconds_per_step": medians, "best": best, "speedup": ratio, "held": ratio >= 1.6}


ROWS: dict[str, Callable[[Chaos], dict[str, Any] | None]] = {
    "losses": losses,
    "disturb": disturbed,
    "stuck": stuck,
    "resume": resumed,
    "damage": damaged,
    "disk": disk,
    "overhead": overhead,
    "repeat": repeated,
    "speedup": speedup,
}


def _wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


def versions() -> dict[str, str]:
    """What this was done with."""
    packages = ("gtjax", "jax", "jaxlib", "orbax-checkpoint", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return found | {"python": platform.python_version()}


def table(results: dict[str, Any]) -> str:
    """The rows that are stored, for the README."""
    rows = results["rows"]
    lines = ["| what | wanted | seen |", "|---|---|---|"]
    for name, (what, wanted, seen) in TABLE.items():
        if name in rows:
            lines.append(f"| {what} | {wanted} | {seen(rows[name])} |")
    return "\n".join(lines)


TABLE: dict[str, tuple[str, str, Callable[[dict[str, Any]], str]]] = {
    "losses": (
        "losses of 20 steps on 2 and 4 processes, every strategy, against one process",
        "2e-5 relative",
        lambda r: f"{r['worst']:.1e} at most, {len(r['cases'])} cases",
    ),
    "disturb": (
        "one run of 4 processes: SIGTERM and kill -9 in turns, a random process at a random moment",
        "SIGTERM: no step lost, out within 30 s; kill -9: at most an interval lost; bit-equal",
        lambda r: (
            f"{r['preempted']} SIGTERM: {r['most_lost_preempted']} steps lost, "
            f"{r['exited_with_0']} out with code 0 within {r['slowest_exit']:.1f} s; "
            f"{r['killed']} kill -9: at most {r['most_lost_killed']} steps lost (interval "
            f"{INTERVAL}); the end {'is' if r['same'] else 'is not'} bit-equal"
        ),
    ),
    "stuck": (
        "a process of 4 stopped (SIGSTOP), or stuck in Python",
        "survivors out within the watchdog's limit, the process named",
        lambda r: (
            f"named {r['named']} of {r['times']} times, out within {r['slowest_exit']:.1f} s "
            f"(limit set to {r['limit']} s)"
        ),
    ),
    "resume": (
        "from step 15 to 30 on 1, 2, 3, 8 devices and by other strategies",
        "losses within 1e-5 relative",
        lambda r: f"{r['worst']:.1e} at most, {len(r['cases'])} ways",
    ),
    "damage": (
        "checkpoint cut off at every byte, each file removed, bits flipped",
        "none silently wrong; the one before it used",
        lambda r: (
            f"{r['wrong']} wrong of "
            + ", ".join(f"{sum(v.values()):,} {k}" for k, v in r["kinds"].items())
        ),
    ),
    "disk": (
        "disk full, and a folder that becomes read-only",
        "clear error, last checkpoint restorable",
        lambda r: f"{r['clear']} of {r['times']} clear, {r['same']} bit-equal after resume",
    ),
    "overhead": (
        "checkpoint every 10 steps and watchdog, arxiv topology",
        "at most 5 % of step time",
        lambda r: (
            f"{100 * r['overhead']:.1f} % (outside of steps {100 * r['outside_of_steps']:.1f})"
        ),
    ),
    "repeat": (
        "same seed and mesh (2 processes)",
        "identical hashes",
        lambda r: f"{r['different']} hash in {r['times']} runs",
    ),
    "speedup": (
        "2 processes of 1 core against 1 process of 1 core, arxiv topology, hidden 256",
        "at least 1.6x",
        lambda r: f"{r['speedup']:.2f}x ({r['best']})",
    ),
}


if __name__ == "__main__":
    main()
