"""`convert` gives what reading and preparing in memory gives, from every format and after kills."""

from __future__ import annotations

import gzip
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import gtjax
from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets.conversion import ConvertOptions, convert, text_edges
from gtjax.graph import stored as stored_module
from tests.datasets import sample_files
from tests.datasets.stored_graphs import LITTLE, awkward_edges, converted, write_csv
from tests.marks import slow

KILLED = """
import sys
from gtjax.datasets.conversion import ConvertOptions, convert, workplace
workplace.SECONDS = 0.0
convert(sys.argv[1], sys.argv[2], ConvertOptions(memory=float(sys.argv[3])))
"""


@pytest.mark.parametrize("symmetrise", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_an_edge_list_is_what_it_is_in_memory(tmp_path, symmetrise, self_loops):
    data = write_csv(tmp_path / "edges.csv", awkward_edges())
    stored = converted(data, tmp_path / "g", symmetrise=symmetrise, self_loops=self_loops)
    assert stored.is_symmetrised is symmetrise
    assert stored.has_self_loops is self_loops
    assert stored.by_sender.edge_ids_e.dtype == np.int32


def test_it_takes_several_runs_and_stretches(tmp_path, monkeypatch):
    from gtjax.datasets.conversion.workplace import Workplace

    states = []
    commit = Workplace.commit
    monkeypatch.setattr(
        Workplace,
        "commit",
        lambda self, *s, **c: (commit(self, *s, **c), states.append(self.state)),
    )
    converted(write_csv(tmp_path / "edges.csv", awkward_edges()), tmp_path / "g")
    assert states[-1]["edges"]["runs"] > 5
    assert len(states[-1]["receivers"]["stretches"]) > 5


@pytest.mark.parametrize("symmetrise", [True, False])
def test_rows_longer_than_a_stretch_are_put_together(tmp_path, symmetrise):
    """A node that all others point to, one that points to all, and both several times."""
    others = np.arange(4507)
    rng = np.random.default_rng(0)
    star = np.r_[np.c_[others, np.full_like(others, 99)], np.c_[np.full_like(others, 7), others]]
    edges = rng.permutation(np.r_[star, star[:3000], np.tile([[5, 6]], (1500, 1))])
    data = write_csv(tmp_path / "edges.csv", edges)
    converted(data, tmp_path / "g", symmetrise=symmetrise)


def test_of_several_edges_with_the_same_ends_one_stays_if_asked(tmp_path):
    edges = awkward_edges()
    data = write_csv(tmp_path / "edges.csv", edges)
    stored = converted(data, tmp_path / "g", distinct=True, symmetrise=False, self_loops=False)
    assert stored.num_edges == len(np.unique(edges, axis=0)) < len(edges)


def test_ids_with_gaps_are_numbered_and_kept_as_names(tmp_path):
    edges = awkward_edges() * 7 + 3
    for name, change in (("gaps", edges), ("wide", edges * 10**9 - 10**10)):
        stored = converted(write_csv(tmp_path / f"{name}.csv", change), tmp_path / name)
        assert stored.names.nodes[0] == str(change.min())
        data = write_csv(tmp_path / f"{name}.csv", change)
        converted(data, tmp_path / f"{name}-directed", symmetrise=False)


def test_edge_features_follow_their_edges(tmp_path):
    edges = awkward_edges()
    weights = np.random.default_rng(1).normal(size=(len(edges), 2)).astype(np.float32)
    columns = {"src": edges[:, 0], "w": weights[:, 0], "dst": edges[:, 1], "v": weights[:, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "edges.parquet", row_group_size=999)
    stored = converted(tmp_path / "edges.parquet", tmp_path / "g")
    assert stored.num_edge_features == 2
    converted(tmp_path / "edges.parquet", tmp_path / "h", distinct=True, symmetrise=False)


@pytest.mark.parametrize("form", ["auto", "float32", "sparse"])
def test_a_table_of_nodes_gives_features_labels_and_splits(tmp_path, form):
    rng, folder = np.random.default_rng(2), tmp_path / "data"
    folder.mkdir()
    edges, ids = awkward_edges(), rng.permutation(211) * 10
    with gzip.open(folder / "edges.csv.gz", "wt") as stream:
        stream.write("# a comment\nw;target;source\n")
        stream.writelines(f"{a / 8};{ids[a]};{ids[b]}\n" for a, b in edges)
    rows = [f"{i},{i / 4},{'cat' if i % 3 else ''},hello,{i % 2}" for i in ids]
    (folder / "nodes.csv").write_text("id,f1,label,note,f2\n" + "\n".join(rows) + "\n")
    stored = converted(folder, tmp_path / "g", features=form)
    assert stored.names.features == ("f1", "f2")


def test_a_table_of_nodes_may_number_them_by_row(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_csv(folder / "edges.csv", awkward_edges())
    rows = [f"{i / 2},{i % 5},{('train', 'val', 'test')[i % 3]}" for i in range(1009)]
    (folder / "nodes.csv").write_text("f,label,split\n" + "\n".join(rows) + "\n")
    assert converted(folder, tmp_path / "g").num_nodes == 1009


def test_our_own_files(tmp_path):
    for name, arrays in (
        ("dense", sample_files.npz_arrays()),
        ("sparse", sample_files.sparse_npz_arrays()),
        ("columns", sample_files.npz_arrays()),
    ):
        if name == "columns":
            arrays["edge_index"] = np.asfortranarray(arrays["edge_index"])
            arrays["features"] = np.asfortranarray(arrays["features"])
        np.savez_compressed(tmp_path / f"{name}.npz", **arrays)
        stored = converted(tmp_path / f"{name}.npz", tmp_path / name)
        assert stored.is_symmetrised  # each edge is stored once
        converted(tmp_path / f"{name}.npz", tmp_path / f"{name}-as-it-is", symmetrise=False)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("edge_features", [True, False])
def test_ogb_folders(tmp_path, capsys, binary, edge_features):
    folder = sample_files.write_ogb(tmp_path / "ogbn-toy", binary=binary)
    if not edge_features and not binary:
        (folder / "raw" / "edge-feat.csv.gz").unlink()
    converted(folder, tmp_path / "g")
    streamed = binary or not edge_features
    assert ("read as a stream" in capsys.readouterr().err) is streamed


def test_what_has_no_stream_goes_by_memory_and_says_so(tmp_path, capsys):
    converted("synthetic-citation:nodes=211,seed=3", tmp_path / "made")
    assert "read into memory first, since it is made on the spot" in capsys.readouterr().err
    converted(sample_files.write_linqs(tmp_path / "linqs"), tmp_path / "l")
    converted(sample_files.write_edge_list(tmp_path / "text"), tmp_path / "t")
    assert "since its ids are text" in capsys.readouterr().err
    graph = gtjax.load("grid:rows=7,columns=5")
    converted(graph, tmp_path / "graph")


def test_real_graphs(real_graphs, tmp_path):
    converted(real_graphs / "cora.npz", tmp_path / "cora", memory=0.01)


def test_small_forms_of_features_are_close(tmp_path):
    graph = gtjax.load("synthetic-citation:nodes=211,seed=3")
    convert(graph, tmp_path / "int8", ConvertOptions(features="int8"))
    convert(graph, tmp_path / "half", ConvertOptions(features="float16"))
    int8, half = gtjax.load(tmp_path / "int8"), gtjax.load(tmp_path / "half")
    largest_n = np.abs(graph.x_nf).max(axis=1, keepdims=True)
    assert (np.abs(int8.x_nf[:] - graph.x_nf) <= largest_n / 254 * 1.0001).all()
    assert half.x_nf.dtype == np.float16
    np.testing.assert_array_equal(half.x_nf[5:9], graph.x_nf[5:9].astype(np.float16))
    assert int8.x_nf[[3, 1]].dtype == int8.x_nf.dtype == np.float32


def test_more_edges_than_fit_32_bits_have_64_bit_ids(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_module, "MOST_INT32", 1000)
    stored = converted(write_csv(tmp_path / "edges.csv", awkward_edges()), tmp_path / "g")
    assert stored.by_sender.edge_ids_e.dtype == np.int64


def refusal(data, folder):
    with pytest.raises(UserError) as caught:
        convert(data, folder, ConvertOptions(memory=LITTLE))
    # Nothing is left behind.
    assert not [path for path in folder.parent.iterdir() if folder.name in path.name]
    return str(caught.value)


def test_every_malformed_row_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(text_edges, "_FIRST_BYTES", 1000)  # where types are found
    lines = ["src,dst", *(f"{a},{b}" for a, b in awkward_edges())]
    lines[3000], lines[3001], lines[3900] = "3,x", "1,2,3", ",5"
    (tmp_path / "edges.csv").write_text("\n".join(lines))
    said = refusal(tmp_path / "edges.csv", tmp_path / "out")
    for line, why in ((3001, "'3,x' (In CSV column #1"), (3002, "Expected 2 columns, got 3")):
        assert f"line {line}: " in said
        assert why in said
    assert "line 3901: an empty id" in said
    assert "edges.csv: table: rows of 2 columns" in said
    lines = ["src,dst,w", *(f"{a},{b},1.5" for a, b in awkward_edges())]
    lines[3000], lines[3700] = "3,4,nan", "3,4,"
    (tmp_path / "edges.csv").write_text("\n".join(lines))
    said = refusal(tmp_path / "edges.csv", tmp_path / "out")
    assert "features are finite; found line 3001: [nan]; line 3701: [nan]" in said


def test_edges_to_nowhere_are_named(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    edges = awkward_edges()
    edges[3000, 0] = 99_999
    write_csv(folder / "edges.csv", edges)
    (folder / "nodes.csv").write_text("id\n" + "\n".join(map(str, range(211))) + "\n")
    said = refusal(folder, tmp_path / "out")
    assert "edges.csv: source: node numbers are in 0..210; found line 3002: 99999" in said
    (folder / "nodes.csv").write_text("id\n" + "\n".join(map(str, range(0, 2110, 10))) + "\n")
    write_csv(folder / "edges.csv", np.where(edges == 99_999, 5, edges * 10))
    said = refusal(folder, tmp_path / "out")
    assert "every edge ends at a node of the table; found line 3002: 5" in said
    arrays = sample_files.npz_arrays()
    arrays["edge_index"][1, 17] = 13
    np.savez(tmp_path / "own.npz", **arrays)
    said = refusal(tmp_path / "own.npz", tmp_path / "out")
    assert "target: node numbers are in 0..12; found edge 17: 13" in said


@pytest.mark.parametrize("text", ["", "a,b\n", "a\n1\n", "1.5,2\n2.5,3\n", "1,\n2,\n"])
def test_what_is_no_edge_list_is_refused(tmp_path, text):
    (tmp_path / "edges.csv").write_text(text)
    assert "edges.csv" in refusal(tmp_path / "edges.csv", tmp_path / "out")
    with pytest.raises(GraphFormatError):
        gtjax.load(tmp_path / "edges.csv")


def test_a_folder_that_is_there_stays(tmp_path):
    data = write_csv(tmp_path / "edges.csv", awkward_edges())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UserError, match="is written to a new folder"):
        convert(data, tmp_path / "out")
    convert(data, tmp_path / "g")
    with pytest.raises(UserError, match="holds a stored graph"):
        convert(data, tmp_path / "g")
    with pytest.raises(UserError, match="is a stored graph already"):
        convert(tmp_path / "g", tmp_path / "again")


def test_a_conversion_that_stopped_goes_on(tmp_path, monkeypatch, capsys):
    """Stopped at every commit in turn: what was done before is not done again."""
    from gtjax.datasets.conversion import workplace

    monkeypatch.setattr(workplace, "SECONDS", 0.0)
    edges = awkward_edges(count=3001)
    weights = np.arange(len(edges))
    data = write_csv(tmp_path / "e.csv", np.c_[edges, weights], "source,target,w")
    convert(data, tmp_path / "whole", ConvertOptions(memory=LITTLE))
    wanted = gtjax.load(tmp_path / "whole").files.content
    commit, stops = workplace.Workplace.commit, 0

    def one_commit(self, *sync, **changes):
        commit(self, *sync, **changes)
        if "records" not in changes:  # the first thing that is said
            raise KeyboardInterrupt

    monkeypatch.setattr(workplace.Workplace, "commit", one_commit)
    monkeypatch.setattr(workplace.Workplace, "start_over", fresh(commit))
    while not (tmp_path / "g").exists():
        try:
            convert(data, tmp_path / "g", ConvertOptions(memory=LITTLE))
        except KeyboardInterrupt:
            stops += 1
            assert stops < 200
    assert stops > 10
    assert gtjax.load(tmp_path / "g").files.content == wanted
    assert capsys.readouterr().err.count("going on with") == stops
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".g.")]


def fresh(commit):
    """`Workplace.start_over` that says so by the commit that does not stop."""
    import shutil

    def start_over(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.state = {}
        commit(self)

    return start_over


def test_two_processes_do_not_share_a_folder(tmp_path):
    from gtjax.datasets.conversion.workplace import Workplace

    data = write_csv(tmp_path / "edges.csv", awkward_edges())
    other = Workplace(tmp_path / "g", "other")
    with other.opened():
        with pytest.raises(UserError, match="another process is converting"):
            convert(data, tmp_path / "g")
        assert other.work.is_dir()
    converted(data, tmp_path / "g")


def test_data_that_changes_meanwhile_is_refused(tmp_path):
    data = write_csv(tmp_path / "edges.csv", awkward_edges())

    def change(done, text):
        if "by sender" in text:
            write_csv(data, awkward_edges(seed=1))

    with pytest.raises(UserError, match="has changed while it was converted"):
        convert(data, tmp_path / "g", ConvertOptions(memory=LITTLE), progress=change)
    assert not (tmp_path / "g").exists()


def test_runs_take_few_handles(tmp_path):
    resource = pytest.importorskip("resource")
    data = write_csv(tmp_path / "edges.csv", awkward_edges(count=30_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (here + 25, hard))
    try:
        convert(data, tmp_path / "g", ConvertOptions(memory=LITTLE))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_other_data_is_not_mixed_with_what_was_left(tmp_path, monkeypatch):
    from gtjax.datasets.conversion import workplace

    data = write_csv(tmp_path / "edges.csv", awkward_edges())
    monkeypatch.setattr(workplace, "SECONDS", 0.0)
    commit = workplace.Workplace.commit

    def stop_late(self, *sync, **changes):
        commit(self, *sync, **changes)
        if "receivers" in changes:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workplace.Workplace, "commit", stop_late)
        with pytest.raises(KeyboardInterrupt):
            convert(data, tmp_path / "g", ConvertOptions(memory=LITTLE))
    assert (tmp_path / ".g.converting").is_dir()
    write_csv(data, awkward_edges(seed=1)[:-100])
    converted(data, tmp_path / "g")


@pytest.mark.parametrize("kills", [2, slow(10)])
def test_killed_at_random_moments_the_folder_is_right_or_absent(tmp_path, kills):
    data = write_csv(tmp_path / "edges.csv", awkward_edges(nodes=2003, count=60_000))
    convert(data, tmp_path / "whole", ConvertOptions(memory=LITTLE))
    wanted = gtjax.load(tmp_path / "whole").files.content
    words = [sys.executable, "-c", KILLED, str(data), str(tmp_path / "g"), str(LITTLE)]
    draw, killed, tries = random.Random(5), 0, 0
    while killed < kills and tries < 5 * kills:
        tries += 1
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while process.poll() is None and not list(tmp_path.glob(".g.converting")):
            assert time.monotonic() - begun < 120
            time.sleep(0.005)  # imports take longer than the conversion
        time.sleep(draw.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if (tmp_path / "g").exists():
            assert gtjax.load(tmp_path / "g").files.content == wanted
            gtjax.load(tmp_path / "g").verify()
            (tmp_path / "g").rename(tmp_path / f"done-{tries}")
    assert killed
    if not (tmp_path / "g").exists():
        convert(data, tmp_path / "g", ConvertOptions(memory=LITTLE))
    assert gtjax.load(tmp_path / "g").files.content == wanted
    gtjax.load(tmp_path / "g").verify()
