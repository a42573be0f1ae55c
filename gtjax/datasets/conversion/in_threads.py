"""Run work in some threads, with few pieces in flight, and hand the results back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_threads(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[tuple[T, R]]:
    """Each item and what `work` makes of it; at most one more than `workers` are under way."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque = deque()
        try:
            for item in items:
                waiting.append((item, pool.submit(work, item)))
                if len(waiting) > workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
