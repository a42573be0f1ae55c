"""Graphs to PyG and back: run by a Python that has torch, not imported by the tests.

    python pyg_round_trip.py ROOT PACKAGES FOLDER

PACKAGES is a folder of packages, for what that Python lacks beside torch. Reads one.npz and
many.npz of FOLDER; writes one.again.npz, and the many as list.again.npz and batch.again.npz.
"""

import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])

import torch
from torch_geometric.data import Batch, Data, HeteroData

from gtjax.core.errors import UserError
from gtjax.datasets import load, save_npz
from gtjax.graph import from_pyg, to_pyg

folder = Path(sys.argv[3])
one = to_pyg(load(folder / "one.npz"))
assert isinstance(one, Data)
assert one.validate()
assert one.y.dtype == torch.long
one.x.requires_grad_()
save_npz(from_pyg(one), folder / "one.again.npz")

many = to_pyg(load(folder / "many.npz"))
assert [each.num_nodes for each in many] == [3, 2]
save_npz(from_pyg(many), folder / "list.again.npz")
save_npz(from_pyg(Batch.from_data_list(many)), folder / "batch.again.npz")

mixed = HeteroData()
mixed["paper"].x = torch.zeros(2, 1)
mixed["paper", "cites", "paper"].edge_index = torch.zeros(2, 1, dtype=torch.long)
said = ""
try:
    from_pyg(mixed)
except UserError as error:
    said = str(error)
assert "to_homogeneous" in said
