"""Names, options and paths: what `load` makes of a string, and how it answers mistakes."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sample_files import npz_arrays, write_edge_list

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import Limits, load

pytestmark = pytest.mark.usefixtures("fake_generators")


def test_a_generator_is_called_with_its_options_converted():
    graph = load("ring:nodes=1.1e1, weight=2,closed=false")
    assert (graph.num_nodes, graph.num_edges) == (11, 10)
    assert graph.x_nf[0, 0] == 2
    assert load("ring").num_nodes == 5
    assert load("ring:nodes=1_000").num_nodes == 1000


def test_the_real_generators_can_be_called_by_name(monkeypatch):
    monkeypatch.delitem(sys.modules, "gtjax.graph.generators")
    table = pytest.importorskip("gtjax.graph.generators").GENERATORS
    for name in table:
        graph = load(name, seed=1)
        assert graph.fingerprint == load(f"{name}:seed=1").fingerprint
        assert graph.fingerprint != load(f"{name}:features=3,seed=1").fingerprint


def test_the_seed_of_load_reaches_generators_that_take_one():
    assert load("ring", seed=4).x_nf[0, 0] == 5
    assert load("ring:seed=7", seed=4).x_nf[0, 0] == 8
    assert load("grid", seed=4).num_nodes == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ring:node=3", "no option 'node'; its options are nodes, weight, closed, seed. Did you"),
        ("ring:nodes=2.5", "an integer, such as 1000 or 1e6: '2.5' is not"),
        ("ring:nodes=many", "'many' is not"),
        ("ring:nodes=inf", "'inf' is not"),
        ("ring:weight=heavy", "is a number: 'heavy' is not"),
        ("ring:closed=perhaps", "true or false: 'perhaps' is not"),
        ("ring:nodes", "written key=value: 'nodes' is not"),
        ("ring:nodes=3,nodes=4", "given twice"),
        ("rng", "Did you mean ring"),
        ("rng:nodes=3", "Did you mean ring"),
        ("ogbn-arxive", "Did you mean ogbn-arxiv"),
        ("ogbn-arxiv:split=1", "takes no options"),
        ("/dev/null", "neither a file nor a folder"),
        ("xyzzy", "Run `gtjax datasets`"),
        ("no/such/file.npz", "neither a file nor"),
        ("\0", "neither a file nor"),
        ("x" * 5000, "not a usable path"),
    ],
)
def test_a_mistake_is_answered_with_the_next_step(text, message):
    with pytest.raises(UserError) as caught:
        load(text)
    assert message in str(caught.value)
    assert not isinstance(caught.value, GraphFormatError)


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    np.savez(tmp_path / "cora.npz", **npz_arrays())
    with pytest.raises(UserError, match=r"Did you mean cora\.npz"):
        load(tmp_path / "coar.npz")


def test_names_win_over_files_and_paths_reach_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_edge_list(tmp_path / "grid")
    assert load("grid").num_nodes == 4
    assert load("./grid").num_nodes == 13
    assert load(tmp_path / "grid").num_nodes == 13


@pytest.mark.parametrize("options", [{"split": -1}, {"seed": -1}])
def test_negative_numbers_are_refused(options):
    with pytest.raises(UserError, match="0 or more"):
        load("ring", **options)


@pytest.mark.parametrize(
    "name", ["ind.cora.graph", "ind.cora.x", "a.pkl", "a.pickle", "a.pt", "a.pth", "a.p", "a.bin"]
)
def test_pickles_are_refused_with_a_way_out(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps({0: [1]}))
    way = (
        r"gtjax\.from_pyg\(dataset\[0\]\); gtjax\.save_npz" if ".pt" in name else "LINQS.*save_npz"
    )
    with pytest.raises(GraphFormatError, match=way) as caught:
        load(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)


def test_a_folder_of_planetoid_files_is_refused_too(tmp_path):
    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps({0: [1]}))
    with pytest.raises(GraphFormatError, match="no pickles"):
        load(tmp_path)


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    (tmp_path / "graph.xml").write_text("<graph/>")
    for path in (tmp_path, tmp_path / "graph.xml"):
        with pytest.raises(GraphFormatError, match=r"gtjax \.npz.*edge list") as caught:
            load(path)
        assert caught.value.file == str(path)


def test_running_out_of_memory_is_reported_as_a_size(tmp_path, monkeypatch):
    np.savez(tmp_path / "toy.npz", **npz_arrays())

    def too_large(self):
        raise MemoryError

    monkeypatch.setattr("gtjax.graph.Graph.symmetrised", too_large)
    with pytest.raises(GraphFormatError, match="fits in memory"):
        load(tmp_path / "toy.npz")


def test_programming_errors_are_not_hidden(tmp_path, monkeypatch):
    np.savez(tmp_path / "toy.npz", **npz_arrays())

    def broken(self):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("gtjax.graph.Graph.symmetrised", broken)
    with pytest.raises(KeyError, match="a mistake of ours"):
        load(tmp_path / "toy.npz", limits=Limits())


def test_importing_the_package_is_light():
    heavy = ("pyarrow", "rich", "urllib.request", "jax", "platformdirs")
    program = f"import sys, gtjax.datasets; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
