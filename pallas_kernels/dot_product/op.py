"""Dot-product attention: `softmax_j(q_i . k_j / sqrt(d) + bias_ij)` over in-edges, times values.

Choose it for graph transformers (Dwivedi and Bresson 2021, Shi et al. 2021). Fused: scores,
softmax and weighted sum in one pass over the edges; an edge costs the rows of its key and value,
`2 H D` numbers forward and about three times that with the backward pass, which recomputes.
"""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Float

from pallas_kernels.dot_product.cpu import CPU
from pallas_kernels.dot_product.gpu import GPU
from pallas_kernels.dot_product.tpu import TPU
from pallas_kernels.driver import segment
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import SOFTMAX


def attention(
    q_hd: jax.Array, sender: tuple[jax.Array, jax.Array], bias_h: jax.Array | None, shared: Any
) -> tuple[jax.Array, jax.Array]:
    """The logit of every head, and the value."""
    k_hd, v_hd = sender
    logits_h = (q_hd * k_hd).sum(axis=-1) * q_hd.shape[-1] ** -0.5
    return logits_h if bias_h is None else logits_h + bias_h, v_hd


DOT_PRODUCT = Op("dot_product", attention, SOFTMAX, splits=("heads",), kernels=(CPU, GPU, TPU))


def segment_attention(
    q_rhd: Float[Array, "r h d"],
    k_shd: Float[Array, "s h d"],
    v_shd: Float[Array, "s h d"],
    edges: Edges,
    bias_eh: Float[Array, "e h"] | None = None,
    *,
    dropout: Dropout | None = None,
    kernel: str | Kernel = "auto",
) -> Float[Array, "r h d"]:
    """Attention of every receiver over its in-edges, differentiable in q, k, v and bias.

    `bias_eh` is in receiver order. Accumulates in float32; the output has the type of `v_shd`.
    """
    return segment(
        DOT_PRODUCT,
        edges,
        receiver=q_rhd,
        sender=(k_shd, v_shd),
        edge=bias_eh,
        dropout=dropout,
        kernel=kernel,
    ).astype(v_shd.dtype)
