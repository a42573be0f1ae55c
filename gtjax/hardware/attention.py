"""Times the attention kernel over edges, widths, heads, tables and skew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from gtjax.hardware.devices import Devices
from gtjax.hardware.profile import AttentionPoint
from pallas_kernels.segment_attention import (
    EdgeList,
    build_stacked_edges,
    choose_backend,
    finish,
    log_sum_exp,
)
from pallas_kernels.segment_attention.api import backend_name

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class _Case:
    """Attention of random edges: an average degree, heads, and the table that is gathered from."""

    senders: int
    heads: int
    width: int
    degree: int = 8
    skewed: bool = False


# Small tables that stay in a cache and large ones that do not, few and many heads, narrow and wide.
CASES = (
    _Case(2**11, 8, 64),
    _Case(2**11, 8, 64, degree=128),
    _Case(2**11, 8, 256, degree=32),
    _Case(2**11, 1, 16),
    _Case(2**16, 8, 128),
    _Case(2**16, 8, 128, degree=64),
    _Case(2**16, 8, 128, skewed=True),
    _Case(2**16, 2, 32),
    _Case(2**18, 8, 64),
)
EDGES = 2**19  # of all devices of a host that share a processor


def measure_attention(every: Devices, progress: Progress) -> tuple[AttentionPoint, ...]:
    """Forward and backward of every case."""
    name = backend_name("auto", every.platform)
    points: list[AttentionPoint] = []
    for number, case in enumerate(CASES):
        progress(number / len(CASES), f"attention, {case.heads} heads of {case.width}")
        points += _attention_points(every, name, case)
    return tuple(points)


def _attention_points(every: Devices, name: str, case: _Case) -> list[AttentionPoint]:
    backend, rng = choose_backend(name, every.platform), np.random.default_rng(0)
    count = EDGES // every.shared
    rows = max(16, count // case.degree)
    senders = max(64, case.senders // every.shared)
    receivers_e = np.sort(rng.integers(0, rows, count))
    drawn_e = rng.random(count)
    senders_e = (drawn_e ** (4.0 if case.skewed else 1.0) * senders).astype(np.int64)
    edges = every.place(
        build_stacked_edges(
            [EdgeList(senders_e, receivers_e, np.arange(count))],
            num_senders=senders,
            num_receivers=rows,
            layouts=backend.layouts,
        )
    )
    shape = (case.heads, case.width // case.heads)
    q, k, v = every.array(rows, *shape), every.array(senders, *shape), every.array(senders, *shape)

    def forward(edges: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        own = jax.tree.map(lambda x: x[0], edges)
        partial_r = backend.forward(q, k, v, own, None, None)
        return finish(partial_r), log_sum_exp(partial_r)

    def backward(edges: Any, q: Any, k: Any, v: Any, out: Any, lse: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], edges)
        return backend.backward(q, k, v, own, None, out, lse, out, None)[:3]

    out, lse = every.array(rows, *shape), every.array(rows, case.heads, fill=3.0)
    seconds = {
        "forward": every.seconds(forward, edges, q, k, v),
        "backward": every.seconds(backward, edges, q, k, v, out, lse),
    }
    skew = share_of_busiest(np.bincount(senders_e, minlength=senders))
    point = partial(
        AttentionPoint,
        kernel=name,
        edges=count,
        rows=rows,
        senders=senders,
        heads=case.heads,
        width=case.width,
        skew=skew,
    )
    return [point(direction=way, seconds=each) for way, each in seconds.items()]


def share_of_busiest(degrees_s: np.ndarray) -> float:
    """Share of the edges that start from the busiest hundredth of the senders."""
    busiest = math.ceil(len(degrees_s) / 100)
    return float(np.sort(degrees_s)[-busiest:].sum() / max(1, degrees_s.sum()))
