"""Runs at an address: trained, resumed, evaluated and listed as in a folder."""

from __future__ import annotations

import json
import shutil
import uuid

import pytest

import gtjax
from gtjax.cli.main import main
from gtjax.runs.run_folder import RunFolder
from tests.cli.small_options import MODEL, SMALL


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}/runs/a"


@pytest.mark.slow
def test_a_run_is_resumed_on_another_machine(address, cache, capsys):
    assert main(["train", *SMALL, "--out", address]) == 0
    assert f"report: {address}/report.html" in capsys.readouterr().out
    assert address in (RunFolder.at(address).path / "config.json").read_text()
    shutil.rmtree(cache)
    assert main(["resume", address, "--steps", "4"]) == 0
    assert [row["step"] for row in RunFolder.at(address).metrics()] == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_commands_take_an_address(address, cache, tmp_path, capsys):
    assert main(["train", *SMALL, "--out", address]) == 0
    shutil.rmtree(cache)  # as on another machine
    assert main(["resume", address, "--steps", "5"]) == 0
    local = tmp_path / "local"
    assert main(["train", *SMALL, "--out", str(local)]) == 0
    assert main(["resume", str(local), "--steps", "5"]) == 0
    shutil.rmtree(cache)
    found, same = (RunFolder.at(path) for path in (address, local))
    assert [row["loss"] for row in found.metrics()] == [row["loss"] for row in same.metrics()]
    assert (found.path / "report.html").is_file()
    assert not (found.path / "running.json").exists()
    capsys.readouterr()
    assert main(["evaluate", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] >= 0
    assert main(["predict", address, "--out", str(tmp_path / "p.npz")]) == 0
    capsys.readouterr()
    assert main(["runs", address.rpartition("/")[0], "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["path"], each["state"]) for each in listed] == [(address, "finished")]
    assert main(["train", *SMALL, "--out", address]) == 2
    assert "holds a run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_graph_and_seeds_in_turn_from_an_address(address, capsys):
    data = address.replace("runs/a", "graph")
    assert main(["convert", "synthetic-citation:nodes=300,classes=4", data]) == 0
    more = ["--steps", "3", "--out", address, "--seeds", "2", "--devices", "2"]
    assert main(["train", "--data", data, *MODEL, *more]) == 0
    assert gtjax.load_run(address).evaluate()["test_accuracy"] >= 0


def test_what_is_no_run_is_told(address, capsys):
    assert main(["resume", address]) == 2
    assert "not the folder of a run" in capsys.readouterr().err
