"""What SLURM and Open MPI tell a process, as both were seen to."""

from __future__ import annotations

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.place import PORTS, first_host, open_mpi, slurm

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[07-09]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
}
MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_task_of_slurm():
    place = slurm(SLURM)
    assert (place.host, place.index, place.count) == ("node07", 2, 4)
    assert (place.local_index, place.local_count) == (0, 1)
    assert place.local_devices(None) is None  # a task that is alone on its host has all of it


def test_jobs_steps_and_times_have_ports_of_their_own():
    others = [{}, {"SLURM_JOB_ID": "4712"}, {"SLURM_STEP_ID": "1"}, {"SLURM_RESTART_COUNT": "1"}]
    ports = [int(slurm(SLURM | other).coordinator.rpartition(":")[2]) for other in others]
    assert len(set(ports)) == 4
    assert all(port in PORTS for port in ports)
    assert slurm(SLURM | {"JAX_COORDINATOR_PORT": "4000"}).coordinator == "node07:4000"


def test_a_rank_of_open_mpi():
    place = open_mpi(MPI)
    assert (place.host, place.index, place.count) == ("10.96.0.1", 1, 2)
    six = open_mpi(MPI | {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp6://[fe80::1,2620::2]:3"})
    assert six.coordinator == f"[fe80::1]:{PORTS[1]}"
    with pytest.raises(UserError, match="Give --coordinator HOST:PORT"):
        open_mpi({name: value for name, value in MPI.items() if "uri" not in name})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("node[001-015]", "node001"),
        ("node[001,007-015],x", "node001"),
        ("gpu-[3]-ib,x", "gpu-3-ib"),
    ],
)
def test_the_first_of_a_list_of_hosts(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("visible", "each", "ids"),
    [
        (None, None, [1]),  # as jax has it
        (None, 3, [3, 4, 5]),
        ("0,1,2,3", None, [2, 3]),
        ("6", None, None),  # the scheduler has shared them out
    ],
)
def test_gpus_of_a_process_that_is_not_alone_on_its_host(monkeypatch, visible, each, ids):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert open_mpi(MPI).local_devices(each) == ids
