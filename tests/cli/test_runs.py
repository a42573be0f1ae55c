"""`gtjax runs`: what is told of runs that are finished, under way, broken off and broken."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from gtjax.cli import train
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.running import FILE, is_running, noted_as_running
from tests.cli.small_options import SMALL


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs that differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in ("1", "2"):
        assert train.run([*SMALL, "--seed", seed, "--out", str(folder / f"seed-{seed}")]) == 0
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of them to spoil."""
    return shutil.copytree(trained, tmp_path / "runs")


def listed(gtjax, *words):
    outcome = gtjax("runs", *words, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def states(gtjax, folder):
    return {each["path"].rpartition("/")[2]: each["state"] for each in listed(gtjax, folder)}


def test_it_lists_what_came_of_them(gtjax, trained):
    first, second = listed(gtjax, trained)
    result = json.loads((trained / "seed-1" / "result.json").read_text())
    assert first["path"] == str(trained / "seed-1")
    assert second["path"] == str(trained / "seed-2")
    assert (first["state"], first["steps"], first["wanted"]) == ("finished", 3, 3)
    assert (first["data"], first["model"], first["task"]) == (
        "synthetic-citation",
        "transformer",
        "node",
    )
    assert first["metrics"] == {
        f"{split}_accuracy": result[f"{split}_accuracy"] for split in ("train", "val", "test")
    }
    assert first["seconds"] == pytest.approx(sum(result["seconds"].values()))
    shown = gtjax("runs", trained).out
    line = next(line for line in shown.splitlines() if "seed-1" in line)
    for word in ("finished", first["date"], "transformer", f"{result['test_accuracy']:.4f}"):
        assert word in line


def test_without_a_folder_it_looks_where_runs_go(gtjax, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert gtjax("runs").out == "no runs yet: gtjax train makes one in runs/\n"
    assert listed(gtjax) == []
    (tmp_path / "runs").mkdir()
    assert gtjax("runs").out == "no runs here\n"
    shutil.copytree(trained / "seed-1", tmp_path / "runs" / "deep" / "one")
    assert [each["path"] for each in listed(gtjax)] == ["runs/deep/one"]


def test_two_runs_are_compared(gtjax, trained, tmp_path):
    pair = (trained / "seed-1", trained / "seed-2")
    found = listed(gtjax, *pair)
    assert found["differ"] == {"seed": [1, 2]}
    assert [each["settings"]["seed"] for each in found["runs"]] == [1, 2]
    lines = gtjax("runs", *pair).out.splitlines()
    assert next(line for line in lines if line.startswith("seed ")).split() == ["seed", "1", "2"]
    tests = [each["metrics"]["test_accuracy"] for each in found["runs"]]
    row = next(line for line in lines if line.startswith("test_accuracy"))
    assert row.split()[1:] == [f"{value:.4f}" for value in tests]
    assert "no setting differs" in gtjax("runs", pair[0], pair[0]).out


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_their_curves_are_drawn_in_one_picture(gtjax, trained, tmp_path, ending):
    picture = tmp_path / f"curves.{ending}"
    outcome = gtjax("runs", trained / "seed-1", trained / "seed-2", "--picture", picture)
    assert outcome.code == 0
    if ending == "svg":
        text = picture.read_text(encoding="utf-8")
        for words in ("seed-1 (accuracy)", "seed-2 (accuracy)", "training loss"):
            assert words in text
    else:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_nothing_is_refused(gtjax, runs, tmp_path):
    (runs / "seed-1" / "metrics.jsonl").unlink()
    outcome = gtjax("runs", runs / "seed-1", "--picture", tmp_path / "p.svg")
    assert outcome.code == 2
    assert "steps that were taken" in outcome.err
    outcome = gtjax("runs", runs, "--picture", "p.pdf")
    assert (outcome.code, outcome.out) == (2, "")
    assert "a picture ends in .svg or .png" in outcome.err


def test_a_folder_that_is_not_there_is_a_mistake(gtjax, tmp_path):
    outcome = gtjax("runs", tmp_path / "none")
    assert (outcome.code, outcome.out) == (2, "")
    assert "is no folder" in outcome.err


def test_a_run_without_a_result_is_under_way_or_was_interrupted(gtjax, runs):
    here, other = socket.gethostname(), f"not-{socket.gethostname()}"
    (runs / "seed-1" / "result.json").unlink()
    assert states(gtjax, runs) == {"seed-1": "interrupted", "seed-2": "finished"}
    (one,) = listed(gtjax, runs / "seed-1")
    assert one["steps"] == 3
    assert set(one["metrics"]) == {"val_accuracy", "test_accuracy"}  # of the best step so far
    with noted_as_running(RunFolder(runs / "seed-1")):
        assert states(gtjax, runs)["seed-1"] == "running"
        known = json.loads((runs / "seed-1" / FILE).read_text())
    assert known["host"] == here
    assert states(gtjax, runs)["seed-1"] == "interrupted"
    (runs / "seed-1" / FILE).write_text(json.dumps(known | {"host": other}))
    assert states(gtjax, runs)["seed-1"] == "unknown"


def test_a_process_that_is_gone_or_another_one_is_not_running():
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    here = socket.gethostname()
    assert not is_running({"host": here, "process": int(gone.stdout), "began": "1"})
    assert not is_running({"host": here, "process": os.getpid(), "began": "1"})


def test_more_steps_asked_for_than_taken_is_not_finished(gtjax, runs):
    table = json.loads((runs / "seed-1" / "config.json").read_text())
    (runs / "seed-1" / "config.json").write_text(json.dumps(table | {"steps": 9}))
    assert states(gtjax, runs)["seed-1"] == "interrupted"
    assert "3 of 9" in gtjax("runs", runs).out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"7"),
        ("config.json", b"{}"),
        ("config.json", b"\xff\xfe"),
        ("config.json", b'{"model": 3, "steps": 1, "data": "x", "task": "node"}'),
        ("result.json", b"{"),
        ("result.json", b"[1]"),
        ("result.json", b'{"config": 1}'),
        ("data.json", b"[1]"),
        ("data.json", b'{"task": 1}'),
        ("asked.json", b"[1]"),
        ("metrics.jsonl", b"7\n"),
        ("metrics.jsonl", b"\xff\xfe\n"),
    ],
)
def test_a_broken_one_is_told_as_such(gtjax, runs, name, content):
    path = runs / "seed-1" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert states(gtjax, runs) == {"seed-1": "broken", "seed-2": "finished"}
    shown = gtjax("runs", runs)
    assert shown.code == 0
    assert "Traceback" not in shown.err
    assert f"{runs / 'seed-1'}: " in shown.out
    compared = gtjax("runs", runs / "seed-1", runs / "seed-2")
    assert compared.code == 0
    assert "broken" in compared.out


def test_a_line_of_metrics_that_was_cut_off_is_nothing_special(gtjax, runs):
    path = runs / "seed-1" / "metrics.jsonl"
    (runs / "seed-1" / "result.json").unlink()
    path.write_text(path.read_text()[:-8])
    (one,) = listed(gtjax, runs / "seed-1")
    assert (one["state"], one["steps"]) == ("interrupted", 2)


def test_names_are_no_commands_for_the_terminal(gtjax, runs):
    path = runs / "seed-1" / "data.json"
    known = json.loads(path.read_text())
    known["facts"]["name"] = "[red]x\x1b[2J"
    path.write_text(json.dumps(known))
    shown = gtjax("runs", runs).out
    assert "\x1b" not in shown
    assert "[red]x?[2J" in shown


@pytest.mark.parametrize(("metric", "best"), [("mae", 0.2), ("r2", 0.5)])
def test_the_best_of_an_error_is_the_smallest(gtjax, runs, metric, best):
    one = runs / "seed-1"
    (one / "result.json").unlink()
    known = json.loads((one / "data.json").read_text())
    known["task"] |= {"name": "node_regression", "metric": metric}
    (one / "data.json").write_text(json.dumps(known))
    rows = [{"step": n, "loss": 1.0, f"val_{metric}": v} for n, v in enumerate((0.3, 0.2, 0.5), 1)]
    (one / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (told,) = listed(gtjax, one)
    assert told["metrics"] == {f"val_{metric}": best}
