"""Calls METIS, in a process of its own: `python -P metis_process.py FOLDER`.

Native code can end its process or hang it, which should not cost the user a session with a graph in
memory. It reads `offsets.npy`, `neighbours.npy`, `vertex_weights.npy`, perhaps `edge_weights.npy`,
and `request.json` from the folder, and writes `owner.npy`. It imports nothing of ours, so it starts
in a fraction of a second and never loads jax.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main(folder: Path) -> None:
    """Read the request, partition, and write the owners."""
    import pymetis

    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    offsets, neighbours, vertex_weights = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("offsets", "neighbours", "vertex_weights")
    )
    check_rows(offsets, neighbours, vertex_weights)
    edge_file = folder / "edge_weights.npy"
    edge_weights = np.load(edge_file, allow_pickle=False) if edge_file.exists() else None
    _, owner = pymetis.part_graph(
        request["num_parts"],
        pymetis.CSRAdjacency(offsets, neighbours),
        vweights=vertex_weights,
        eweights=edge_weights,
        # Recursive bisection, its default up to 8 parts, cut ogbn-arxiv a tenth worse and left
        # up to 1.4 times as many nodes in a part.
        recursive=False,
        options=pymetis.Options(seed=request["seed"]),
    )
    np.save(folder / "owner.npy", np.asarray(owner, np.int32), allow_pickle=False)


def check_rows(offsets: np.ndarray, neighbours: np.ndarray, vertex_weights: np.ndarray) -> None:
    """METIS reads and writes out of bounds on rows that break these rules."""
    num_nodes = len(offsets) - 1
    good = (
        num_nodes >= 1
        and offsets[0] == 0
        and offsets[-1] == len(neighbours)
        and (np.diff(offsets) >= 0).all()
        and (not len(neighbours) or 0 <= neighbours.min() <= neighbours.max() < num_nodes)
        and len(vertex_weights) == num_nodes
        and vertex_weights.min() >= 0
    )
    if not good:
        raise ValueError("the compressed rows are malformed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
