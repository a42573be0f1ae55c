"""Additive attention, where a logit is no product: GAT and GATv2.

GAT (Velickovic et al. 2018): `softmax_j leaky_relu(s_i + t_j + bias_ij)`, times values; an edge
costs its sender's number `t` and value, about half of what dot-product attention gathers.
GATv2 (Brody et al. 2022): `softmax_j a . leaky_relu(l_i + r_j + e_ij)`, times `r_j`: one row of the
sender serves for score and value, and `a` is shared by all edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.additive.cpu import CPU
from pallas_kernels.additive.gpu import GAT_GPU, GATV2_GPU
from pallas_kernels.additive.tpu import GAT_TPU, GATV2_TPU
from pallas_kernels.driver import segment
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import SOFTMAX


@dataclass(frozen=True)
class GatMessage:
    """Rows: receiver `s [h]`, sender `(t [h], v [h, d])`, edge `bias [h]` or None."""

    slope: float = 0.2

    def __call__(self, s_h: jax.Array, sender: Any, bias_h: Any, shared: Any) -> Any:
        """The logit of every head, and the value."""
        t_h, v_hd = sender
        sum_h = s_h + t_h if bias_h is None else s_h + t_h + bias_h
        return leaky_relu(sum_h, self.slope), v_hd


@dataclass(frozen=True)
class Gatv2Message:
    """Rows: receiver `l [h, d]`, sender `r [h, d]`, edge `e [h, d]` or None; shared `a [h, d]`."""

    slope: float = 0.2

    def __call__(self, l_hd: jax.Array, r_hd: jax.Array, e_hd: Any, a_hd: jax.Array) -> Any:
        """The logit of every head, and the value."""
        sum_hd = l_hd + r_hd if e_hd is None else l_hd + r_hd + e_hd
        return (a_hd * leaky_relu(sum_hd, self.slope)).sum(axis=-1), r_hd


def leaky_relu(x: jax.Array, slope: float) -> jax.Array:
    """x where it is not negative, and a share of it where it is."""
    return jnp.where(x >= 0, x, slope * x)


def gat(slope: float = 0.2) -> Op:
    """The op of GAT with that slope."""
    kernels = (CPU, GAT_GPU, GAT_TPU)
    return Op("gat", GatMessage(slope), SOFTMAX, splits=("heads",), kernels=kernels)


def gatv2(slope: float = 0.2) -> Op:
    """The op of GATv2 with that slope."""
    kernels = (CPU, GATV2_GPU, GATV2_TPU)
    return Op("gatv2", Gatv2Message(slope), SOFTMAX, splits=("heads",), kernels=kernels)


def segment_gat(
    s_rh: Float[Array, "r h"],
    t_sh: Float[Array, "s h"],
    v_shd: Float[Array, "s h d"],
    edges: Edges,
    bias_eh: Float[Array, "e h"] | None = None,
    *,
    slope: float = 0.2,
    dropout: Dropout | None = None,
    kernel: str | Kernel = "auto",
) -> Float[Array, "r h d"]:
    """Attention of every receiver over its in-edges as in GAT."""
    options: dict[str, Any] = {"dropout": dropout, "kernel": kernel}
    return segment(gat(slope), edges, receiver=s_rh, sender=(t_sh, v_shd), edge=bias_eh, **options)


def segment_gatv2(
    l_rhd: Float[Array, "r h d"],
    r_shd: Float[Array, "s h d"],
    a_hd: Float[Array, "h d"],
    edges: Edges,
    e_ehd: Float[Array, "e h d"] | None = None,
    *,
    slope: float = 0.2,
    dropout: Dropout | None = None,
    kernel: str | Kernel = "auto",
) -> Float[Array, "r h d"]:
    """Attention of every receiver over its in-edges as in GATv2."""
    options: dict[str, Any] = {"dropout": dropout, "kernel": kernel}
    return segment(
        gatv2(slope), edges, receiver=l_rhd, sender=r_shd, shared=a_hd, edge=e_ehd, **options
    )
