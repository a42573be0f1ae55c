"""Small valid files of every format, the raw material of the tests."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

NODES = 13  # prime, so that nothing divides by accident


def edges(seed: int = 0, count: int = 31) -> np.ndarray:
    """Distinct pairs `i < j` as int32 [2, count], in random order."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(NODES, k=1)
    chosen = rng.choice(len(first), count, replace=False)
    return np.stack([first[chosen], second[chosen]]).astype(np.int32)


def features(width: int = 6) -> np.ndarray:
    """Mostly zeros, so that sparse forms have something to leave out."""
    rng = np.random.default_rng(1)
    return (rng.random((NODES, width)) * (rng.random((NODES, width)) < 0.4)).astype(np.float32)


def labels(classes: int = 3) -> np.ndarray:
    return (np.arange(NODES) % classes).astype(np.int32)


def npz_arrays() -> dict[str, np.ndarray]:
    """Our schema, undirected, dense features, two splits."""
    masks = np.zeros((3, NODES, 2), bool)
    for split in range(2):
        for kind in range(3):
            masks[kind, (np.arange(NODES) + split) % 3 == kind, split] = True
    return {
        "edge_index": edges(),
        "num_nodes": np.int32(NODES),
        "is_directed": np.bool_(False),
        "features": features(),
        "labels": labels(),
        "train_mask": masks[0],
        "val_mask": masks[1],
        "test_mask": masks[2],
        "edge_type": (np.arange(31) % 4).astype(np.int8),
        "node_year": np.arange(NODES),
    }


def sparse_npz_arrays() -> dict[str, np.ndarray]:
    """Our schema with sparse features and a single split."""
    arrays = npz_arrays()
    matrix = csr_matrix(arrays.pop("features"))
    arrays |= {
        "feat_data": matrix.data,
        "feat_indices": matrix.indices.astype(np.uint16),
        "feat_indptr": matrix.indptr,
        "feat_shape": np.array(matrix.shape, np.int32),
    }
    return arrays | {f"{k}_mask": arrays[f"{k}_mask"][:, 0] for k in ("train", "val", "test")}


def gnn_benchmark_arrays() -> dict[str, np.ndarray]:
    sender, receiver = edges()
    adjacency = csr_matrix((np.ones(len(sender), np.float32), (sender, receiver)), (NODES, NODES))
    attributes = csr_matrix(features())
    return {
        "adj_data": adjacency.data,
        "adj_indices": adjacency.indices,
        "adj_indptr": adjacency.indptr,
        "adj_shape": np.array(adjacency.shape),
        "attr_data": attributes.data,
        "attr_indices": attributes.indices,
        "attr_indptr": attributes.indptr,
        "attr_shape": np.array(attributes.shape),
        "labels": labels(),
    }


def write_linqs(folder: Path, stem: str = "toy") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        "\t".join([f"p{i}", *(f"{value:g}" for value in row), ("ml", "ai", "db")[label]])
        for i, (row, label) in enumerate(zip(features(), labels(), strict=True))
    ]
    (folder / f"{stem}.content").write_text("\n".join(rows) + "\n")
    pairs = [f"p{cited}\tp{citing}" for cited, citing in edges().T]
    (folder / f"{stem}.cites").write_text("\n".join([*pairs, "p0\tunknown", "p3\tp3"]) + "\n")
    return folder


def csv_lines(table: np.ndarray) -> str:
    return "".join(",".join(f"{v:g}" for v in np.atleast_1d(row)) + "\n" for row in table)


def write_ogb(folder: Path, *, binary: bool = False) -> Path:
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    if binary:
        np.savez_compressed(
            folder / "raw" / "data.npz",
            edge_index=edges().astype(np.int64),
            num_nodes_list=np.array([NODES]),
            num_edges_list=np.array([31]),
            node_feat=features(),
            edge_feat=np.arange(31.0)[:, None],
            node_year=np.arange(NODES)[:, None],
        )
        np.savez(folder / "raw" / "node-label.npz", node_label=labels()[:, None].astype(float))
    else:
        write_gz(folder / "raw" / "edge.csv.gz", csv_lines(edges().T))
        write_gz(folder / "raw" / "num-node-list.csv.gz", f"{NODES}\n")
        write_gz(folder / "raw" / "num-edge-list.csv.gz", "31\n")
        write_gz(folder / "raw" / "node-feat.csv.gz", csv_lines(features()))
        write_gz(folder / "raw" / "edge-feat.csv.gz", csv_lines(np.arange(31.0)))
        write_gz(folder / "raw" / "node-label.csv.gz", csv_lines(labels()))
    for name, start in (("train", 0), ("valid", 5), ("test", 9)):
        nodes = np.arange(start, start + 4)
        write_gz(folder / "split" / "time" / f"{name}.csv.gz", csv_lines(nodes))
    return folder


def write_gz(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def write_edge_list(folder: Path) -> Path:
    """A CSV of edges with weights and a CSV of nodes whose ids are strings."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"n{i},n{j},{k / 2},note" for k, (i, j) in enumerate(edges().T)]
    (folder / "edges.csv").write_text("src,dst,weight,comment\n" + "\n".join(lines) + "\n")
    splits = ("train", "val", "test", "")
    lines = [
        f"n{i},{x[0]},{x[1]},{('red', 'blue')[i % 2]},{splits[i % 4]}"
        for i, x in enumerate(features())
    ]
    (folder / "nodes.csv").write_text("id,a,b,label,split\n" + "\n".join(lines) + "\n")
    return folder
