"""`gtjax partition`: the table, the files it writes, and its mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gtjax.batching.config import PrepareConfig
from gtjax.batching.prepare import prepare_graph
from gtjax.datasets import load
from gtjax.partition import open_partition, partition_graph
from tests.cli.test_mistakes import assert_mistake

DATA = "synthetic-citation:nodes=307,features=2"


@pytest.fixture(scope="module")
def graph():
    return prepare_graph(load(DATA), PrepareConfig())


def test_the_table_has_a_row_for_every_part_and_the_totals(gtjax, graph):
    outcome = gtjax("partition", DATA, "-k", 3, "--partitioner", "streaming")
    assert outcome.code == 0
    cut = partition_graph(graph, 3, "streaming").cut(graph)
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[0] == ["part", "nodes", "edges", "halo", "cut"]
    for part in range(3):
        counts = [cut.nodes_p[part], cut.edges_p[part], cut.halo_p[part]]
        assert rows[1 + part][:4] == [str(part), *(f"{count:,}" for count in counts)]
    assert rows[4][:3] == ["all", "307", f"{graph.num_edges:,}"]
    assert f"cut {cut.cut:.1%} of the edges" in outcome.out
    assert f"edges {cut.edge_imbalance:.3f}, nodes {cut.node_imbalance:.3f}" in outcome.out


def test_json_is_the_cut(gtjax, graph):
    outcome = gtjax(
        "partition", DATA, "--parts", 4, "--partitioner", "random", "--seed", 5, "--json"
    )
    found = json.loads(outcome.out)
    wanted = partition_graph(graph, 4, "random", seed=5).cut(graph).to_json()
    assert {name: found[name] for name in wanted} == wanted
    assert found["partitioner"] == "random"
    assert found["seconds"] >= 0


@pytest.mark.parametrize("words", [["--how", "random"], ["--how=random"]])
def test_the_option_by_its_older_name(gtjax, words):
    assert json.loads(gtjax("partition", DATA, "-k", 2, *words, "--json").out)["partitioner"] == (
        "random"
    )
    assert "--how" not in gtjax("partition", "--help").out


def test_files_are_written(gtjax, graph, tmp_path):
    files = ["--out", tmp_path / "parts", "--picture", tmp_path / "cut.svg"]
    outcome = gtjax("partition", DATA, "-k", 2, "--partitioner", "contiguous", *files)
    assert outcome.code == 0
    stored = open_partition(tmp_path / "parts")
    assert stored.graph_fingerprint == graph.fingerprint
    assert stored.partition.fingerprint == partition_graph(graph, 2, "contiguous").fingerprint
    assert "<svg" in (tmp_path / "cut.svg").read_text()


def test_owners_of_another_program(gtjax, graph, tmp_path):
    path = tmp_path / "owner.npy"
    np.save(path, np.arange(307) % 3)
    found = json.loads(gtjax("partition", DATA, "-k", 3, "--partitioner", path, "--json").out)
    assert found["nodes_p"] == [103, 102, 102]
    np.save(path, np.arange(5) % 3)
    outcome = gtjax("partition", DATA, "-k", 3, "--partitioner", path)
    assert_mistake(outcome, "each of the graph's 307 nodes; found 5")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([DATA], "-k"),
        ([DATA, "-k", "0"], "1 to 8192 parts; found 0"),
        ([DATA, "-k", "x"], "an integer, such as 200 or 1e3; found 'x'"),
        (
            [DATA, "-k", "2", "--partitioner", "kahip"],
            "one of auto, metis, streaming, contiguous, random",
        ),
        ([DATA, "-k", "2", "--partitioner", "none.npy"], "none.npy is not a .npy file of integers"),
        ([DATA, "-k", "2", "--picture", "cut.pdf"], "ends in .svg or .png; found 'cut.pdf'"),
        (["nope.npz", "-k", "2"], "'nope.npz' is neither a file nor the name of a data set"),
        ([DATA, "-k", "2", "--out", "."], "written to a new folder"),
    ],
)
def test_mistakes(gtjax, argv, said):
    assert_mistake(gtjax("partition", *argv), said)
