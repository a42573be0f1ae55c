"""What people get wrong, at the public surface: one clear error each, and never a traceback."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import gtjax
from gtjax.cli.main import main

GRAPH = gtjax.from_edges(
    [(0, 1), (1, 2), (2, 3)],
    x_nf=np.eye(4),
    labels_n=[0, 1, 0, 1],
    split_n={"train": [0, 1], "val": [2], "test": [3]},
    name="toy",
)
BARE = gtjax.from_edges([(0, 1)], x_nf=np.eye(2), name="bare")
EDGES = np.array([[0, 1], [1, 2]])
CONFIG = gtjax.TrainConfig(steps=1)


def like(module: str, name: str) -> object:
    """An object of a type of a library that need not be installed."""
    return type(name, (), {"__module__": module})()


# What is called, and a part of what has to be said: the next step, or the value that is wrong.
PYTHON = {
    "fit: none": (lambda: gtjax.fit(None), r"Write gtjax\.load\(name_or_path\)"),
    "fit: number": (lambda: gtjax.fit(3), r"found int\. Write gtjax\.load"),
    "fit: unknown name": (lambda: gtjax.fit("coraa"), "Did you mean cora_"),
    "fit: missing file": (lambda: gtjax.fit("nope/graph.npz"), "neither a file nor the name"),
    "fit: long name": (lambda: gtjax.fit("x" * 5000), "not a usable path"),
    "fit: NUL in a name": (lambda: gtjax.fit("x\0y"), "usable path|neither a file"),
    "fit: tuple": (lambda: gtjax.fit((EDGES, EDGES)), "found tuple. Write gtjax"),
    "fit: array": (lambda: gtjax.fit(EDGES), r"gtjax\.from_edges\(it"),
    "fit: list of graphs": (lambda: gtjax.fit([GRAPH, GRAPH]), r"gtjax\.many_graphs\(it"),
    "fit: networkx": (lambda: gtjax.fit(nx.path_graph(3)), r"gtjax\.from_networkx\(it"),
    "fit: scipy": (lambda: gtjax.fit(sp.eye_array(3).tocsr()), r"gtjax\.from_scipy\(it"),
    "fit: pandas": (lambda: gtjax.fit(like("pandas", "DataFrame")), r"gtjax\.from_pandas"),
    "fit: pyg": (
        lambda: gtjax.fit(like("torch_geometric.data.data", "Data")),
        r"gtjax\.from_pyg\(it\)",
    ),
    "fit: dgl": (lambda: gtjax.fit(like("dgl.heterograph", "DGLGraph")), r"gtjax\.from_dgl\(it\)"),
    "fit: a function of no graph": (lambda: gtjax.fit(lambda: EDGES), r"gtjax\.from_edges\(it"),
    "fit: no labels": (lambda: gtjax.fit(BARE, config=CONFIG), "has no labels"),
    "fit: config as model": (lambda: gtjax.fit(GRAPH, CONFIG), r"config=|config\b"),
    "fit: config of another kind": (lambda: gtjax.fit(GRAPH, config={"steps": 3}), "TrainConfig"),
    "fit: unknown model": (lambda: gtjax.fit(GRAPH, "gta", CONFIG), "Did you mean 'gat'"),
    "fit: number as model": (lambda: gtjax.fit(GRAPH, 3, CONFIG), "model"),
    "fit: unknown task": (lambda: gtjax.fit(GRAPH, config=CONFIG, task="nodd"), "'node'"),
    "fit: number as task": (lambda: gtjax.fit(GRAPH, config=CONFIG, task=3), "task"),
    "fit: another plan": (lambda: gtjax.fit(GRAPH, config=CONFIG, plan="auto"), r"gtjax\.plan"),
    "plan: none": (lambda: gtjax.plan(None), r"plan takes a gtjax\.Graph"),
    "plan: unknown name": (lambda: gtjax.plan("coraa"), "Did you mean"),
    "plan: array": (lambda: gtjax.plan(EDGES), r"gtjax\.from_edges"),
    "plan: config": (lambda: gtjax.plan(GRAPH, config=3), "TrainConfig"),
    "bind: name": (lambda: gtjax.bind("cora_ml"), r"gtjax\.load\('cora_ml'\)"),
    "bind: none": (lambda: gtjax.bind(None), r"bind takes a gtjax\.Graph"),
    "bind: parallel": (lambda: gtjax.bind(GRAPH, 2), "ParallelConfig"),
    "partition: name": (lambda: gtjax.partition_graph("cora_ml", 2), r"gtjax\.load\('cora_ml'\)"),
    "partition: networkx": (
        lambda: gtjax.partition_graph(nx.path_graph(3), 2),
        r"gtjax\.from_networkx",
    ),
    "partition: parts": (lambda: gtjax.partition_graph(GRAPH, 0), "Ask for as many parts"),
    "partition: words": (lambda: gtjax.partition_graph(GRAPH, "two"), "found 'two'"),
    "partition: how": (lambda: gtjax.partition_graph(GRAPH, 2, "metiss"), "Choose one"),
    "partition: how, a number": (lambda: gtjax.partition_graph(GRAPH, 2, 3), "Choose one"),
    "save: none": (lambda: gtjax.save_npz(None, "x.npz"), "save_npz takes a"),
    "save: swapped": (lambda: gtjax.save_npz("x.npz", GRAPH), r"gtjax\.load\('x\.npz'\)"),
    "save: no path": (lambda: gtjax.save_npz(GRAPH, 3), "the path of a file; found int"),
    "save: no folder": (lambda: gtjax.save_npz(GRAPH, "no/such/x.npz"), "create it"),
    "save: a folder": (lambda: gtjax.save_npz(GRAPH, "."), "cannot"),
    "step_cost: none": (lambda: gtjax.step_cost(None, CONFIG), "step_cost takes a"),
    "step_cost: config": (lambda: gtjax.step_cost(GRAPH, 3), "TrainConfig"),
    "statistics: none": (lambda: gtjax.statistics(None), "statistics takes a"),
    "locality_order: array": (lambda: gtjax.locality_order(EDGES), r"gtjax\.from_edges"),
    "load: none": (lambda: gtjax.load(None), "name of a data set or a path; found NoneType"),
    "load: graph": (lambda: gtjax.load(GRAPH), "found Graph"),
    "load: empty": (lambda: gtjax.load(""), "."),
    "load: split in words": (lambda: gtjax.load("grid", split="60/20/20"), "random:60/20/20"),
    "load: split": (lambda: gtjax.load("grid", split=0.5), "whole numbers"),
    "load: seed": (lambda: gtjax.load("grid", seed=None), "whole numbers"),
    "load: option": (lambda: gtjax.load("grid:size=3"), "its options are"),
    "load: option of no number": (lambda: gtjax.load("rmat:nodes=many"), "an integer, such as"),
    "edges: none": (lambda: gtjax.from_edges(None), "pairs"),
    "edges: text": (lambda: gtjax.from_edges("edges.csv"), "edges"),
    "edges: reals": (lambda: gtjax.from_edges([(0.5, 1)]), "integers"),
    "edges: triples": (lambda: gtjax.from_edges([(0, 1, 2)]), r"\[edges, 2\]"),
    "edges: names": (lambda: gtjax.from_edges([("a", "b")]), "integers"),
    "edges: too few features": (lambda: gtjax.from_edges([(0, 5)], x_nf=np.eye(3)), "0..2"),
    "edges: features of text": (lambda: gtjax.from_edges([(0, 1)], x_nf=[["a"], ["b"]]), "numbers"),
    "edges: ragged": (lambda: gtjax.from_edges([(0, 1)], x_nf=[[1], [1, 2]]), "rectangular"),
    "edges: labels": (lambda: gtjax.from_edges([(0, 1)], labels_n=[0, -5]), "-1.."),
    "edges: one label": (lambda: gtjax.from_edges([(0, 1)], labels_n=3), "row a node|labels"),
    "edges: split": (lambda: gtjax.from_edges([(0, 1)], split_n=[0]), "mapping"),
    "edges: name": (lambda: gtjax.from_edges([(0, 1)], name=3), "a name is text"),
    "scipy: array of edges": (lambda: gtjax.from_scipy([(0, 1)]), r"gtjax\.from_edges"),
    "networkx: none": (lambda: gtjax.from_networkx(None), "takes a networkx graph"),
    "jraph: none": (lambda: gtjax.from_jraph(None), "takes a jraph"),
    "pyg: none": (lambda: gtjax.from_pyg(None), r"gtjax\.from_edges"),
    "pyg: hetero": (
        lambda: gtjax.from_pyg(SimpleNamespace(edge_types=[], node_types=[])),
        "to_homogeneous",
    ),
    "dgl: none": (lambda: gtjax.from_dgl(None), r"gtjax\.from_edges"),
    "to_pyg: none": (lambda: gtjax.to_pyg(None), r"gtjax\.Graph"),
    "many: graph": (lambda: gtjax.many_graphs(GRAPH, [0]), "a list of"),
    "many: labels": (lambda: gtjax.many_graphs([GRAPH], [0, 1]), "one label for each of 1"),
    "splits: shares": (lambda: GRAPH.with_random_splits(60, 20, 20), "such as 0.6"),
    "splits: name": (lambda: GRAPH.with_splits(valid=[0]), "train, val or test"),
    "config: missing file": (lambda: gtjax.read_config("no.toml"), "cannot read"),
}

COMMAND_LINE = [
    (["train", "--data", "nope.csv"], "neither a file nor the name"),
    (["train", "--data", "coraa"], "Did you mean"),
    (["train", "--split", "60/20/20"], "random:60/20/20"),
    (["train", "--split", "random:60/60/60"], "at most 1"),
    (["train", "--split", "-1"], "split is not negative"),
    (["train", "--data", ""], "."),
    (["train", "--config", "no.toml"], "cannot read the config"),
    (["train", "--model", "gta"], "Did you mean 'gat'"),
    (["train", "--task", "nodd"], "Did you mean 'node'"),
    (["train", "--steps", "-3"], "steps is at least 1"),
    (["evaluate", "nowhere"], "not the folder of a run"),
    (["resume", "nowhere"], "not the folder of a run"),
    (["predict", "nowhere", "--out", "p.npz"], "not the folder of a run"),
    (["predict", "nowhere", "--out", "p.txt"], "ends in .npz, .parquet, .csv"),
    (["partition", "grid", "-k", "0"], "Ask for as many parts"),
    (["partition", "nope", "-k", "2"], "gtjax datasets"),
    (["partition", "grid", "-k", "2", "--how", "metiss"], "Choose one"),
    (["plan"], "takes a data set, or --nodes and --edges"),
    (["plan", "coraa"], "Did you mean"),
    (["datasets", "nope.npz"], "neither a file nor the name"),
    (["trian"], "Did you mean 'train'"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "cache"))
    yield
    left = [path.name for path in tmp_path.iterdir()]
    assert set(left) <= {"cache"}, "something was written before the mistake was found"


@pytest.mark.parametrize(("call", "said"), PYTHON.values(), ids=PYTHON)
def test_a_mistake_in_python_is_a_users_error(call, said):
    with pytest.raises(gtjax.UserError, match=said) as caught:
        call()
    assert len(str(caught.value)) < 600
    assert str(caught.value)[0] != "<"


@pytest.mark.parametrize(("argv", "said"), COMMAND_LINE, ids=[" ".join(a) for a, _ in COMMAND_LINE])
def test_a_mistake_on_the_command_line_is_one_message(argv, said, capfd):
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    printed = capfd.readouterr()
    assert code == 2
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert said in " ".join(printed.err.split())


def test_there_are_enough_of_them():
    assert len(PYTHON) + len(COMMAND_LINE) >= 40
