"""Attention by dense float64 matrices, and the graphs that break sparse code."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def dense_attention(q, k, v, senders, receivers, bias=None, keep=None, dout=None):
    """Output, and the gradients (dq, dk, dv, dbias) for `dout`, one edge at a time in float64.

    Edges may repeat, so the softmax runs over a row's list of edges instead of an N x N matrix.
    """
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    heads, width = q.shape[1:]
    bias = np.zeros((len(senders), heads)) if bias is None else np.asarray(bias, np.float64)
    keep = np.ones((len(senders), heads)) if keep is None else np.asarray(keep, np.float64)
    out = np.zeros((len(q), heads, v.shape[2]))
    dq, dk, dv, dbias = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(bias)
    for row in np.unique(receivers):
        e = np.flatnonzero(receivers == row)
        s = senders[e]
        logits = np.einsum("hd,ehd->eh", q[row], k[s]) / np.sqrt(width) + bias[e]
        p = np.exp(logits - logits.max(0))
        p /= p.sum(0)
        out[row] = np.einsum("eh,ehd->hd", p * keep[e], v[s])
        if dout is None:
            continue
        g = np.asarray(dout, np.float64)[row]
        dp = np.einsum("hd,ehd->eh", g, v[s]) * keep[e]
        dlogits = p * (dp - (p * dp).sum(0))
        dq[row] = np.einsum("eh,ehd->hd", dlogits, k[s]) / np.sqrt(width)
        np.add.at(dk, s, np.einsum("eh,hd->ehd", dlogits, q[row]) / np.sqrt(width))
        np.add.at(dv, s, np.einsum("eh,hd->ehd", p * keep[e], g))
        dbias[e] = dlogits
    return out, (dq, dk, dv, dbias)


def dense_propagation(q, k, v, senders, receivers, bias, keep, rounds, restart, dout):
    """Output and gradients (dq, dk, dv, dbias) in float64, by jax's own differentiation."""
    nodes, _, width = q.shape

    def by_row(values_e):
        return jnp.zeros((nodes, *values_e.shape[1:])).at[receivers].add(values_e)

    def propagate(q, k, v, bias):
        logits = (q[receivers] * k[senders]).sum(-1) / np.sqrt(width) + bias
        largest = jnp.full((nodes, q.shape[1]), -jnp.inf).at[receivers].max(logits)
        p = jnp.exp(logits - jax.lax.stop_gradient(largest)[receivers])
        alpha = p / by_row(p)[receivers] * keep
        start = v
        for _ in range(rounds):
            v = (1 - restart) * by_row(alpha[..., None] * v[senders]) + restart * start
        return v

    def both(dout, *arrays):
        out, pullback = jax.vjp(propagate, *arrays)
        return out, pullback(dout)

    with jax.enable_x64(True):
        arrays = [jnp.asarray(np.asarray(a, np.float64)) for a in (q, k, v, bias)]
        keep = jnp.asarray(np.asarray(keep, np.float64))
        out, grads = jax.jit(both)(jnp.asarray(np.asarray(dout, np.float64)), *arrays)
        return np.asarray(out), tuple(np.asarray(grad) for grad in grads)


def awkward_graphs() -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """Senders, receivers and number of nodes, by what is awkward about them."""
    rng = np.random.default_rng(7)

    def random(nodes, edges, seed):
        draw = np.random.default_rng(seed)
        return draw.integers(0, nodes, edges), draw.integers(0, nodes, edges), nodes

    hub = 211
    hub_receivers = np.where(rng.random(600) < 0.5, 5, rng.integers(0, hub, 600))
    many = 331  # two levels of merging: more than 64 tiles of 64 edges in one row
    graphs = {
        "prime": random(101, 700, 1),
        "isolated": (rng.integers(0, 20, 90), rng.integers(20, 40, 90), 97),
        "hub receives half of all edges": (rng.integers(0, hub, 600), hub_receivers, hub),
        "hub sends half of all edges": (hub_receivers, rng.integers(0, hub, 600), hub),
        "hub of hubs": (rng.integers(0, many, 9000), np.where(np.arange(9000) < 8500, 3, 7), many),
        "self-loops only": (np.arange(13), np.arange(13), 13),
        "multi-edges": (np.repeat([0, 1, 2], 9), np.repeat([2, 2, 0], 9), 3),
        "one node, no edge": (np.zeros(0, int), np.zeros(0, int), 1),
        "one node, one loop": (np.zeros(1, int), np.zeros(1, int), 1),
        "no edges": (np.zeros(0, int), np.zeros(0, int), 31),
        "every length of row": (
            rng.integers(0, 71, 71 * 70 // 2),
            np.repeat(np.arange(71), np.arange(71)),
            71,
        ),
    }
    graphs["all at once"] = _side_by_side(list(graphs.values()))
    return {name: _by_receiver(*graph) for name, graph in graphs.items()}


def _side_by_side(graphs):
    first = np.cumsum([0, *(nodes for _, _, nodes in graphs)])
    senders, receivers = (
        np.concatenate([graph[end] + start for graph, start in zip(graphs, first, strict=False)])
        for end in (0, 1)
    )
    return senders, receivers, int(first[-1])


def _by_receiver(senders, receivers, nodes):
    order = np.argsort(receivers, kind="stable")
    return senders[order].astype(np.int32), receivers[order].astype(np.int32), nodes
