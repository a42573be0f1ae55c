"""Which process of how many this is, and where the first one listens, as schedulers tell it.

SLURM and Open MPI tell it in the environment. jax reads that too, but takes one port for all steps
of a job and all times it is requeued, so that processes of an earlier time meet those of the next;
and it gives a process one GPU, also where it has a host to itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gtjax.core.errors import UserError

PORTS = range(61440, 65536)  # above those that systems give away by themselves
PORT = "JAX_COORDINATOR_PORT"  # the name that jax has for it
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Place:
    """One process of several."""

    coordinator: str  # host and port of process 0
    index: int
    count: int
    told_by: str
    local_index: int = 0  # among those of the same host
    local_count: int = 1
    time: str = ""  # of starting: who was started before the others is not one of them

    @property
    def host(self) -> str:
        """Of process 0."""
        return self.coordinator.rpartition(":")[0]

    def local_devices(self, each: int | None) -> list[int] | None:
        """Numbers of the GPUs for this process of a host; None for all that it sees."""
        if self.local_count == 1:
            return None
        if each is None:
            seen = next((os.environ[name] for name in VISIBLE if os.environ.get(name)), None)
            count = self.local_count if seen is None else len(seen.split(","))
            if count < self.local_count:  # the scheduler has shared them out already
                return None
            each = count // self.local_count
        return list(range(self.local_index * each, (self.local_index + 1) * each))


def open_mpi(environment: Mapping[str, str]) -> Place:
    """As mpirun tells it."""
    uri = environment.get("OMPI_MCA_orte_hnp_uri", "")
    # Such as 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911, or tcp6://[fe80::1,2620::2]:34911.
    host = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    if host is None:
        raise UserError(
            "Open MPI says that this is one process of several, but not where the first one is "
            "(before version 5 it does, in OMPI_MCA_orte_hnp_uri). Give --coordinator HOST:PORT, "
            "--num-processes and --process-id $OMPI_COMM_WORLD_RANK."
        )
    address = host[1] or f"[{host[2]}]"
    number = int(uri.partition(".")[0]) // 2**12  # it is a multiple of that
    return Place(
        f"{address}:{_port(number, environment)}",
        int(environment["OMPI_COMM_WORLD_RANK"]),
        int(environment["OMPI_COMM_WORLD_SIZE"]),
        "Open MPI",
        int(environment["OMPI_COMM_WORLD_LOCAL_RANK"]),
        int(environment["OMPI_COMM_WORLD_LOCAL_SIZE"]),
        uri.partition(";")[0],
    )


def slurm(environment: Mapping[str, str]) -> Place:
    """As srun tells it."""
    job, step = environment["SLURM_JOB_ID"], environment.get("SLURM_STEP_ID", "0")
    again = environment.get("SLURM_RESTART_COUNT", "0")
    # Jobs at the same time have numbers close to each other.
    port = _port(int(job) + 97 * int(step) + 1024 * int(again), environment)
    node = int(environment["SLURM_NODEID"])
    return Place(
        f"{first_host(environment['SLURM_STEP_NODELIST'])}:{port}",
        int(environment["SLURM_PROCID"]),
        int(environment["SLURM_STEP_NUM_TASKS"]),
        "SLURM",
        int(environment["SLURM_LOCALID"]),
        _expanded(environment["SLURM_STEP_TASKS_PER_NODE"])[node],
        f"job {job}, step {step}, started {int(again) + 1} times",
    )


def first_host(nodes: str) -> str:
    """Of SLURM's list: node001 of "node[001-015,017],other" or of "node001,other"."""
    head, bracket, rest = nodes.partition(",")[0].partition("[")
    if not bracket:
        return head
    return head + re.split(r"[,\-\]]", rest)[0] + nodes.partition("]")[2].partition(",")[0]


def _expanded(counts: str) -> list[int]:
    """[2, 2, 1] of "2(x2),1"."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", counts)
    return [int(count) for count, times in found for _ in range(int(times or 1))]


def _port(number: int, environment: Mapping[str, str]) -> int:
    wanted = environment.get(PORT, "")
    return int(wanted) if wanted.isdecimal() else PORTS[number % len(PORTS)]
