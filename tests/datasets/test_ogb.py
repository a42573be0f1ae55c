"""OGB folders in both layouts, with class and multi-label targets and official splits."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from sample_files import NODES, csv_lines, edges, features, labels, write_gz, write_ogb

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import Limits, load


@pytest.mark.parametrize("binary", [False, True])
def test_both_layouts_hold_the_same_graph(tmp_path, binary):
    graph = load(write_ogb(tmp_path / "toy", binary=binary))
    np.testing.assert_array_equal(np.stack([graph.senders_e, graph.receivers_e]), edges())
    np.testing.assert_allclose(graph.x_nf, features(), rtol=1e-5)
    np.testing.assert_array_equal(graph.labels_n, labels())
    assert graph.edge_x_ef is not None
    np.testing.assert_array_equal(graph.edge_x_ef[:, 0], np.arange(31))
    for name, start in (("train", 0), ("val", 5), ("test", 9)):
        np.testing.assert_array_equal(np.flatnonzero(graph.split_n[name]), start + np.arange(4))
    assert graph.name == "toy"


@pytest.mark.parametrize("name", ["products", "ogbn-proteins"])
def test_sets_that_ogb_reverses_are_symmetric(tmp_path, name):
    graph = load(write_ogb(tmp_path / name))
    assert graph.is_symmetric
    assert graph.num_edges == 62
    assert graph.edge_x_ef is not None
    np.testing.assert_array_equal(graph.edge_x_ef[31:, 0], np.arange(31))


def test_several_label_columns_are_tasks_and_nan_is_unlabelled(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    rows = ["1,0", "nan,1", ",0"] + ["0,0"] * (NODES - 3)
    write_gz(folder / "raw" / "node-label.csv.gz", "\n".join(rows) + "\n")
    graph = load(folder)
    assert graph.is_multilabel
    np.testing.assert_array_equal(graph.labels_n[:4], [[1, 0], [-1, 1], [-1, 0], [0, 0]])


def test_one_column_of_classes_may_have_gaps(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    rows = ["2.0"] * (NODES - 2) + ["nan", "2.0"]
    rows[4] = ""  # node 4 is in no mask of the sample
    rows[11] = "1"
    write_gz(folder / "raw" / "node-label.csv.gz", "\n".join(rows) + "\n")
    expected = np.full(NODES, 2)
    expected[[4, 11]] = -1, 1
    np.testing.assert_array_equal(load(folder).labels_n, expected)


@pytest.mark.parametrize("kind", ["f2", "f8", "i1", "u8", "?"])
def test_binary_labels_may_have_any_type_of_number(tmp_path, kind):
    folder = write_ogb(tmp_path / "toy", binary=True)
    np.savez(folder / "raw" / "node-label.npz", node_label=(labels() % 2).astype(kind))
    np.testing.assert_array_equal(load(folder).labels_n, labels() % 2)


def test_everything_optional_may_be_missing(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    for name in ("node-feat", "edge-feat", "node-label"):
        (folder / "raw" / f"{name}.csv.gz").unlink()
    for file in (folder / "split" / "time").iterdir():
        file.unlink()
    graph = load(folder)
    assert graph.x_nf.shape == (NODES, 0)
    assert graph.edge_x_ef is None
    assert (graph.labels_n == -1).all()
    assert dict(graph.split_n) == {}


def test_the_split_number_counts_schemes_in_alphabetical_order(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    (folder / "split" / "zeta").mkdir()
    write_gz(folder / "split" / "zeta" / "train.csv.gz", "7\n")
    graph = load(folder, split=1)
    assert list(graph.split_n) == ["train"]
    np.testing.assert_array_equal(np.flatnonzero(graph.split_n["train"]), [7])
    with pytest.raises(UserError, match="2 schemes: there is no split 2"):
        load(folder, split=2)


def test_graphs_of_several_types_are_refused(tmp_path):
    folder = write_ogb(tmp_path / "mag")
    write_gz(folder / "raw" / "num-node-dict.csv.gz", "author,paper\n3,4\n")
    with pytest.raises(GraphFormatError, match="one type of node"):
        load(folder)


@pytest.mark.parametrize(
    ("file", "text", "field"),
    [
        ("raw/edge.csv.gz", "0,1,2\n", "columns"),
        ("raw/edge.csv.gz", "0,1\n", "edge.csv.gz"),
        ("raw/edge.csv.gz", "0,0.5\n" * 31, "table"),
        ("raw/edge.csv.gz", "0,\n" * 31, "column 1"),
        ("raw/edge.csv.gz", "0,13\n" * 31, "receivers_e"),
        ("raw/num-node-list.csv.gz", "13\n13\n", "count"),
        ("raw/num-node-list.csv.gz", "-3\n", "count"),
        ("raw/num-node-list.csv.gz", "12\n", "node-feat"),
        ("raw/node-feat.csv.gz", "nan\n" * NODES, "x_nf"),
        ("raw/node-label.csv.gz", "0.5\n" * NODES, "node-label"),
        ("raw/node-label.csv.gz", "inf\n" * NODES, "node-label"),
        ("raw/node-label.csv.gz", "1\n", "node-label"),
        ("raw/edge-feat.csv.gz", "1\n", "edge_x_ef"),
        ("split/time/test.csv.gz", "13\n", "test"),
        ("split/time/test.csv.gz", "-1\n", "test"),
        ("split/time/test.csv.gz", "0\n", "split_n['test']"),
    ],
)
def test_a_broken_rule_names_field_and_a_file_of_the_folder(tmp_path, file, text, field):
    folder = write_ogb(tmp_path / "toy")
    write_gz(folder / file, text)
    with pytest.raises(GraphFormatError) as caught:
        load(folder)
    assert caught.value.field == field
    assert caught.value.file is not None
    assert caught.value.file.startswith(str(folder))


def test_names_are_those_of_the_mapping(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    assert load(folder).names.nodes is None
    (folder / "mapping").mkdir()
    rows = "".join(f"{i},paper {i}\n" for i in reversed(range(NODES)))
    write_gz(folder / "mapping" / "nodeidx2paperid.csv.gz", f"node idx,paper id\n{rows}")
    write_gz(folder / "mapping" / "labelidx2area.csv.gz", "label idx,area\n0,cs\n1,na\n2,math\n")
    names = load(folder).names
    assert names.nodes is not None
    assert names.nodes.tolist() == [f"paper {i}" for i in range(NODES)]
    assert names.classes == ("cs", "na", "math")


@pytest.mark.parametrize("rows", ["0,cs\n1,na\n", "0,cs\n1,cs\n2,na\n", "0,cs\n1,\n2,na\n"])
def test_names_that_not_every_class_has_for_itself_are_not_used(tmp_path, rows):
    folder = write_ogb(tmp_path / "toy")
    (folder / "mapping").mkdir()
    write_gz(folder / "mapping" / "labelidx2area.csv.gz", f"label idx,area\n{rows}")
    assert load(folder).names.classes == ()


def test_a_broken_mapping_is_named(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    (folder / "mapping").mkdir()
    write_gz(folder / "mapping" / "labelidx2area.csv.gz", "label idx,area\nx,cs\n")
    with pytest.raises(GraphFormatError, match=r"labelidx2area\.csv\.gz"):
        load(folder)


def test_a_missing_required_file_is_named(tmp_path):
    for name in ("edge", "num-node-list", "num-edge-list"):
        folder = write_ogb(tmp_path / name)
        (folder / "raw" / f"{name}.csv.gz").unlink()
        with pytest.raises(GraphFormatError, match=f"{name}.csv.gz: this file is required"):
            load(folder)


def test_gzip_bombs_stop_at_the_cap(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    bomb = folder / "raw" / "node-feat.csv.gz"
    bomb.write_bytes(gzip.compress(b"0,0,0,0\n" * 2_000_000))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(GraphFormatError, match="at most 1000000 bytes") as caught:
        load(folder, limits=Limits(max_bytes=1_000_000))
    assert caught.value.file == str(bomb)
    assert caught.value.field == "file"  # while reading, not once the table is there


def test_truncated_and_plain_files_are_not_gzip(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    file = folder / "raw" / "edge.csv.gz"
    whole = file.read_bytes()
    for content in (whole[:-10], b"0,1\n" * 31, b""):
        file.write_bytes(content)
        with pytest.raises(GraphFormatError, match=r"edge\.csv\.gz"):
            load(folder)


def test_large_tables_come_through_exactly(tmp_path):
    folder = write_ogb(tmp_path / "toy")
    table = np.random.default_rng(0).integers(0, 1000, (NODES, 2000)).astype(np.float32)
    write_gz(folder / "raw" / "node-feat.csv.gz", csv_lines(table))
    np.testing.assert_array_equal(load(folder).x_nf, table)
