"""Joining the other processes of a run before jax looks for devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gtjax.distributed.join import Processes, join
from gtjax.sharding.config import ParallelConfig, check_simulated


def joined(processes: Processes, parallel: ParallelConfig) -> None:
    """Join, if there are others; else simulate as many devices as are asked for."""
    from gtjax.core.progress import say
    from gtjax.sharding.mesh import simulate_devices

    check_simulated(processes.devices_per_process or 1, "--devices-per-process")
    warning = join(processes)
    if not is_one_of_several():
        if processes.coordinator is None:  # else it is one that is left, with the devices it has
            simulate_devices(parallel)
        return
    from gtjax.distributed.join import check_devices
    from gtjax.distributed.team import this_team

    _silence_native_output()
    check_devices(this_team())
    if warning and is_first():
        say(f"warning: {warning}")


def is_one_of_several() -> bool:
    """Whether this process has joined others."""
    if "jax" not in sys.modules:
        return False
    import jax

    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that writes and prints."""
    import jax

    return jax.process_index() == 0


def leave(code: int) -> int:
    """End with this code. A process of several that fails ends at once.

    The ordinary end of one waits for all others, which wait for it.
    """
    if code and is_one_of_several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _silence_native_output() -> None:
    """Gloo reports every connection on standard output, where a program may be reading."""
    kept = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    sys.stdout = os.fdopen(kept, "w", encoding="utf-8")
