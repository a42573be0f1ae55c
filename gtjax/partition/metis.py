"""METIS: the best cut for its time, where the graph fits in memory a few times over.

Multilevel k-way partitioning (Karypis and Kumar 1998) through pymetis, an optional package. Each
node weighs its in-edges, since those are the work; METIS by itself balances nodes, which leaves one
device of eight with up to four times its share of the edges of a power-law graph. pymetis offers
one weight a node, so parts can end with twice the mean number of nodes: rounds of label propagation
bring that to 1.5 where it is possible without unequal edges (`balance.py`).

A graph with edges in one direction only is cut as if they went both ways, each pair of neighbours
weighted by the number of edges between them; self-loops are left out. METIS runs in a process of
its own.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gtjax.core.errors import UserError
from gtjax.core.progress import Progress, ignore_progress
from gtjax.graph import Graph
from gtjax.partition.balance import METIS_SLACK_C, split_evenly, work_n, work_nc
from gtjax.partition.graph_stream import graph_chunks
from gtjax.partition.multilevel import Level, refine
from gtjax.partition.partition import Partition, check_num_parts

PROGRAM = Path(__file__).with_name("metis_process.py")
LONGEST_SECONDS = 6 * 3600.0
QUIET_SECONDS = 2.0
ROUNDS = 4  # of repair
MOST_EDGES = 2**30  # both directions of each, and METIS may count in 32 bits


def is_installed() -> bool:
    """Whether pymetis is there."""
    return importlib.util.find_spec("pymetis") is not None


def metis(
    graph: Graph, num_parts: int, *, seed: int = 0, progress: Progress | None = None
) -> Partition:
    """Cut few edges, with equally many in-edges in every part."""
    check_num_parts(num_parts)
    progress = progress or ignore_progress
    if not is_installed():
        raise UserError(
            "the partitioner 'metis' needs pymetis, which is not installed. "
            "Install it with: pip install \"gtjax[partition]\", or choose 'streaming'."
        )
    if graph.num_edges > MOST_EDGES:
        raise UserError(
            f"METIS takes up to {MOST_EDGES:,} edges; found {graph.num_edges:,}. "
            "Choose 'streaming'."
        )
    degrees_n = np.bincount(graph.receivers_e, minlength=graph.num_nodes)
    if graph.num_nodes <= num_parts:
        return Partition(np.arange(graph.num_nodes), num_parts)
    with tempfile.TemporaryDirectory(prefix="gtjax-metis-") as name:
        folder = Path(name)
        if not _write_request(folder, graph, degrees_n, num_parts, seed):
            return Partition(split_evenly(work_n(degrees_n), num_parts), num_parts)
        _wait(folder, progress)
        owner_n = _read_answer(folder, graph.num_nodes, num_parts)
    progress(0.7, "METIS is done; balancing")
    work = work_nc(degrees_n)
    capacity_c = np.maximum((1 + METIS_SLACK_C) * work.sum(axis=0) / num_parts, 1.0)
    level = Level(*graph_chunks(graph), work)
    rng = np.random.default_rng(seed)
    owner_n = refine(level, owner_n, num_parts, capacity_c, rng, ROUNDS)
    progress(1.0, "METIS")
    return Partition(owner_n, num_parts)


def neighbour_counts(graph: Graph) -> sp.csr_array:
    """Number of edges between every two neighbours, symmetric, without the diagonal."""
    apart_e = graph.senders_e != graph.receivers_e
    ends = (graph.receivers_e[apart_e], graph.senders_e[apart_e])
    ones_e = np.ones(len(ends[0]), np.int32)
    rows = sp.csr_array((ones_e, ends), shape=(graph.num_nodes, graph.num_nodes))
    return sp.csr_array(rows + rows.T)


def _write_request(
    folder: Path, graph: Graph, degrees_n: np.ndarray, num_parts: int, seed: int
) -> bool:
    """Write what METIS's process reads; False if no node has a neighbour."""
    rows = neighbour_counts(graph)
    if not rows.nnz:
        return False
    arrays = {
        "offsets": rows.indptr,
        "neighbours": rows.indices,
        "vertex_weights": degrees_n,
    }
    if rows.data.min() != rows.data.max():
        arrays["edge_weights"] = rows.data
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.astype(np.int64), allow_pickle=False)
    request = {"num_parts": num_parts, "seed": seed % 2**31}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    return True


def _read_answer(folder: Path, num_nodes: int, num_parts: int) -> np.ndarray:
    owner_n = np.load(folder / "owner.npy", allow_pickle=False)
    if owner_n.shape != (num_nodes,) or owner_n.min() < 0 or owner_n.max() >= num_parts:
        raise UserError(
            f"METIS gave owners {list(owner_n.shape)} in {owner_n.min()}..{owner_n.max()}, not one "
            f"of 0..{num_parts - 1} for each of {num_nodes} nodes. Choose 'streaming'."
        )
    return owner_n


def _wait(folder: Path, progress: Progress) -> None:
    """Run METIS on the folder; whatever ends it early is an error that says so."""
    command = [sys.executable, "-P", str(PROGRAM), str(folder)]
    output = folder / "output.txt"
    started = time.monotonic()
    with output.open("wb") as stream:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            while child.poll() is None:
                seconds = time.monotonic() - started
                if seconds > LONGEST_SECONDS:
                    raise UserError(
                        f"METIS did not end within {LONGEST_SECONDS:.0f} s and was stopped. "
                        "Choose 'streaming'."
                    )
                if seconds > QUIET_SECONDS:
                    progress(0.0, f"METIS is still running, {seconds:.0f} s")
                try:
                    child.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            child.kill()
            child.wait()
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        perhaps = ": perhaps memory ran out" if name == "SIGKILL" else ""
        raise UserError(f"METIS was ended by {name}{perhaps}. Choose 'streaming'.")
    if child.returncode:
        said = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        raise UserError(
            f"METIS failed with exit code {child.returncode}: {last}. Choose 'streaming'."
        )
