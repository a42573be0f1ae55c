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
from contenders.kinds import GRADIENT, OP_KINDS
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
STEPS = 4096  # of numbers that are added up, in 1
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
    if problem.kind != "step":
        return write_op(problem.kind, graph, problem.heads, problem.width, path)
    sizes = (graph.num_nodes, graph.num_edges, problem.heads, problem.width)
    case = Case("step", *sizes, LAYERS, graph.num_features, graph.num_classes)
    arrays = {
        "x_nf": graph.x_nf.astype(np.float32),
        "labels_n": graph.labels_n.astype(np.int32),
        "train_n": np.array(graph.split_n["train"]),
    }
    CaseFolder(path).write(case, **_ends(graph), **arrays)
    return case


def write_op(kind: str, graph: gtjax.Graph, heads: int, width: int, path: Path) -> Case:
    """Draw the arrays of an op over a graph, and write both into a folder."""
    case, rng = Case(kind, graph.num_nodes, graph.num_edges, heads, width), np.random.default_rng(0)
    length = {"n": case.nodes, "e": case.edges, "h": heads, "d": width}
    op, arrays = OP_KINDS[kind], {}
    for name in (*op.inputs, *op.constants, GRADIENT):
        shape = tuple(length[axis] for axis in name.partition("_")[2])
        arrays[name] = rng.standard_normal(shape, np.float32)
    if kind == "max":
        # No two nodes have the same value, since contenders differ in whom of them they credit; and
        # none has 0, of which torch credits a part to the zeros that it starts from.
        ranks = rng.permuted(np.arange(case.nodes)[:, None].repeat(heads * width, axis=1), axis=0)
        arrays["x_nhd"] = ((ranks + 1 / 3) / case.nodes - 0.5).astype(np.float32)
        arrays["x_nhd"] = arrays["x_nhd"].reshape(-1, heads, width)
    if kind in ("gat", "gatv2"):
        # No sum of a receiver's and a sender's number is 0, where contenders choose another slope.
        receiver, sender, *_ = op.inputs
        for name, odd in ((receiver, 0.5), (sender, 0.0)):
            arrays[name] = ((np.round(arrays[name] * STEPS) + odd) / STEPS).astype(np.float32)
    CaseFolder(path).write(case, **_ends(graph), **arrays)
    return case


def _ends(graph: gtjax.Graph) -> dict[str, np.ndarray]:
    rows = graph.by_receiver
    return {
        "senders_e": rows.neighbours_e.astype(np.int32),
        "receivers_e": graph.receivers_e[rows.edge_ids_e].astype(np.int32),
    }


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
