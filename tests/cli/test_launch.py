"""`gtjax launch`: mistakes before anything is started, and real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import gtjax as package
from gtjax.cli import launch
from gtjax.distributed import workers
from gtjax.runs.checkpoint_files import read_manifest, steps_in

ENTRY = [sys.executable, "-c", "import sys; from gtjax.cli.main import main; sys.exit(main())"]
SMALL = ("--model.hidden", "8", "--model.layers", "1", "--model.heads", "2", "--steps", "6")
OUT = ("train", "--out", "runs/new")
TOLD = ("--coordinator", "a:1", "--num-processes", "2", "--process-id", "0")
SAGE = ("--model.hidden", "8", "--model.layers", "1", "--steps", "20", "--prepare.no-symmetrise")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--processes", "2"], "a command follows after --, one of train, resume, profile"),
        (["--", "evaluate", "x"], "found 'evaluate'"),
        (["--processes", "0", "--", "train"], "--processes is at least 1; found 0"),
        (["--restarts", "-1", "--", "train"], "--restarts is not negative; found -1"),
        (["--", "train"], "needs --out FOLDER, the same for all tasks"),
        (["--processes", "2", "--", "train", "--steps", "0"], "steps is at least 1; found 0"),
        (["--elastic", "2", "--", "train"], "--elastic is the least and the"),
        (["--elastic", "2:4", "--", "train"], "needs --out FOLDER, the same for all tasks"),
        (["--elastic", "2:4", "--", "profile"], "--elastic is for train and resume"),
        (["--elastic", "2:4", "--elastic-seconds", "0", "--", "train"], "seconds is positive"),
        (["--elastic", "2:4", "--processes", "2", "--", "train"], "leave out --processes"),
        (["--elastic", "2:4", "--slurm", "--", "train"], "srun --no-kill"),
        (["--elastic", "2:4", "--", *OUT, "--devices", "4"], "leave out --devices and --mesh"),
        (["--elastic", "2:4", "--", *OUT, *TOLD], "--elastic chooses the coordinator"),
        (["--elastic", "2:4", "--", "train", "--out", "s3://a/b"], "An object store has no"),
    ],
)
def test_mistakes_start_nothing(gtjax, monkeypatch, argv, said):
    monkeypatch.setattr(workers.subprocess, "Popen", None)
    code, _, stderr = gtjax("launch", *argv)
    assert code == 2
    assert said in stderr


def test_what_is_run_first_and_what_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = launch._job("train", ["--steps", "3"], shared=False)
    assert job.run is not None
    assert job.command == ("train", "--steps", "3", "--out", str(job.run))
    assert job.again == ("resume", str(job.run))
    named = launch._job("train", ["--out", "a/b"], shared=True)
    assert named.command == ("train", "--out", "a/b")
    placed = launch._job("train", ["--out", "a/b", *TOLD, "--join-seconds", "9"], shared=True)
    assert placed.again == ("resume", "a/b", *TOLD, "--join-seconds", "9.0")
    again = launch._job("resume", ["a/b", "--devices", "2"], shared=True)
    assert again.command == again.again == ("resume", "a/b", "--devices", "2")
    assert launch._job("profile", [], shared=False).run is None


def run(*argv):
    return subprocess.run([*ENTRY, *argv], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_train_like_one_and_resume_without_the_graph(gtjax, tmp_path):
    data = tmp_path / "graph.npz"
    package.save_npz(package.load("synthetic-citation:nodes=300"), data)
    common = ("train", "--data", str(data), *SMALL)
    one, two = tmp_path / "one", tmp_path / "two"
    assert gtjax(*common, "--out", str(one)).code == 0
    spread = ("--strategy", "node_halo", "--checkpoint-steps", "2", "--profile")
    done = run("launch", "--processes", "2", "--", *common, "--out", str(two), *spread)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("1 host, 2 processes, 2 devices (cpu)") == 1
    assert done.stderr.count("mesh node=2, feature=1") == 1
    assert done.stdout.count("accuracy:") == 1
    assert "Gloo" not in done.stdout

    results = [json.loads((each / "result.json").read_text()) for each in (one, two)]
    assert results[1]["processes"] == 2
    np.testing.assert_allclose(results[1]["losses"], results[0]["losses"], rtol=2e-5)
    lines = [json.loads(line) for line in (two / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in (two / "profile").iterdir()) == ["process-0", "process-1"]
    assert [p.name for p in (two / "parts").glob("*/shard-*")] != []

    about = read_manifest(two / "checkpoints", steps_in(two / "checkpoints")[0])["about"]
    assert about["processes"] == 2
    assert about["data"] == results[1]["data"]["fingerprint"]
    assert about["config"]["seed"] == about["seed"] == 0
    assert about["plan"] == "node_halo"

    data.unlink()  # each process has its share in the folder of the run
    (two / "result.json").unlink()
    again = run("launch", "--processes", "2", "--", "resume", str(two))
    assert again.returncode == 0, again.stderr
    assert json.loads((two / "result.json").read_text())["losses"] == results[1]["losses"]


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_two_processes_on_samples_train_like_one_also_when_shapes_have_to_grow(gtjax, tmp_path):
    data = tmp_path / "graph.npz"
    package.save_npz(late_hub(), data)
    sampled = ("--batching", "neighbours", "--fan-out", "all", "--batch-size", "8")
    common = ("train", "--data", str(data), *sampled, "--model", "sage", *SAGE)
    one, two = tmp_path / "one", tmp_path / "two"
    assert gtjax(*common, "--out", str(one)).code == 0
    done = run("launch", "--processes", "2", "--", *common, "--out", str(two))
    assert done.returncode == 0, done.stderr
    results = [json.loads((each / "result.json").read_text()) for each in (one, two)]
    assert results[1]["processes"] == 2
    assert results[1]["shapes_grown"] >= 1
    np.testing.assert_allclose(results[1]["losses"], results[0]["losses"], rtol=2e-5)
    assert results[1]["test_accuracy"] == results[0]["test_accuracy"]


def late_hub():
    """Every node sees itself alone but for one, which sees all; no early batch asks for that."""
    rng = np.random.default_rng(0)
    nodes = 1500
    train = np.arange(nodes) % 10 == 0
    order = np.random.default_rng([0, 0]).permutation(train.sum())  # of the first epoch
    hub = np.flatnonzero(train)[order[100]]
    labels = rng.integers(0, 3, nodes)
    split = {"train": train, "val": np.arange(nodes) % 10 < 5, "test": np.arange(nodes) % 10 >= 5}
    return package.from_edges(
        np.stack([np.arange(nodes), np.full(nodes, hub)], axis=1),
        x_nf=rng.normal(size=(nodes, 4)).astype(np.float32) + labels[:, None],
        labels_n=labels,
        split_n={**split, "val": split["val"] & ~train},
    )
