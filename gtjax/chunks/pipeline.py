"""Reads the next chunk while one computes, and writes the last one meanwhile.

At most one chunk is being read, two are on the device (one of them only until it is written), so
memory is bounded by three chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")
PAGE = 4096  # bytes: the smallest that pages are


def pipelined(
    items: Sequence[T],
    load: Callable[[T], Any],
    compute: Callable[[T, Any], Any],
    store: Callable[[T, Any], None],
) -> None:
    """`store(item, compute(item, load(item)))` of every item in order, each in its own thread."""
    if not items:
        return
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        ahead = reader.submit(load, items[0])
        writing: list[Future[None]] = []
        for number, item in enumerate(items):
            loaded = ahead.result()
            if number + 1 < len(items):
                ahead = reader.submit(load, items[number + 1])
            if len(writing) > 1:
                writing.pop(0).result()
            writing.append(writer.submit(store, item, compute(item, loaded)))
        for each in writing:
            each.result()


def on_device(array: np.ndarray) -> jax.Array:
    """The array for a program: without a copy on a CPU if it is aligned. It must not change yet."""
    return jax.device_put(touched(array), may_alias=True)


def touched(array: np.ndarray) -> np.ndarray:
    """The array, whose pages are in memory now: of a mapped file, whoever calls this waits for it.

    In order, so that the system reads ahead; a program would wait for page after page.
    """
    if array.flags.c_contiguous:
        array.reshape(-1).view(np.uint8)[::PAGE].max(initial=0)
    return array


def padded(rows: np.ndarray, count: int, *, repeat: bool = False) -> np.ndarray:
    """As many rows as `count`: zeros after those given, or the last one again and again."""
    if len(rows) == count:
        return rows
    result = np.zeros((count, *rows.shape[1:]), rows.dtype)
    result[: len(rows)] = rows
    if repeat and len(rows):
        result[len(rows) :] = rows[-1]
    return result
