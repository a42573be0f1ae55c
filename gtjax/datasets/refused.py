"""Files that are pickles: recognised so that they can be refused with a way out.

Loading a pickle runs whatever code it contains. Planetoid's `ind.*` files and PyTorch's `.pt` are
pickles; the same graphs exist in forms that are only data.
"""

from __future__ import annotations

from pathlib import Path

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import Graph

_SUFFIXES = {".p", ".pkl", ".pickle", ".pt", ".pth", ".joblib", ".npy"}


def recognises(path: Path) -> bool:
    """A pickle by its name or first bytes, or a folder of Planetoid's files."""
    if path.is_dir():
        return any(path.glob("ind.*.graph"))
    if path.name.startswith("ind.") or path.suffix.lower() in _SUFFIXES:
        return True
    with path.open("rb") as file:
        start = file.read(2)
    return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def read(path: Path, options: ReadOptions) -> Graph:
    """Refuse, and say what to use instead."""
    del options
    if path.suffix.lower() in (".pt", ".pth"):
        rule = (
            "no pickles, which run code when loaded: load the data set where it was made, then "
            'g = gtjax.from_pyg(dataset[0]); gtjax.save_npz(g, "file.npz")'
        )
    else:
        rule = (
            "no pickles, which run code when loaded, nor single arrays: use the LINQS text form "
            "(.content and .cites), or convert what a tool you trust loads with gtjax.from_edges, "
            "from_scipy or from_networkx, and gtjax.save_npz"
        )
    raise GraphFormatError("format", rule, path.name)
