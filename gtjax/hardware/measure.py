"""`measure`: a profile of the devices at hand, from a cache if they were measured before."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.core.user_cache import user_cache
from gtjax.hardware.arithmetic import measure_compute
from gtjax.hardware.disk import Disk, measured_disk
from gtjax.hardware.links import measure_links
from gtjax.hardware.profile import HardwareProfile, from_json, read_profile

LINKS_SHARE = 0.5  # of the time that measuring takes
ABOUT = "a minute"  # it takes on a processor with eight simulated devices
PACKAGES = ("gtjax", "jax", "jaxlib")


def measured_profile(
    devices: Sequence[Any] | None = None,
    *,
    again: bool = False,
    progress: Progress = lambda done, text: None,
) -> HardwareProfile:
    """The profile of these devices: from the cache, or measured now and kept there."""
    devices = jax.devices() if devices is None else devices
    path = cached_path(devices)
    known = from_first_process(None if again else _known(path))
    if known is not None:
        return known
    profile = measure(devices, progress)
    if jax.process_index() == 0:
        with contextlib.suppress(OSError):  # a cache that cannot be written does not stop a plan
            profile.save(path)
    return profile


def known_profile(devices: Sequence[Any]) -> HardwareProfile | None:
    """The profile of these devices if they were measured before; nothing is measured now."""
    return _known(cached_path(devices))


def measuring_notice(devices: Sequence[Any]) -> str | None:
    """What to tell people before these devices are measured; None if they were."""
    path = cached_path(devices)
    if _known(path) is not None:
        return None
    return (
        f"measuring {len(devices)} devices, which takes about {ABOUT}: how fast they compute and "
        f"talk, for the plan. Only this time: it is remembered in {path}"
    )


def measure(devices: Sequence[Any], progress: Progress) -> HardwareProfile:
    """Time collectives, arithmetic and ops on these devices, all processes together."""
    first = devices[0]
    hosts = len({device.process_index for device in devices})
    kind, count = first.device_kind, len(devices)
    links = measure_links(devices, lambda done, text: progress(LINKS_SHARE * done, text))
    compute = measure_compute(
        devices, lambda done, text: progress(LINKS_SHARE + (1 - LINKS_SHARE) * done, text)
    )
    where = "one process" if hosts == 1 else f"{hosts} processes"
    simulated = ", simulated on one processor" if first.platform == "cpu" and count > hosts else ""
    profile = HardwareProfile(
        name=f"{kind} x {count}",
        platform="gpu" if first.platform in ("cuda", "rocm") else first.platform,
        device_kind=kind,
        devices=count,
        devices_per_host=count // hosts,
        memory_bytes=memory_capacity(devices),
        curves=links,
        compute=compute,
        source=f"measured by gtjax profile in {where}{simulated}",
        date=time.strftime("%Y-%m-%d"),
        versions={name: importlib.metadata.version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        disk=_disk(),
    )
    return from_first_process(profile) or profile


def _disk() -> Disk | None:
    """Of temporary files, which is where chunks are kept unless told otherwise."""
    try:
        return measured_disk()
    except OSError:  # no room, or no such folder: then it is assumed
        return None


def memory_capacity(devices: Sequence[Any]) -> float:
    """Bytes that a program may use on each of these devices."""
    local = [d for d in devices if d.process_index == jax.process_index()] or list(devices)
    stats = local[0].memory_stats() if local[0].platform != "cpu" else None
    if stats and stats.get("bytes_limit"):
        return float(stats["bytes_limit"])
    if local[0].platform != "cpu":
        raise UserError(
            f"{local[0].device_kind} does not say how much memory it has. Plan with "
            "--memory GIGABYTES, or with a preset: --hardware NAME."
        )
    return _host_memory() / len(local) / _processes_here(devices)


def _host_memory() -> float:
    """Of this machine, or of the container that this process is confined to."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, float(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return total


def _processes_here(devices: Sequence[Any]) -> int:
    """Processes that share this machine's memory, as far as their names of it tell."""
    processes = len({device.process_index for device in devices})
    if processes == 1:
        return 1
    from jax.experimental import multihost_utils

    own = hash_of(platform.node())
    return int((multihost_utils.process_allgather(own) == own).sum())


def hash_of(text: str) -> int:
    """A number that is the same for the same text in every process."""
    import zlib

    return zlib.crc32(text.encode()) & 0x7FFFFFFF


def cached_path(devices: Sequence[Any]) -> Path:
    """Where the profile of such devices is kept: by what could change the measurement."""
    first, hosts = devices[0], len({device.process_index for device in devices})
    cores = f"-{os.cpu_count()}cores" if first.platform == "cpu" else ""
    words = (
        f"{first.device_kind}{cores}-{len(devices)}devices-{hosts}processes-jax{jax.__version__}"
    )
    return user_cache() / "hardware" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', words)}.json"


def _known(path: Path) -> HardwareProfile | None:
    try:
        return read_profile(path) if path.is_file() else None
    except UserError:  # of an older version: measured again
        return None


def from_first_process(profile: HardwareProfile | None) -> HardwareProfile | None:
    """What the first process has, in all of them: they have to come to the same plan."""
    if jax.process_count() == 1:
        return profile
    from jax.experimental.multihost_utils import broadcast_one_to_all

    text = b"" if profile is None else json.dumps(profile.to_json()).encode()
    size = int(broadcast_one_to_all(np.int32(len(text))))
    if not size:
        return None
    letters = np.resize(np.frombuffer(text or b" ", np.uint8), size)
    letters = np.asarray(broadcast_one_to_all(letters))
    return from_json(json.loads(letters.tobytes()), "the first process")
