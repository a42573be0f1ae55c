"""Attention by the native kernel of whichever tree of sources is on the path, new or old.

Until the ops became several, `pallas_kernels.segment_attention` was a package with its own names.
"""

from __future__ import annotations

from typing import Any

import jax

import pallas_kernels
from contenders import jax_work
from contenders.case import CaseFolder
from contenders.work import Work


def work(folder: CaseFolder) -> Work:
    """The case, by that tree."""
    case = folder.case
    if hasattr(pallas_kernels, "build_edges"):
        from pallas_kernels import build_edges, segment_attention

        forms: dict[str, Any] = {"forms": ()}
    else:
        from pallas_kernels.segment_attention import (  # pyright: ignore
            build_edges,
            segment_attention,
        )

        forms = {"layouts": ()}
    edges = build_edges(
        folder.array("senders_e"),
        folder.array("receivers_e"),
        num_senders=case.nodes,
        num_receivers=case.nodes,
        **forms,
    )

    def attend(edges: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return segment_attention(q, k, v, edges, kernel="cpu")

    return jax_work.op(folder, edges, attend, facts={"sources": pallas_kernels.__file__})
