"""DGL: its fused kernels along edges, which hold `[E, H]` arrays, as its own layers call them.

With 32-bit node numbers and all orders of the edges made beforehand, as is best for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dgl  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from dgl import ops  # pyright: ignore[reportMissingImports]
from dgl.nn.functional import edge_softmax  # pyright: ignore[reportMissingImports]
from torch.nn.functional import leaky_relu  # pyright: ignore[reportMissingImports]

from contenders import torch_work
from contenders.case import Case, CaseFolder
from contenders.work import Work

PACKAGES = ("torch", "dgl", "numpy")


def attention(graph: Any, q_nhd: Any, k_nhd: Any, v_nhd: Any) -> Any:
    """Dot-product attention."""
    q_nhd, k_nhd, v_nhd = (x.contiguous() for x in (q_nhd, k_nhd, v_nhd))
    logits = ops.u_dot_v(graph, k_nhd, q_nhd) * q_nhd.shape[-1] ** -0.5
    return ops.u_mul_e_sum(graph, v_nhd, edge_softmax(graph, logits))


def gat(graph: Any, s_nh: Any, t_nh: Any, v_nhd: Any) -> Any:
    """As in `GATConv`."""
    logits = leaky_relu(ops.u_add_v(graph, t_nh[..., None], s_nh[..., None]), 0.2)
    return ops.u_mul_e_sum(graph, v_nhd, edge_softmax(graph, logits))


def gatv2(graph: Any, l_nhd: Any, r_nhd: Any, a_hd: Any) -> Any:
    """As in `GATv2Conv`."""
    sums = leaky_relu(ops.u_add_v(graph, r_nhd, l_nhd), 0.2)
    logits = (sums * a_hd).sum(dim=-1, keepdim=True)
    return ops.u_mul_e_sum(graph, r_nhd, edge_softmax(graph, logits))


def weighted_sum(graph: Any, x_nhd: Any, w_eh: Any) -> Any:
    """As in `GraphConv` with weights."""
    return ops.u_mul_e_sum(graph, x_nhd, w_eh[..., None])


def largest(graph: Any, x_nhd: Any) -> Any:
    """As `update_all` has it: 0 for nodes without edges."""
    out_nhd = ops.copy_u_max(graph, x_nhd)
    return out_nhd.masked_fill(torch.isinf(out_nhd), 0)


CALLS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "gat": gat,
    "gatv2": gatv2,
    "sum": ops.copy_u_sum,
    "fixed_weights": weighted_sum,
    "learned_weights": weighted_sum,
    "max": largest,
    "step": attention,
}


def work(folder: CaseFolder) -> Work:
    """The case, by DGL."""
    case = folder.case
    ends = (torch.from_numpy(folder.array(name)) for name in ("senders_e", "receivers_e"))
    graph = dgl.graph(tuple(ends), num_nodes=case.nodes, idtype=torch.int32)
    graph.create_formats_()

    call = partial(CALLS[case.kind], graph)
    make = torch_work.step if case.kind == "step" else torch_work.op
    return make(folder, call, needs_bytes(case), PACKAGES)


def needs_bytes(case: Case) -> int:
    """A few arrays of [E, H], and two more for each layer of a step; GATv2 has [E, H, D]."""
    narrow = case.edges * case.heads
    wide = 6 * case.edges * case.hidden if case.kind == "gatv2" else 0
    return 4 * (narrow * (5 + 2 * case.layers) + wide) + torch_work.node_bytes(case)
