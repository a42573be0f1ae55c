"""Has the C library keep the memory that is freed, for steps that are dispatched one by one.

XLA's CPU client takes its temporary memory from malloc for every dispatch. glibc maps what is large
anew each time, and the kernel fills it with zeros: a third of the processor time of a sampled step
(GraphSAGE 3 x 256 on ogbn-arxiv, 198 MB, on a busy AMD EPYC: 0.40 s to 0.27 s). Costs memory that
other processes do not get back before this one ends, so it is asked for where many short steps run.
"""

from __future__ import annotations

import ctypes
import sys

# As in malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Ask for it; True if it was granted. Before jax starts its threads, whose heaps stay small."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    wanted = ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1))
    return all(mallopt(name, value) == 1 for name, value in wanted)
