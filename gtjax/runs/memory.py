"""Memory of a run against what there is, for its report."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import Any

import jax

from gtjax.core.errors import UserError
from gtjax.hardware.measure import memory_capacity


def memory_seen(devices: Sequence[Any]) -> dict[str, Any]:
    """Bytes that each device has, and the most that were in use, as far as somebody knows.

    Simulated devices share the memory of the machine. In a run of several processes all have to
    call this.
    """
    try:
        limit = memory_capacity(devices)
    except UserError:  # a device that does not say
        limit = None
    here = next((d for d in devices if d.process_index == jax.process_index()), devices[0])
    own = here.memory_stats() if here.platform != "cpu" else None
    if own and "peak_bytes_in_use" in own:
        return {"limit_bytes": limit, "peak_bytes": float(own["peak_bytes_in_use"]), "of": "device"}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return {"limit_bytes": limit, "peak_bytes": peak, "of": "process"}
