"""`gtjax datasets`: the list, and figures of one data set."""

from __future__ import annotations

import json

import pytest

from gtjax.datasets import listing, load, save_npz


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def test_everything_that_can_be_loaded_is_listed(gtjax):
    outcome = gtjax("datasets")
    assert (outcome.code, outcome.err) == (0, "")
    first_words = {line.split()[0] for line in outcome.out.splitlines() if line.strip()}
    assert {info.name for info in listing()} <= first_words
    assert {"synthetic-citation", "ogbn-arxiv"} <= first_words


def test_the_list_as_json(gtjax):
    rows = json.loads(gtjax("datasets", "--json").out)
    assert [row["name"] for row in rows] == [info.name for info in listing()]
    assert all(row["cached_path"] is None for row in rows)
    assert all(row["description"] for row in rows)


def test_one_data_set_is_described(gtjax):
    outcome = gtjax("datasets", "synthetic-citation:nodes=1200,classes=3")
    assert (outcome.code, outcome.err) == (0, "")
    shown = dict(line.strip().split("  ", 1) for line in outcome.out.splitlines() if line.strip())
    assert shown["nodes"].strip() == "1,200"
    assert shown["classes"].strip() == "3"


def test_a_file_is_described_as_json(gtjax, tmp_path):
    graph = load("synthetic-citation:nodes=50")
    save_npz(graph, tmp_path / "graph.npz")
    figures = json.loads(gtjax("datasets", tmp_path / "graph.npz", "--json").out)
    assert figures["nodes"] == 50
    assert figures["edges"] == graph.num_edges
    assert figures["splits"]["train"] == int(graph.split_n["train"].sum())
