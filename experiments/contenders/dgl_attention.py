"""DGL: `u_dot_v`, `edge_softmax` and `u_mul_e_sum`, fused kernels that hold `[E, H]` arrays.

With 32-bit node numbers and all orders of the edges made beforehand, as is best for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from dgl.nn.functional import edge_softmax  # pyright: ignore[reportMissingImports]

from contenders import torch_work
from contenders.case import Case, CaseFolder
from contenders.work import Work

PACKAGES = ("torch", "dgl", "numpy")


def work(folder: CaseFolder) -> Work:
    """The case, by DGL."""
    case = folder.case
    ends = (torch.from_numpy(folder.array(name)) for name in ("senders_e", "receivers_e"))
    graph = dgl.graph(tuple(ends), num_nodes=case.nodes, idtype=torch.int32)
    graph.create_formats_()

    def attend(q_nhd: Any, k_nhd: Any, v_nhd: Any) -> Any:
        q_nhd, k_nhd, v_nhd = (x.contiguous() for x in (q_nhd, k_nhd, v_nhd))
        logits = dgl.ops.u_dot_v(graph, k_nhd, q_nhd) * q_nhd.shape[-1] ** -0.5
        return dgl.ops.u_mul_e_sum(graph, v_nhd, edge_softmax(graph, logits))

    make: Callable[..., Work] = {"attention": torch_work.attention, "step": torch_work.step}[
        case.kind
    ]
    return make(folder, attend, needs_bytes(case), PACKAGES)


def needs_bytes(case: Case) -> int:
    """A few arrays of [E, H], and two more for each layer of a step."""
    narrow = case.edges * case.heads
    return 4 * narrow * (5 + 2 * case.layers) + torch_work.node_bytes(case)
