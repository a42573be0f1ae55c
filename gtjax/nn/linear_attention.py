"""Attention from every node to every node in one small matrix a head: O(N), whatever the edges.

`sigmoid_attention` is the kernel of Polynormer (Deng et al. 2024): weights are products of
sigmoids, hence positive, so the sum that normalises them cannot vanish. `simple_attention` is that
of SGFormer (Wu et al. 2023): `1 + q_i . k_j / N` of queries and keys that are normalised over the
whole graph, which is almost even at the start of training. Both sum over all nodes, padding left
out; on a mesh that is one all-reduce of a matrix a head.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def sigmoid_attention(
    q_nhd: jax.Array, k_nhd: jax.Array, v_nhd: jax.Array, valid_n: jax.Array | None
) -> jax.Array:
    """`sum_j w_ij v_j / sum_j w_ij` with `w_ij = sigmoid(q_i) . sigmoid(k_j)`."""
    q_nhd, k_nhd = jax.nn.sigmoid(q_nhd), jax.nn.sigmoid(k_nhd)
    if valid_n is not None:
        k_nhd = k_nhd * valid_n[:, None, None]
    count = _count(q_nhd, valid_n)
    memory_hde = jnp.einsum("nhd,nhe->hde", k_nhd, v_nhd) / count
    keys_hd = k_nhd.sum(axis=0) / count
    out_nhd = jnp.einsum("nhd,hde->nhe", q_nhd, memory_hde)
    return out_nhd / jnp.einsum("nhd,hd->nh", q_nhd, keys_hd)[..., None]


def simple_attention(
    q_nhd: jax.Array, k_nhd: jax.Array, v_nhd: jax.Array, valid_n: jax.Array | None
) -> jax.Array:
    """`(N v_i + sum_j w_ij v_j) / (N + sum_j w_ij)` with `w_ij = q_i . k_j`.

    All queries together have norm 1, and so have all keys.
    """
    if valid_n is not None:
        where = valid_n[:, None, None]
        q_nhd, k_nhd = q_nhd * where, k_nhd * where
    count = _count(q_nhd, valid_n)
    q_nhd, k_nhd = _of_norm_one(q_nhd), _of_norm_one(k_nhd)
    memory_hde = jnp.einsum("nhd,nhe->hde", k_nhd, v_nhd)
    out_nhd = jnp.einsum("nhd,hde->nhe", q_nhd, memory_hde) + count * v_nhd
    total_nh = jnp.einsum("nhd,hd->nh", q_nhd, k_nhd.sum(axis=0)) + count
    return out_nhd / total_nh[..., None]


def _of_norm_one(x_nhd: jax.Array) -> jax.Array:
    return x_nhd * jax.lax.rsqrt(jnp.maximum(jnp.square(x_nhd).sum(), 1e-12))


def _count(x_nhd: jax.Array, valid_n: jax.Array | None) -> jax.Array:
    """Nodes that are no padding."""
    if valid_n is None:
        return jnp.float32(x_nhd.shape[0])
    return jnp.maximum(valid_n.sum(), 1).astype(jnp.float32)
