"""`gtjax convert`, and every command on the folder that it writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gtjax.datasets import load
from tests.cli.small_options import MODEL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from gtjax.cli.main import main

    folder = tmp_path_factory.mktemp("converted") / "g"
    assert main(["convert", "synthetic-citation:nodes=211,seed=3", str(folder)]) == 0
    return folder


def test_convert_says_what_it_wrote_and_checks_it(gtjax, folder, tmp_path):
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    outcome = gtjax("convert", tmp_path / "edges.csv", tmp_path / "out", "--no-self-loops")
    assert outcome.code == 0
    assert "StoredGraph('edges', 3 nodes, 4 edges, 0 features, 0 classes)" in outcome.out
    assert "edges: read as a stream" in outcome.err
    outcome = gtjax("convert", "--check", folder)
    assert outcome.code == 0
    assert "all is as it was written" in outcome.out
    path = folder.parent / "damaged"
    path.mkdir()
    for file in (file for file in folder.rglob("*") if file.is_file()):
        (path / file.relative_to(folder)).parent.mkdir(exist_ok=True)
        (path / file.relative_to(folder)).write_bytes(file.read_bytes())
    labels = path / "labels.npy"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\1")
    outcome = gtjax("convert", "--check", path)
    assert outcome.code == 2
    assert "labels.npy is damaged" in outcome.err


def test_mistakes_are_one_line(gtjax, folder, tmp_path):
    for words, said in (
        (["convert", "grid"], "takes the data and a new folder"),
        (["convert", "grid", folder], "holds a stored graph. Remove it"),
        (["convert", folder, tmp_path / "x"], "is a stored graph already"),
        (["convert", "--check", tmp_path], "cannot be read"),
        (["convert", "grid", tmp_path / "x", "--features", "int9"], "Did you mean 'int8'"),
        (["convert", "grid", tmp_path / "x", "--memory", "-1"], "more than 0; found -1"),
    ):
        outcome = gtjax(*words)
        assert outcome.code == 2, words
        assert said in outcome.err
        assert "Traceback" not in outcome.err


def test_a_run_on_a_stored_graph_is_found_again(gtjax, folder, tmp_path):
    run = tmp_path / "run"
    outcome = gtjax("train", "--data", folder, "--out", run, "--steps", "2", *MODEL)
    assert outcome.code == 0, outcome.err
    config = json.loads((run / "config.json").read_text())
    assert config["data"] == str(folder.resolve())
    facts = json.loads((run / "data.json").read_text())["facts"]
    assert facts["fingerprint"] == load(folder).fingerprint
    outcome = gtjax("evaluate", run, "--json")
    assert outcome.code == 0, outcome.err
    assert 0 <= json.loads(outcome.out)["test_accuracy"] <= 1


def test_plan_partition_and_statistics(gtjax, folder, tmp_path):
    outcome = gtjax("plan", folder, "--devices", "2", "--hardware", "tpu-v5e", "--json")
    assert outcome.code == 0, outcome.err
    outcome = gtjax("partition", folder, "-k", "3", "--json", "--partitioner", "streaming")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["graph"] == "synthetic-citation"
    outcome = gtjax("datasets", folder, "--json")
    assert outcome.code == 0, outcome.err
    figures = json.loads(outcome.out)
    assert figures["nodes"] == 211
    assert figures["degree"]["min"] >= 1  # every node has an edge to itself


def test_a_run_that_wants_other_edges_is_told(gtjax, tmp_path):
    (tmp_path / "edges.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(40)))
    rows = "".join(f"{i},{i % 2},{np.sin(i)}\n" for i in range(41))
    (tmp_path / "nodes.csv").write_text("id,label,f\n" + rows)
    assert gtjax("convert", tmp_path / "edges.csv", tmp_path / "g").code == 0
    outcome = gtjax("train", "--data", tmp_path / "g", "--prepare.no-symmetrise", "--steps", "1")
    assert outcome.code == 2
    assert "Convert the data again with --no-symmetrise" in outcome.err
