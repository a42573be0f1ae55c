"""Edge lists and node tables: columns, kinds of ids, labels, masks, and what is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sample_files import NODES, edges, features, write_edge_list

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import Limits, load


def pairs(graph):
    return list(zip(graph.senders_e.tolist(), graph.receivers_e.tolist(), strict=True))


def write(path, text):
    path.write_text(text)
    return path


def test_a_folder_of_edges_and_nodes(tmp_path):
    graph = load(write_edge_list(tmp_path / "toy"))
    np.testing.assert_array_equal(np.stack([graph.senders_e, graph.receivers_e]), edges())
    np.testing.assert_allclose(graph.x_nf, features()[:, :2], rtol=1e-6)
    np.testing.assert_array_equal(graph.labels_n, 1 - np.arange(NODES) % 2)  # blue, red
    assert graph.edge_x_ef is not None
    np.testing.assert_array_equal(graph.edge_x_ef[:, 0], np.arange(31) / 2)
    for number, name in enumerate(("train", "val", "test")):
        np.testing.assert_array_equal(graph.split_n[name], np.arange(NODES) % 4 == number)
    assert graph.name == "toy"


def test_parquet_gives_the_same_graph_as_csv(tmp_path):
    text, binary = write_edge_list(tmp_path / "toy"), tmp_path / "binary"
    binary.mkdir()
    for name in ("edges", "nodes"):
        options = csv.ConvertOptions(strings_can_be_null=True)
        table = csv.read_csv(text / f"{name}.csv", convert_options=options)
        parquet.write_table(table, binary / f"{name}.parquet", row_group_size=5)
    assert load(binary).fingerprint == load(text).fingerprint


def test_columns_of_text_that_nobody_asked_for_are_told(tmp_path, capsys):
    write(tmp_path / "nodes.csv", "id,Title,age,when\na,x,1,y\nb,y,2,z\n")
    write(tmp_path / "edges.csv", "src,dst,comment\na,b,hello\n")
    graph = load(tmp_path)
    assert graph.names.features == ("age",)
    assert capsys.readouterr().err.splitlines() == [
        "edges.csv: left out, since they hold no numbers: comment",
        "nodes.csv: left out, since they hold no numbers: Title, when",
    ]


def test_many_columns_of_text_are_told_in_one_line(tmp_path, capsys):
    names = [f"t{i}" for i in range(20)]
    load(write(tmp_path / "e.csv", f"src,dst,{','.join(names)}\n1,2{',x' * 20}\n"))
    assert capsys.readouterr().err == (
        f"e.csv: left out, since they hold no numbers: {', '.join(names[:9])} and 11 more\n"
    )


def test_names_of_nodes_classes_and_features_are_kept(tmp_path):
    names = load(write_edge_list(tmp_path / "toy")).names
    assert names.nodes is not None
    assert names.nodes.tolist() == [f"n{i}" for i in range(NODES)]
    assert names.classes == ("blue", "red")
    assert names.features == ("a", "b")


def test_numbers_other_than_those_of_the_nodes_are_kept_as_names(tmp_path):
    other = load(write(tmp_path / "i.csv", "src,dst\n900,5\n5,70\n")).names.nodes
    assert other is not None
    assert other.tolist() == ["5", "70", "900"]
    assert load(write(tmp_path / "j.csv", "src,dst\n0,1\n2,1\n")).names.nodes is None


def test_ids_too_long_for_a_table_are_no_names(tmp_path, capsys):
    text = "src,dst\n" + "x" * 10_000 + ",b\n" + "".join(f"n{i},b\n" for i in range(100))
    graph = load(write(tmp_path / "e.csv", text), limits=Limits(max_bytes=1_000_000))
    assert graph.num_nodes == 102
    assert graph.names.nodes is None
    assert "ids are not kept as names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["0.5", "3", "-7"], [0.5, 3, -7]),
        (["0.5", "", "2"], [0.5, np.nan, 2]),
        (["1e30", "1.5", "0"], [1e30, 1.5, 0]),
    ],
)
def test_numbers_that_are_not_whole_are_targets(tmp_path, labels, expected):
    lines = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    write(tmp_path / "nodes.csv", "id,y\n" + lines)
    graph = load(write(tmp_path / "edges.csv", "src,dst\n2,0\n"))
    assert graph.is_real
    np.testing.assert_array_equal(graph.labels_n, np.float32(expected))
    assert sum(int(mask.sum()) for mask in graph.split_n.values()) == graph.labelled.sum()


def test_whole_numbers_are_classes_even_if_written_with_a_point(tmp_path):
    write(tmp_path / "nodes.csv", "id,y\n0,1.0\n1,\n2,0.0\n")
    graph = load(write(tmp_path / "edges.csv", "src,dst\n2,0\n"))
    assert graph.labels_n.tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("source,target,w", [(0, 1)]),
        ("TO,w,FROM", [(1, 0)]),  # 15 -> 10
        ("w,Receiver,Sender", [(0, 1)]),  # 15 -> 20
        ("a,b,c", [(0, 1)]),
    ],
)
def test_ends_are_found_by_name_else_by_position(tmp_path, header, expected):
    graph = load(write(tmp_path / "e.csv", f"{header}\n10,20,15\n"))
    assert pairs(graph) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.txt", "# Nodes: 3\n# FromNodeId ToNodeId\n7\t9\n9\t8\n"),
        ("e.edges", "% comment\n7 9\n9 8\n"),
        ("e.tsv", "src\tdst\n7\t9\n9\t8\n"),
        ("e.csv", "7;9\n9;8\n"),
        ("e.csv", "\ufeffsource,target\n7,9\n9,8\n"),
    ],
)
def test_separators_comments_and_headers_are_found_out(tmp_path, name, text):
    assert pairs(load(write(tmp_path / name, text))) == [(0, 2), (2, 1)]


def test_a_compressed_list_reads_like_a_plain_one(tmp_path):
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"src,dst\n1,2\n"))
    assert pairs(load(tmp_path / "e.csv.gz")) == [(0, 1)]


def test_integers_count_upwards_and_strings_as_they_come(tmp_path):
    assert pairs(load(write(tmp_path / "i.csv", "src,dst\n900,5\n5,70\n"))) == [(2, 0), (0, 1)]
    assert pairs(load(write(tmp_path / "s.csv", "src,dst\nz,b\nb,a\n"))) == [(0, 1), (1, 2)]
    assert pairs(load(write(tmp_path / "m.csv", "src,dst\n1,b\n2,a\n"))) == [(0, 2), (1, 3)]


def test_words_that_others_read_as_missing_are_ids_all_the_same(tmp_path):
    graph = load(write(tmp_path / "e.csv", "src,dst\nNA,DE\nFR,NA\n"))
    assert pairs(graph) == [(0, 2), (1, 0)]


def test_ids_written_as_numbers_match_ids_written_as_text(tmp_path):
    write(tmp_path / "nodes.csv", "id,label\n7,0\nx,1\n")
    graph = load(write(tmp_path / "edges.csv", "src,dst\n7,7\n"))
    assert pairs(graph) == [(0, 0)]
    assert graph.num_nodes == 2


def test_nodes_without_ids_are_numbered_by_row(tmp_path):
    write(tmp_path / "nodes.csv", "a,y,train,val,test\n.5,1,1,0,0\n.25,0,0,1,0\n1,,0,0,0\n")
    graph = load(write(tmp_path / "edges.csv", "src,dst\n2,0\n"))
    assert pairs(graph) == [(2, 0)]
    np.testing.assert_array_equal(graph.x_nf, [[0.5], [0.25], [1]])
    np.testing.assert_array_equal(graph.labels_n, [1, 0, -1])
    np.testing.assert_array_equal(graph.split_n["val"], [False, True, False])


def test_a_table_of_nodes_may_come_without_edges(tmp_path):
    write(tmp_path / "nodes.csv", "id,a\nx,1\ny,2\n")
    graph = load(write(tmp_path / "edges.csv", "src,dst\n"))
    assert (graph.num_nodes, graph.num_edges) == (2, 0)


def test_labels_without_a_split_get_one_by_seed(tmp_path):
    lines = "".join(f"{i},{i % 2}\n" for i in range(100))
    write(tmp_path / "nodes.csv", "id,label\n" + lines)
    path = write(tmp_path / "edges.csv", "src,dst\n2,0\n")
    graph = load(path, seed=3)
    assert [int(graph.split_n[name].sum()) for name in ("train", "val", "test")] == [60, 20, 20]
    assert load(path, seed=3).fingerprint == graph.fingerprint != load(path, seed=4).fingerprint


@pytest.mark.parametrize(
    ("edge_text", "node_text", "field"),
    [
        ("", None, "table"),
        ("src\n1\n", None, "columns"),
        ("src,dst\n", None, "rows"),
        ("src,dst\n1,\n", None, "target"),
        ("src,dst\n1,0.5\n", None, "target"),
        ("src,dst\na,b\na,\n", None, "target"),
        ("src,dst\na,b\n", "id,y\na,1\nb,1\n,0\n", "id"),
        ("src,dst\n1,2,3\n", None, "table"),
        ("src,dst,w\n1,2,nan\n1,3,2\n", None, "edge_x_ef"),
        ("src,dst\n1,99999999999999999999\n2,3\n", None, "target"),
        ("src,dst\n1,5\n", "id\n1\n2\n", "target"),
        ("src,dst\n1,2\n", "id\n1\n1\n2\n", "id"),
        ("src,dst\n1,2\n", "id,a\n1,2\n,3\n", "id"),
        ("src,dst\n1,2\n", "id,a\n1,\n2,3\n", "x_nf"),
        ("src,dst\n1,2\n", "id,label\n1,0.5\n2,inf\n", "labels_n"),
        ("src,dst\n1,2\n", "id,label\n1,7\n2,99999999\n", "label"),
        ("src,dst\n1,2\n", "id,label\n1,-7\n2,3\n", "labels_n"),
        ("src,dst\n1,2\n", "id,y,split\n1,0,train\n2,3,later\n", "split"),
        ("src,dst\n1,2\n", "id,y,train\n1,0,1\n2,3,2\n", "train"),
        ("src,dst\n1,2\n", "id,y,train\n1,0,a\n2,3,b\n", "train"),
        ("src,dst\n1,2\n", "id,split\n1,train\n2,test\n", "split_n['train']"),
        ("src,dst\n1,2\n", "id,ID\n1,1\n2,2\n", "columns"),
    ],
)
def test_a_broken_rule_names_file_and_field(tmp_path, edge_text, node_text, field):
    path = write(tmp_path / "edges.csv", edge_text)
    if node_text is not None:
        write(tmp_path / "nodes.csv", node_text)
    with pytest.raises(GraphFormatError) as caught:
        load(path)
    assert caught.value.field == field
    assert caught.value.file is not None
    in_nodes = node_text is not None and field != "target"
    assert caught.value.file.endswith("nodes.csv" if in_nodes else "edges.csv")


def test_a_hostile_name_of_a_column_does_not_reach_the_terminal(tmp_path):
    with pytest.raises(GraphFormatError) as caught:
        load(write(tmp_path / "e.csv", "\x1b[2J,,w\n1,0.5,1\n"))
    assert "\x1b" not in str(caught.value)
    assert caught.value.field == "target"


def test_names_of_columns_are_text(tmp_path):
    (tmp_path / "edges.csv").write_bytes(b"src,dst,w\x80\n1,2,3\n")
    with pytest.raises(GraphFormatError, match=r"edges\.csv"):
        load(tmp_path)


def test_blank_labels_and_splits_are_empty_in_parquet_too(tmp_path):
    nodes = {"id": ["a", "b", "c"], "label": ["x", "", "y"], "split": ["train", "", "valid"]}
    parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    graph = load(write(tmp_path / "edges.csv", "src,dst\na,b\n"))
    np.testing.assert_array_equal(graph.labels_n, [0, -1, 1])
    assert [int(graph.split_n[k].argmax()) for k in ("train", "val")] == [0, 2]
    assert not graph.split_n["test"].any()


def test_a_parquet_of_one_long_repeated_string_stays_small(tmp_path):
    name = "x" * 100_000
    source = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), [name])
    table = pa.table({"src": source, "dst": np.ones(50_000, int)})
    parquet.write_table(table, tmp_path / "edges.parquet", store_schema=False)
    assert parquet.read_schema(tmp_path / "edges.parquet").field("src").type == pa.string()
    assert (tmp_path / "edges.parquet").stat().st_size < 1_000_000
    graph = load(tmp_path, limits=Limits(max_bytes=2_000_000))  # 5 GB if it were written out
    assert (graph.num_nodes, graph.num_edges) == (2, 50_000)


def test_a_parquet_of_too_many_rows_is_refused_by_its_metadata(tmp_path):
    parquet.write_table(
        pa.table({"src": [1] * 100_000, "dst": [2] * 100_000}), tmp_path / "e.parquet"
    )
    with pytest.raises(GraphFormatError, match="1600000 bytes"):
        load(tmp_path / "e.parquet", limits=Limits(max_bytes=1_000_000))


@pytest.mark.parametrize("field", ["1", "x"])
def test_absurdly_many_columns_are_refused_at_the_first_line(tmp_path, field):
    path = write(tmp_path / "e.csv", ",".join([field] * 200_000) + "\n")
    with pytest.raises(GraphFormatError, match="at most 100000 columns; found 200000"):
        load(path)


def test_broken_parquet_is_refused(tmp_path):
    path = tmp_path / "e.parquet"
    for content in (b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"src,dst\n1,2\n"):
        path.write_bytes(content)
        with pytest.raises(GraphFormatError, match=r"e\.parquet"):
            load(path)
