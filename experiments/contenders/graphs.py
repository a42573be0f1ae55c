"""The graphs of the comparison, and how they are written for the contenders.

Each shows another side: skewed degrees as in citation graphs, none of that skew, many edges a node
with narrow heads, and a real topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import gtjax
from contenders.case import Case, CaseFolder
from contenders.work import Absent

REAL = ("ogbn-arxiv", "web-cnr-2000")


@dataclass(frozen=True)
class Problem:
    """A graph by the name that `gtjax.load` knows, the shape of the heads, and what is timed."""

    graph: str
    small: str  # in its place for a smoke run
    heads: int
    width: int
    kind: str = "attention"
    shuffled: bool = False  # nodes in no order at all
    # Who takes part: all, or those that show what an order of the nodes is worth.
    contenders: tuple[str, ...] | None = None


_FIRST = "rmat:nodes=170000,edges=2300000"
_MODEL = "features=128,classes=40"  # as ogbn-arxiv has

PROBLEMS = {
    "arxiv-like": Problem(f"{_FIRST},features=1", "rmat:nodes=307,edges=2000,features=1", 8, 16),
    "uniform": Problem(
        "uniform:nodes=170000,edges=2400000,features=1",
        "uniform:nodes=307,edges=2000,features=1",
        *(8, 16),
    ),
    "dense": Problem(
        "rmat:nodes=132000,edges=10000000,features=1", "rmat:nodes=211,edges=4000,features=1", 8, 8
    ),
    REAL[0]: Problem(REAL[0], REAL[0], 8, 16),
    **{
        f"{name}, shuffled": Problem(
            name, name, 8, 16, shuffled=True, contenders=("cpu", "cpu-ordered", "gather")
        )
        for name in REAL
    },
    "training step": Problem(
        f"{_FIRST},{_MODEL}", "rmat:nodes=307,edges=2000,features=8,classes=4", 8, 16, "step"
    ),
}
LAYERS = 3


def write_case(problem: Problem, path: Path, data: Path | None, *, small: bool) -> Case:
    """Load or make the graph, draw the arrays of the op, and write all of it into a folder."""
    graph = _load(problem, data, small=small)
    rows = graph.by_receiver
    ends = {
        "senders_e": rows.neighbours_e.astype(np.int32),
        "receivers_e": graph.receivers_e[rows.edge_ids_e].astype(np.int32),
    }
    sizes = (graph.num_nodes, graph.num_edges, problem.heads, problem.width)
    if problem.kind == "step":
        case = Case("step", *sizes, LAYERS, graph.num_features, graph.num_classes)
        arrays = {
            "x_nf": graph.x_nf.astype(np.float32),
            "labels_n": graph.labels_n.astype(np.int32),
            "train_n": np.array(graph.split_n["train"]),
        }
    else:
        case = Case("attention", *sizes)
        rng = np.random.default_rng(0)
        shape = (graph.num_nodes, problem.heads, problem.width)
        names = ("q_nhd", "k_nhd", "v_nhd", "dout_nhd")
        arrays = {name: rng.standard_normal(shape, np.float32) for name in names}
    CaseFolder(path).write(case, **ends, **arrays)
    return case


def _load(problem: Problem, data: Path | None, *, small: bool) -> gtjax.Graph:
    if problem.graph not in REAL:
        return gtjax.load(problem.small if small else problem.graph)
    if data is None:
        raise Absent(f"--data FOLDER says where {problem.graph}.npz is")
    path = data / f"{problem.graph}.npz"
    if not path.is_file():
        raise Absent(f"{problem.graph}.npz is not in the folder of --data")
    graph = gtjax.load(path).symmetrised()
    if problem.shuffled:
        graph = graph.reordered(np.random.default_rng(0).permutation(graph.num_nodes))
    return graph
