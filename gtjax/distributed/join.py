"""Becoming one process of several, and what the whole then looks like.

Told explicitly, or found by jax in what SLURM, Open MPI, Kubernetes or a TPU pod say in the
environment. Free of jax until something is joined, so that `--help` is instant.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.distributed.certificates import Certificates
from gtjax.distributed.exits import JoinError, ToldError
from gtjax.distributed.place import Place, open_mpi, slurm
from gtjax.distributed.roll_call import answer

HEARTBEAT_SECONDS = 100  # a process that jax does not hear of for so long is dead to it
THREADS = "32"  # with fewer, several simulated devices of a process may wait for each other
READ = {"Open MPI": open_mpi, "SLURM": slurm}  # jax finds the places of others


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
    """Certificate of this process, for a coordinator that others can reach (jax 0.12 or later);
    {host} stands for the name of its host."""
    mtls_key: Path | None = None
    """Its key."""
    mtls_ca: Path | None = None
    """Certificate of the authority that signed those of all processes."""


def join(processes: Processes, problem: str | None = None) -> str | None:
    """Join the other processes, if there are any; returns a warning for the first one to show.

    `problem` is why this process cannot take part: then all are told, and none goes on.
    """
    if processes.join_seconds <= 0:
        raise UserError(f"--join-seconds is positive; found {processes.join_seconds:g}")
    if processes.coordinator is not None:
        return _initialize(processes, _told(processes), "--coordinator", problem)
    for name in ("num_processes", "process_id"):
        if getattr(processes, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} goes with --coordinator HOST:PORT")
    found = surroundings()
    if found is None:
        return None
    place = READ[found](os.environ) if found in READ else None
    return _initialize(processes, place, found, problem)


def _told(processes: Processes) -> Place:
    """The place that options say this is."""
    address, count, index = processes.coordinator, processes.num_processes, processes.process_id
    if address is None or count is None or index is None:
        raise UserError("--coordinator goes with --num-processes and --process-id")
    if count < 1 or not 0 <= index < count:
        raise UserError(f"--process-id is in 0..{count - 1}, of --num-processes; found {index}")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f'--coordinator is such as "host:1234"; found {address!r}')
    if is_loopback(host):
        return Place(address, index, count, "--coordinator", index, count)
    return Place(address, index, count, "--coordinator")


def surroundings() -> str | None:
    """Which scheduler says that this is one process of several; None if none does."""
    # Open MPI first: within a job of SLURM it starts its processes by a step of that.
    counts = {"Open MPI": "OMPI_COMM_WORLD_SIZE", "SLURM": "SLURM_STEP_NUM_TASKS"}
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


def _initialize(
    processes: Processes, place: Place | None, found: str, problem: str | None
) -> str | None:
    """Call the roll, then have jax join; without a place it finds its own."""
    options: dict[str, Any] = {"initialization_timeout": math.ceil(processes.join_seconds)}
    certificates = Certificates.of(processes.mtls_cert, processes.mtls_key, processes.mtls_ca)
    each = processes.devices_per_process
    local = place is not None and is_loopback(place.host)
    if place is None:
        say(f"gtjax: waiting for the processes that {found} tells of")
    else:
        problem = problem or _unnamed()
        secure = certificates and certificates.contexts(place.host if place.index == 0 else None)
        answer(place, processes.join_seconds, secure=secure, local=local, problem=problem)
        options |= {
            "coordinator_address": place.coordinator,
            "num_processes": place.count,
            "process_id": place.index,
            "cluster_detection_method": "deactivate",
        }
        if (devices := place.local_devices(each)) is not None:
            options["local_device_ids"] = devices
    if problem is not None:
        raise UserError(problem)
    import jax

    if each is not None:
        if each > 1:
            os.environ.setdefault("NPROC", THREADS)
        jax.config.update("jax_num_cpu_devices", each)
    if local:  # nobody outside this machine has business with it
        options["coordinator_bind_address"] = options["coordinator_address"]
    if certificates is not None:
        options |= certificates.for_jax()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM for itself; gtjax saves at the same step in all processes by itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**options, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except (RuntimeError, ValueError) as error:
        raise JoinError(
            f"{found} says that this is one process of several, and they did not find each other: "
            f"{str(error).splitlines()[0]}. Check that all were started, and that they can reach "
            f"the coordinator."
        ) from error
    if local:
        return None
    if certificates is not None:
        return (
            "mTLS guards the coordinator alone: arrays travel in clear, between CPUs by gloo and "
            "between GPUs by NCCL. Keep the hosts in a network that you trust."
        )
    return (
        "the coordinator listens on all addresses of its host, without mTLS: whoever reaches the "
        "port can disturb this run. Keep it in a network that you trust, or give --mtls-cert, "
        "--mtls-key and --mtls-ca (gtjax certificates makes them)."
    )


def _unnamed() -> str | None:
    """What is wrong with the name of this host, by which gloo tells others where it is."""
    host = socket.gethostname()
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return (
            f"this host's own name {host} does not resolve ({error.strerror}), and gloo looks for "
            "it. Add it to /etc/hosts, with an address that the others reach."
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def hosts_of(team: Any) -> list[dict[str, Any]]:
    """Name, processes and devices of every host, for the first process; every process has to ask.

    The others get an empty list: it is long where there are many hosts, and they show nothing.
    """
    import jax

    devices: Counter[str] = Counter()
    processes: Counter[str] = Counter()
    for host, count in team.to_first([socket.gethostname(), jax.local_device_count()]) or ():
        devices[host] += count
        processes[host] += 1
    return [
        {"host": host, "processes": processes[host], "devices": devices[host]} for host in devices
    ]


def topology(hosts: list[dict[str, Any]]) -> str:
    """Hosts, processes and devices in a line."""
    import jax

    words = [
        _counted(len(hosts), "host"),
        _counted(sum(one["processes"] for one in hosts), "process"),
        f"{_counted(jax.device_count(), 'device')} ({jax.devices()[0].device_kind})",
    ]
    each = [
        f"{one['host']}: {_counted(one['processes'], 'process')}, "
        f"{_counted(one['devices'], 'device')}"
        for one in hosts
    ]
    return f"{', '.join(words)}; {'; '.join(each)}"


def check_devices(team: Any) -> None:
    """Refuse processes with other devices than the first has; every process has to ask."""
    import jax

    here = [socket.gethostname(), jax.local_device_count(), jax.local_devices()[0].device_kind]

    def misfit(found: list[Any]) -> str | None:
        for index, (host, count, kind) in enumerate(found):
            if [count, kind] != found[0][1:]:
                return (
                    "every process needs as many devices of the same kind: process 0 on "
                    f"{found[0][0]} has {found[0][1]} ({found[0][2]}), process {index} on {host} "
                    f"has {count} ({kind}). Give all the same --devices-per-process, or use hosts "
                    "alike."
                )
        return None

    if said := team.gathered(here, misfit):
        raise UserError(said) if team.is_first else ToldError(said)


def _counted(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
