"""Memory as the operating system sees it: what a process has held at most, and what is left.

The high-water mark of the resident set counts every page that was touched, whoever allocated it, so
it compares libraries with allocators of their own. Linux; elsewhere less is known and None says so.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")

_NEAR_BYTES = 2**26  # as good as idle
_QUIET_SECONDS = 0.5


def peak_above_start(run: Callable[[], Any]) -> dict[str, Any]:
    """Bytes that `run` held at most, beyond what was resident before it, and how that was seen."""
    release()
    try:
        RESET.write_text("5", encoding="ascii")  # 5: forget the high-water mark (proc(5))
        method = "VmHWM"
    except OSError:
        method = "getrusage"  # of the whole life of the process: loading and warming up too
    before = resident_bytes()
    run()
    peak = _kilobytes(STATUS, "VmHWM") if method == "VmHWM" else _max_rss()
    if before is None or peak is None:
        return {"bytes": None, "method": "none"}
    return {"bytes": max(0, peak - before), "method": method}


def release() -> None:
    """Give back to the system what nothing refers to."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # another C library: it keeps what it keeps
        return


def resident_bytes() -> int | None:
    """Memory that this process holds; None where the system does not say."""
    return _kilobytes(STATUS, "VmRSS")


def settle(idle: int | None) -> None:
    """Wait until this process is back at what it holds when idle, or no longer gives anything back.

    XLA frees a program's memory on another thread, after its results are there. Gigabytes take a
    while, which would be counted as the time, and as the lack of memory, of whoever runs next.
    """
    lowest, since = None, time.monotonic()
    while idle is not None and (held := resident_bytes()) is not None:
        if held <= idle + _NEAR_BYTES:
            return
        now = time.monotonic()
        if lowest is None or held < lowest:
            lowest, since = held, now
        elif now - since > _QUIET_SECONDS:
            return
        time.sleep(0.01)


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def _max_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _kilobytes(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    number = next(found, None)
    return None if number is None else int(number) * 1024
