"""PyG's graph auto-encoders on given splits: run by a Python that has PyG, not imported by gtjax.

    python pyg_links.py SPLITS.npz RESULTS.json

Encoders of two GCN or two SAGE layers (32 and 16 wide), inner products, Adam at 0.01, 200 epochs,
the epoch by validation: the settings of PyG's own example.
"""

# pyright: reportMissingImports=false, reportCallIssue=false

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GAE, GCNConv, SAGEConv
from torch_geometric.utils import negative_sampling

WIDTHS = ((32, 16),)  # of the hidden layer and the embedding, as in PyG's example
EPOCHS = 200


class Encoder(torch.nn.Module):
    """Two layers."""

    def __init__(self, kind, inputs, hidden, out, dropout):
        super().__init__()
        layer = {"gcn": GCNConv, "sage": SAGEConv}[kind]
        self.first, self.second, self.dropout = layer(inputs, hidden), layer(hidden, out), dropout

    def forward(self, x, edges):
        """Embeddings."""
        x = torch.nn.functional.dropout(x, self.dropout, self.training)
        x = self.first(x, edges).relu()
        x = torch.nn.functional.dropout(x, self.dropout, self.training)
        return self.second(x, edges)


def trained(kind, widths, dropout, x, given, seed):
    """Validation and test scores at the best epoch of validation."""
    torch.manual_seed(seed)
    model = GAE(Encoder(kind, x.shape[1], *widths, dropout))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    edges = given["edges"]
    best = (0.0, 0.0, 0.0)
    for _ in range(EPOCHS):
        model.train()
        optimiser.zero_grad()
        z = model.encode(x, edges)
        negative = negative_sampling(edges, x.shape[0], given["train"].shape[1])
        model.recon_loss(z, given["train"], negative).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            z = model.encode(x, edges)
            val, _ = scored(model, z, given["val"], given["val_negative"])
            if val > best[0]:
                best = (val, *scored(model, z, given["test"], given["test_negative"]))
    return best


def scored(model, z, positive, negative):
    """ROC-AUC and average precision of pairs that an edge joins among pairs that none does."""
    high, low = (model.decode(z, pairs).numpy() for pairs in (positive, negative))
    every, low = np.sort(np.concatenate([high, low])), np.sort(low)
    below = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
    at_least = len(every) - np.searchsorted(every, high, "left")
    own = len(high) - np.searchsorted(np.sort(high), high, "left")
    return float(below.mean() / 2 / len(low)), float((own / at_least).mean())


def main():
    """Of each encoder, the settings that validate best over all seeds."""
    with np.load(sys.argv[1]) as stored:
        arrays = dict(stored)
    x = torch.from_numpy(arrays["x"].astype(np.float32))
    x = x / x.abs().sum(1, keepdim=True).clamp(min=1)
    found = {}
    for kind in ("gcn", "sage"):
        best = (0.0, [])
        for widths in WIDTHS:
            for dropout in (0.0,):
                runs = []
                for seed in range(5):
                    given = {
                        name.split("_", 1)[1]: torch.from_numpy(value.astype(np.int64))
                        for name, value in arrays.items()
                        if name.startswith(f"{seed}_")
                    }
                    given = {n: v if n == "edges" else v.t() for n, v in given.items()}
                    val, auc, ap = trained(kind, widths, dropout, x, given, seed)
                    runs.append(
                        {
                            "val_roc_auc": val,
                            "roc_auc": auc,
                            "average_precision": ap,
                            "widths": widths,
                            "dropout": dropout,
                        }
                    )
                mean = np.mean([run["val_roc_auc"] for run in runs])
                print(
                    "pyg",
                    kind,
                    widths,
                    dropout,
                    round(float(mean), 4),
                    round(float(np.mean([run["roc_auc"] for run in runs])), 4),
                    flush=True,
                )
                best = max(best, (mean, runs), key=lambda each: each[0])
        found[kind] = best[1]
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
