"""Makes what the next steps need on threads of its own, while the devices compute.

What is made is a function of its number, so nothing depends on the order in which threads get to
it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Gives `make(number)` for one number after the other, begun `ahead` of time.

    The same numbers may be asked for again, or others: then those are made, and waited for.
    """

    def __init__(self, make: Callable[[int], T], *, ahead: int, threads: int):
        self._make, self._ahead = make, ahead
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="gtjax batches")
        self._under_way: dict[int, Future[T]] = {}
        self._lock = threading.Lock()

    def __call__(self, number: int) -> T:
        """What was made, or else is waited for now; what comes next is begun."""
        with self._lock:
            wanted = range(number, number + 1 + self._ahead)
            for stale in [each for each in self._under_way if each not in wanted]:
                self._under_way.pop(stale).cancel()
            for each in wanted:
                if each not in self._under_way:
                    self._under_way[each] = self._pool.submit(self._make, each)
            asked = self._under_way.pop(number)
        return asked.result()

    def forget(self) -> None:
        """Drop what was made ahead: it is made anew."""
        with self._lock:
            for each in self._under_way.values():
                each.cancel()
            self._under_way.clear()
