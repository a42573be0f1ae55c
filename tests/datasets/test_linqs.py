"""LINQS text: ids are mapped, unknown citations dropped and counted, and a split is drawn."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sample_files import NODES, edges, features, labels, write_linqs

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import Limits, load


def test_folder_and_file_give_the_same_graph(tmp_path):
    folder = write_linqs(tmp_path / "toy")
    graph = load(folder)
    assert load(folder / "toy.content").fingerprint == graph.fingerprint
    np.testing.assert_allclose(graph.x_nf, features(), rtol=1e-5)
    # Classes are numbered by their sorted names: ai, db, ml.
    np.testing.assert_array_equal(graph.labels_n, np.array([2, 0, 1])[labels()])
    cited, citing = edges()
    expected = {*zip(citing, cited, strict=True), *zip(cited, citing, strict=True)}
    assert set(zip(graph.senders_e, graph.receivers_e, strict=True)) == expected
    np.testing.assert_array_equal(graph.senders_e[:31], citing)
    assert graph.names.classes == ("ai", "db", "ml")
    assert graph.names.nodes is not None
    assert graph.names.nodes.tolist() == [f"p{i}" for i in range(NODES)]


def test_citations_of_unknown_papers_are_counted_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "gtjax"):
        load(write_linqs(tmp_path))
    assert "dropped 1 citations" in caplog.text


def test_the_split_is_small_to_train_and_depends_on_the_seed(tmp_path):
    lines = [f"p{i}\t{i % 2}\tclass{i % 3}" for i in range(3000)]
    (tmp_path / "big.content").write_text("\n".join(lines))
    (tmp_path / "big.cites").write_text("p0\tp1\n")
    graph = load(tmp_path, seed=5)
    train = graph.split_n["train"]
    np.testing.assert_array_equal(np.bincount(graph.labels_n[train]), [20, 20, 20])
    assert [int(graph.split_n[name].sum()) for name in ("val", "test")] == [500, 1000]
    assert load(tmp_path, seed=5).fingerprint == graph.fingerprint
    assert load(tmp_path, seed=6).fingerprint != graph.fingerprint


def test_a_tiny_set_still_gets_all_three_masks(tmp_path):
    graph = load(write_linqs(tmp_path))
    sizes = [int(graph.split_n[name].sum()) for name in ("train", "val", "test")]
    assert sizes == [6, 1, 3]  # half of classes of 5, 4, 4; a quarter and a half of the rest


def test_a_paper_nobody_cites_and_an_empty_list_of_citations_are_fine(tmp_path):
    write_linqs(tmp_path)
    (tmp_path / "toy.cites").write_text("")
    assert load(tmp_path).num_edges == 0


@pytest.mark.parametrize(
    ("file", "text", "field"),
    [
        ("toy.content", "", "table"),
        ("toy.content", "only-an-id\n", "columns"),
        ("toy.content", "a\t1\tx\nb\t1\n", "table"),
        ("toy.content", "a\tone\tx\n", "table"),
        ("toy.content", "a\tnan\tx\n", "x_nf"),
        ("toy.content", "a\t1\tx\na\t1\tx\n", "id"),
        ("toy.content", "a\t1\t\n", "label"),
        ("toy.cites", "a b c\n", "table"),
    ],
)
def test_a_broken_rule_names_file_and_field(tmp_path, file, text, field):
    write_linqs(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(GraphFormatError) as caught:
        load(tmp_path)
    assert caught.value.field == field
    assert caught.value.file is not None
    assert caught.value.file.startswith(str(tmp_path))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    write_linqs(tmp_path)
    (tmp_path / "toy.content").write_bytes(b"\xff\xfe\t1\tx\n")
    with pytest.raises(GraphFormatError, match=r"toy\.content"):
        load(tmp_path)


def test_missing_citations_and_several_contents_are_errors(tmp_path):
    write_linqs(tmp_path)
    (tmp_path / "toy.cites").unlink()
    with pytest.raises(GraphFormatError, match=r"toy\.cites stands beside"):
        load(tmp_path)
    write_linqs(tmp_path, "other")
    with pytest.raises(GraphFormatError, match=r"other\.content, toy\.content"):
        load(tmp_path)


def test_the_size_cap_holds(tmp_path):
    with pytest.raises(GraphFormatError, match="at most 50 bytes"):
        load(write_linqs(tmp_path), limits=Limits(max_bytes=50))


def test_numbers_of_nodes_agree(tmp_path):
    assert load(write_linqs(tmp_path)).num_nodes == NODES
