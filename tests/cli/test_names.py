"""Tables with names go in, and predictions with these names come out."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv
import pytest

from tests.cli.small_options import MODEL


def write_tables(folder, classes, nodes=60, seed=0):
    """Nodes of two kinds, whose first feature tells which, in a ring."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    ids = [f"user-{n}" for n in range(nodes)]
    kind_n = rng.integers(0, 2, nodes)
    rows = [
        f"{ids[n]},{3 * kind_n[n] + rng.normal(0, 0.1):.4f},1,{classes[kind_n[n]]}"
        for n in range(nodes)
    ]
    (folder / "nodes.csv").write_text("id,score,one,label\n" + "\n".join(rows) + "\n")
    edges = [f"{ids[n]},{ids[(n + 1) % nodes]}" for n in range(nodes)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    return ids, [classes[kind] for kind in kind_n]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from gtjax.cli.main import main

    folder = tmp_path_factory.mktemp("named")
    ids, labels = write_tables(folder / "data", ("no", "yes"))
    run = folder / "run"
    options = ["--split", "random:50/25/25:3", "--steps", "30", *MODEL]
    words = ["train", "--data", folder / "data", "--out", run, *options]
    assert main([str(word) for word in words]) == 0
    return run, ids, labels


def test_the_split_is_the_one_that_was_asked_for(trained):
    run, *_ = trained
    facts = json.loads((run / "data.json").read_text())["facts"]
    assert facts["figures"]["splits"] == {"train": 30, "val": 15, "test": 15}
    assert facts["class_names"] == ["no", "yes"]
    assert json.loads((run / "config.json").read_text())["split"] == "random:50/25/25:3"


def test_predictions_name_nodes_and_classes(trained, gtjax, tmp_path):
    run, ids, labels = trained
    assert gtjax("predict", run, "--out", tmp_path / "p.csv").code == 0
    table = pyarrow.csv.read_csv(tmp_path / "p.csv")
    assert table.column_names[:5] == [
        "node",
        "predicted",
        "probability",
        "probability_no",
        "probability_yes",
    ]
    assert table["node"].to_pylist() == ids
    right = np.array(table["predicted"].to_pylist()) == labels
    assert right.mean() > 0.9


def test_another_graph_may_number_its_classes_otherwise(trained, gtjax, tmp_path):
    """Beside "no" and "yes" it has a class that sorts before them, and shifts their numbers."""
    run, *_ = trained
    write_tables(tmp_path / "other", ("no", "yes"), seed=1)
    text = (tmp_path / "other" / "nodes.csv").read_text()
    (tmp_path / "other" / "nodes.csv").write_text(text + "user-x,0,1,maybe\n")
    outcome = gtjax("evaluate", run, "--data", tmp_path / "other", "--json")
    assert outcome.code == 0
    assert "never seen are left out: maybe" in outcome.err
    assert json.loads(outcome.out)["test_accuracy"] > 0.9
