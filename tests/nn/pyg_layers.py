"""PyG's layers on given weights: run by a Python that has torch, not imported by the tests.

    python pyg_layers.py FOLDER

For every NAME.in.npz in the folder it writes NAME.out.npz. The first has `kind`, `senders`,
`receivers`, `x`, `dout`, maybe `edge_x`, and parameters under the names that PyG gives them; the
second the output as `out`, and gradients of `(out * dout).sum()` by name.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric import nn


def made(kind: str, given: dict[str, np.ndarray]) -> torch.nn.Module:
    """The layer, with weights still its own."""
    inputs, outputs = given["x"].shape[1], given["dout"].shape[1]
    edge_dim = given["edge_x"].shape[1] if "edge_x" in given else None
    heads = int(given["heads"]) if "heads" in given else 1
    if kind == "gcn":
        return nn.GCNConv(inputs, outputs, add_self_loops=False)
    if kind.startswith("sage"):
        return nn.SAGEConv(inputs, outputs, aggr=kind.removeprefix("sage_"))
    if kind == "gin":
        parts = [
            torch.nn.Linear(inputs, outputs),
            torch.nn.ReLU(),
            torch.nn.Linear(outputs, outputs),
        ]
        return nn.GINConv(torch.nn.Sequential(*parts), train_eps=True)
    if kind == "transformer":
        return nn.TransformerConv(inputs, outputs // heads, heads)
    layer = {"gat": nn.GATConv, "gatv2": nn.GATv2Conv}[kind]
    return layer(inputs, outputs // heads, heads, add_self_loops=False, edge_dim=edge_dim)


def run(source: Path, target: Path) -> None:
    """Run the layer forward and backward in float64."""
    with np.load(source) as stored:
        given = dict(stored)
    layer = made(str(given["kind"]), given).double()
    parameters = dict(layer.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(
                torch.from_numpy(given[name].astype(np.float64)).reshape(parameter.shape)
            )
    rows = {
        name: torch.from_numpy(given[name].astype(np.float64)).requires_grad_()
        for name in ("x", "edge_x")
        if name in given
    }
    edges = torch.from_numpy(np.stack([given["senders"], given["receivers"]]).astype(np.int64))
    options = {"edge_attr": rows["edge_x"]} if "edge_x" in rows else {}
    out = layer(rows["x"], edges, **options)
    (out * torch.from_numpy(given["dout"].astype(np.float64))).sum().backward()
    grads = {name: value.grad.numpy() for name, value in (parameters | rows).items()}
    np.savez(target, out=out.detach().numpy(), **grads)


if __name__ == "__main__":
    for path in Path(sys.argv[1]).glob("*.in.npz"):
        run(path, path.with_name(path.name.replace(".in.", ".out.")))
