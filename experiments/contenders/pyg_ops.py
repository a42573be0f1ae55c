"""PyG: message passing as in its own layers, without their projections, over an `edge_index`.

As `pip install torch-geometric` gives it: without the optional compiled extensions, whose wheels
are not on the package index. Sums over an `edge_index` are by `scatter`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch.nn.functional import leaky_relu  # pyright: ignore[reportMissingImports]
from torch_geometric.nn import MessagePassing  # pyright: ignore[reportMissingImports]
from torch_geometric.utils import softmax  # pyright: ignore[reportMissingImports]

from contenders import torch_work
from contenders.case import Case, CaseFolder
from contenders.work import Work

PACKAGES = ("torch", "torch-geometric", "numpy")


class Attention(MessagePassing):
    """Multi-head attention over edges, as in `TransformerConv` (Shi et al. 2021)."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, edge_index: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend."""
        return self.propagate(edge_index, query=query, key=key, value=value)

    def message(
        self, query_i: Tensor, key_j: Tensor, value_j: Tensor, index: Tensor, size_i: int
    ) -> Tensor:
        """Weighted value of each edge."""
        logits_eh = (query_i * key_j).sum(dim=-1) / math.sqrt(query_i.shape[-1])
        return value_j * softmax(logits_eh, index, num_nodes=size_i).unsqueeze(-1)


class Gat(MessagePassing):
    """As in `GATConv`: weights along edges first, then the messages."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, edge_index: Tensor, s_nh: Tensor, t_nh: Tensor, v_nhd: Tensor) -> Tensor:
        """Attend."""
        alpha = self.edge_updater(edge_index, alpha=(t_nh, s_nh))
        return self.propagate(edge_index, x=v_nhd, alpha=alpha)

    def edge_update(self, alpha_j: Tensor, alpha_i: Tensor, index: Tensor, size_i: int) -> Tensor:
        """The weight of each edge and head."""
        return softmax(leaky_relu(alpha_j + alpha_i, 0.2), index, num_nodes=size_i)

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        """Weighted value of each edge."""
        return alpha.unsqueeze(-1) * x_j


class Gatv2(MessagePassing):
    """As in `GATv2Conv`."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, edge_index: Tensor, l_nhd: Tensor, r_nhd: Tensor, a_hd: Tensor) -> Tensor:
        """Attend."""
        alpha = self.edge_updater(edge_index, x=(r_nhd, l_nhd), a_hd=a_hd)
        return self.propagate(edge_index, x=(r_nhd, l_nhd), alpha=alpha)

    def edge_update(
        self, x_j: Tensor, x_i: Tensor, a_hd: Tensor, index: Tensor, size_i: int
    ) -> Tensor:
        """The weight of each edge and head."""
        logits_eh = (leaky_relu(x_i + x_j, 0.2) * a_hd).sum(dim=-1)
        return softmax(logits_eh, index, num_nodes=size_i)

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        """Weighted value of each edge."""
        return x_j * alpha.unsqueeze(-1)


class Aggregation(MessagePassing):
    """As in `SAGEConv`, and with weights as in `GCNConv`; a layer's rows have no axis of heads."""

    def __init__(self, aggr: str) -> None:
        super().__init__(aggr=aggr)

    def forward(self, edge_index: Tensor, x_nhd: Tensor, w_eh: Tensor | None = None) -> Tensor:
        """Aggregate."""
        rows_nf = x_nhd.flatten(1)
        return self.propagate(edge_index, x=rows_nf, edge_weight=w_eh).view(x_nhd.shape)

    def message(self, x_j: Tensor, edge_weight: Tensor | None) -> Tensor:
        """The row of each edge."""
        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


# Each kind's layer, and how many arrays of [E, H, D] and of [E, H] it holds at once, about.
LAYERS: dict[str, tuple[Any, int, int]] = {
    "attention": (Attention, 6, 7),
    "gat": (Gat, 5, 10),
    "gatv2": (Gatv2, 9, 8),
    "sum": (partial(Aggregation, "add"), 2, 0),
    "fixed_weights": (partial(Aggregation, "add"), 4, 2),
    "learned_weights": (partial(Aggregation, "add"), 4, 3),
    "max": (partial(Aggregation, "max"), 7, 0),
    "step": (Attention, 6, 7),
}


def work(folder: CaseFolder) -> Work:
    """The case, by PyG."""
    case = folder.case
    ends = (folder.array("senders_e"), folder.array("receivers_e"))
    edge_index = torch.stack([torch.from_numpy(array).long() for array in ends])
    make_layer, _, _ = LAYERS[case.kind]
    make = torch_work.step if case.kind == "step" else torch_work.op
    return make(folder, partial(make_layer(), edge_index), needs_bytes(case), PACKAGES)


def needs_bytes(case: Case) -> int:
    """What it holds along edges; in a step also three of each a layer, for the gradients."""
    _, wide, narrow = LAYERS[case.kind]
    kept = 3 * max(0, case.layers - 1)
    of_heads = (wide + kept) * case.width + narrow + kept
    return 4 * case.edges * case.heads * of_heads + torch_work.node_bytes(case)
