"""Becoming one process of several, and what the whole then looks like.

Told explicitly, or found by jax in what SLURM, Open MPI, Kubernetes or a TPU pod say in the
environment. Free of jax until something is joined, so that `--help` is instant.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.distributed.reach import reach, waiting_aloud

HEARTBEAT_SECONDS = 100  # a process that jax does not hear of for so long is dead to it
THREADS = "32"  # with fewer, several simulated devices of a process may wait for each other


@dataclass(frozen=True)
class Processes:
    """Which process of how many this is; nothing need be said under SLURM, Open MPI, Kubernetes
    or on a TPU pod."""

    coordinator: str | None = None
    """Address and port of the first process, the same for all."""
    num_processes: int | None = None
    """How many processes there are."""
    process_id: int | None = None
    """Number of this one, from 0."""
    devices_per_process: int | None = None
    """Devices of each process; on a CPU so many are simulated."""
    join_seconds: float = 60.0
    """How long to try to reach the coordinator."""
    mtls_cert: Path | None = None
    """Certificate of this process, for a coordinator that others can reach (jax 0.12 or later)."""
    mtls_key: Path | None = None
    """Its key."""
    mtls_ca: Path | None = None
    """Certificate of the authority that signed those of all processes."""


def join(processes: Processes) -> str | None:
    """Join the other processes, if there are any; returns a warning for the first one to show."""
    if processes.coordinator is None:
        for name in ("num_processes", "process_id"):
            if getattr(processes, name) is not None:
                raise UserError(f"--{name.replace('_', '-')} goes with --coordinator HOST:PORT")
        found = surroundings()
        if found is None:
            return None
        return _initialize(processes, None, found)
    count, index = processes.num_processes, processes.process_id
    if count is None or index is None:
        raise UserError("--coordinator goes with --num-processes and --process-id")
    if count < 1 or not 0 <= index < count:
        raise UserError(f"--process-id is in 0..{count - 1}, of --num-processes; found {index}")
    host, _, port = processes.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f'--coordinator is such as "host:1234"; found {processes.coordinator!r}')
    if processes.join_seconds <= 0:
        raise UserError(f"--join-seconds is positive; found {processes.join_seconds:g}")
    return _initialize(processes, host, "--coordinator")


def surroundings() -> str | None:
    """Which scheduler says that this is one process of several; None if none does."""
    counts = {"SLURM": "SLURM_STEP_NUM_TASKS", "Open MPI": "OMPI_COMM_WORLD_SIZE"}
    for name, variable in counts.items():
        if os.environ.get(variable, "").isdecimal() and int(os.environ[variable]) > 1:
            return name
    if "," in os.environ.get("TPU_WORKER_HOSTNAMES", "") or os.environ.get(
        "MEGASCALE_COORDINATOR_ADDRESS"
    ):
        return "a TPU pod"
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.environ.get("JOB_COMPLETION_INDEX"):
        return "Kubernetes"
    return None


def _initialize(processes: Processes, host: str | None, found: str) -> str | None:
    import jax

    options: dict[str, Any] = {}
    secure = _certificates(processes)
    others = f"the processes that {found} tells of"
    if processes.coordinator is not None:
        place = (processes.process_id or 0, processes.num_processes or 1)
        reach(processes.coordinator, *place, processes.join_seconds)
        others = "all {1} processes at {2}, as process {0}".format(*place, processes.coordinator)
    local = host is not None and is_loopback(host)
    if host is not None:
        options = {
            "coordinator_address": processes.coordinator,
            "num_processes": processes.num_processes,
            "process_id": processes.process_id,
            "cluster_detection_method": "deactivate",
        }
    if local:  # nobody outside this machine has business with it
        options["coordinator_bind_address"] = processes.coordinator
    if each := processes.devices_per_process:
        if each > 1:
            os.environ.setdefault("NPROC", THREADS)
        jax.config.update("jax_num_cpu_devices", each)
        if processes.process_id is not None and local:
            first = processes.process_id * each
            options["local_device_ids"] = list(range(first, first + each))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM for itself; gtjax saves at the same step in all processes by itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        with waiting_aloud(others):
            jax.distributed.initialize(
                **options, **secure, heartbeat_timeout_seconds=HEARTBEAT_SECONDS
            )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"{found} says that this is one process of several, and they did not find each other: "
            f"{str(error).splitlines()[0]}. Check that all were started, and that they can reach "
            f"the coordinator."
        ) from error
    if local or secure:
        return None
    return (
        "the coordinator listens on all addresses of its host, without mTLS: whoever reaches the "
        "port can disturb this run. Keep it in a network that you trust, or give --mtls-cert, "
        "--mtls-key and --mtls-ca."
    )


def _certificates(processes: Processes) -> dict[str, Any]:
    import jax

    names = {"cert": processes.mtls_cert, "key": processes.mtls_key, "ca": processes.mtls_ca}
    given = {name: path for name, path in names.items() if path is not None}
    if not given:
        return {}
    for name in names.keys() - given.keys():
        raise UserError(f"--mtls-cert, --mtls-key and --mtls-ca go together; --mtls-{name} lacks")
    for name, path in given.items():
        if not path.is_file():
            raise UserError(f"--mtls-{name} {path}: no such file")
    if "mtls_cert_file" not in inspect.signature(jax.distributed.initialize).parameters:
        raise UserError(f"--mtls-cert needs jax 0.12 or later; this is {jax.__version__}")
    return {f"mtls_{name}_file": str(path) for name, path in given.items()}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def topology(team: Any) -> str:
    """Hosts, processes and devices in a line; every process has to ask."""
    import jax

    here = [socket.gethostname(), jax.local_device_count()]
    hosts: Counter[str] = Counter()
    processes: Counter[str] = Counter()
    for host, devices in team.from_all(here):
        hosts[host] += devices
        processes[host] += 1
    words = [
        _counted(len(hosts), "host"),
        _counted(team.count, "process"),
        f"{_counted(jax.device_count(), 'device')} ({jax.devices()[0].device_kind})",
    ]
    each = [
        f"{host}: {_counted(processes[host], 'process')}, {_counted(devices, 'device')}"
        for host, devices in hosts.items()
    ]
    return f"{', '.join(words)}; {'; '.join(each)}"


def _counted(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
