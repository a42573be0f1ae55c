"""PyG: message passing as in `TransformerConv` (Shi et al. 2021), without its projections.

As `pip install torch-geometric` gives it: without the optional compiled extensions, whose wheels
are not on the package index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch_geometric.nn import MessagePassing  # pyright: ignore[reportMissingImports]
from torch_geometric.utils import softmax  # pyright: ignore[reportMissingImports]

from contenders import torch_work
from contenders.case import Case, CaseFolder
from contenders.work import Work

PACKAGES = ("torch", "torch-geometric", "numpy")


class Attention(MessagePassing):
    """Multi-head attention over edges."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=0)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, edge_index: Tensor) -> Tensor:
        """Attend."""
        return self.propagate(edge_index, query=query, key=key, value=value)

    def message(
        self, query_i: Tensor, key_j: Tensor, value_j: Tensor, index: Tensor, size_i: int
    ) -> Tensor:
        """Weighted value of each edge."""
        logits_eh = (query_i * key_j).sum(dim=-1) / math.sqrt(query_i.shape[-1])
        return value_j * softmax(logits_eh, index, num_nodes=size_i).unsqueeze(-1)


def work(folder: CaseFolder) -> Work:
    """The case, by PyG."""
    ends = (folder.array("senders_e"), folder.array("receivers_e"))
    edge_index = torch.stack([torch.from_numpy(array).long() for array in ends])
    layer = Attention()

    def attend(q_nhd: Any, k_nhd: Any, v_nhd: Any) -> Any:
        return layer(q_nhd, k_nhd, v_nhd, edge_index)

    case = folder.case
    make: Callable[..., Work] = {"attention": torch_work.attention, "step": torch_work.step}[
        case.kind
    ]
    return make(folder, attend, needs_bytes(case), PACKAGES)


def needs_bytes(case: Case) -> int:
    """About six arrays of [E, H, D] at once; in a step also three a layer, for the gradients."""
    wide, narrow = case.edges * case.hidden, case.edges * case.heads
    kept = 3 * max(0, case.layers - 1)
    return 4 * ((6 + kept) * wide + (7 + kept) * narrow) + torch_work.node_bytes(case)
