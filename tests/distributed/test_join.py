"""What is told or found about other processes, before any is joined."""

from __future__ import annotations

import inspect

import jax
import pytest

from gtjax.core.errors import UserError
from gtjax.distributed import join as module
from gtjax.distributed.authority import make_certificates
from gtjax.distributed.join import (
    Processes,
    check_devices,
    hosts_of,
    is_loopback,
    join,
    surroundings,
    topology,
)
from gtjax.distributed.team import OwnBoard, Team
from tests.distributed.test_place import MPI, SLURM

VARIABLES = (
    *SLURM,
    *MPI,
    "TPU_WORKER_HOSTNAMES",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "KUBERNETES_SERVICE_HOST",
    "JOB_COMPLETION_INDEX",
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def initialized(monkeypatch):
    """What jax was asked to join, instead of joining it."""
    calls, reached = [], []
    signature = inspect.signature(jax.distributed.initialize)

    def initialize(**options):
        signature.bind(**options)
        assert [(place.coordinator, place.index, place.count) for place in reached] == (
            [(options["coordinator_address"], options["process_id"], options["num_processes"])]
            if "coordinator_address" in options
            else []
        )
        calls.append(options)

    initialize.__signature__ = signature
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(module, "answer", lambda place, *_, **__: reached.append(place))
    return calls


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None),
        (SLURM, "SLURM"),
        (MPI, "Open MPI"),
        (SLURM | MPI, "Open MPI"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "a TPU pod"),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a:1"}, "a TPU pod"),
        ({"KUBERNETES_SERVICE_HOST": "a"}, None),
        ({"KUBERNETES_SERVICE_HOST": "a", "JOB_COMPLETION_INDEX": "0"}, "Kubernetes"),
    ],
)
def test_what_the_environment_says(monkeypatch, initialized, variables, found):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert surroundings() == found
    warning = join(Processes())
    assert len(initialized) == (found is not None)
    if found in ("SLURM", "Open MPI"):
        assert initialized[0]["cluster_detection_method"] == "deactivate"
    elif found:  # jax finds out the rest
        assert set(initialized[0]) == {"heartbeat_timeout_seconds", "initialization_timeout"}
    if found:
        assert "without mTLS" in warning


def test_on_one_machine_the_coordinator_is_for_this_machine_only(initialized):
    place = Processes("127.0.0.1:4321", num_processes=2, process_id=1, devices_per_process=3)
    assert join(place) is None
    assert initialized[0]["coordinator_bind_address"] == "127.0.0.1:4321"
    assert initialized[0]["local_device_ids"] == [3, 4, 5]


def test_a_coordinator_that_others_can_reach_is_warned_of(initialized):
    warning = join(Processes("trainer-0:4321", num_processes=2, process_id=0))
    assert "without mTLS" in warning
    assert "coordinator_bind_address" not in initialized[0]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Processes(num_processes=2), "--num-processes goes with --coordinator"),
        (Processes(process_id=0), "--process-id goes with --coordinator"),
        (Processes("a:1"), "--coordinator goes with --num-processes"),
        (Processes("a:1", 2, 2), r"--process-id is in 0\.\.1"),
        (Processes("a:1", 2, -1), r"--process-id is in 0\.\.1"),
        (Processes("a", 2, 0), "\"host:1234\"; found 'a'"),
        (Processes("a:0", 2, 0), "\"host:1234\"; found 'a:0'"),
        (Processes("a:99999", 2, 0), "99999"),
        (Processes("a:1", 2, 0, join_seconds=0), "--join-seconds is positive; found 0"),
    ],
)
def test_mistakes(place, said):
    with pytest.raises(UserError, match=said):
        join(place)


def test_certificates_are_handed_to_a_jax_that_takes_them(tmp_path, initialized):
    make_certificates(tmp_path, ("trainer-0",), 1)
    files = {"mtls_cert": "trainer-0.pem", "mtls_key": "trainer-0-key.pem", "mtls_ca": "ca.pem"}
    given = {name: tmp_path / file for name, file in files.items()}
    place = Processes("trainer-0:4321", 2, 0, **given)
    if "mtls_cert_file" in inspect.signature(jax.distributed.initialize).parameters:
        assert "arrays travel in clear" in join(place)
        assert initialized[0]["mtls_ca_file"] == str(tmp_path / "ca.pem")
    else:
        with pytest.raises(UserError, match=r"jax 0\.12"):
            join(place)


def test_processes_that_do_not_find_each_other(monkeypatch, initialized):
    def nobody(**options):
        raise RuntimeError("DEADLINE_EXCEEDED\nmany lines")

    monkeypatch.setattr(jax.distributed, "initialize", nobody)
    with pytest.raises(UserError, match=r"did not find each other: DEADLINE_EXCEEDED\. Check"):
        join(Processes("a:1", 2, 1))


def test_a_host_whose_own_name_does_not_resolve(monkeypatch, initialized):
    monkeypatch.setattr(module.socket, "gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(UserError, match=r"own name no-such-host.invalid does not resolve .*hosts"):
        join(Processes("a:1", 2, 1))
    assert not initialized


def test_loopback():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.3.4.5", "::1", "[::1]")))
    assert not any(map(is_loopback, ("trainer-0", "10.0.0.1", "0.0.0.0", "::")))


def test_processes_with_other_devices_are_refused(monkeypatch):
    team = Team(0, 2, OwnBoard())
    other = ["b", 1 + jax.local_device_count(), "cpu"]
    monkeypatch.setattr(team, "gathered", lambda here, make: make([here, other]))
    with pytest.raises(UserError, match=r"process 1 on b has \d+ \(cpu\). Give all the same --dev"):
        check_devices(team)


def test_the_topology_in_a_line():
    said = topology(hosts_of(Team(0, 1, OwnBoard())))
    assert said.startswith("1 host, 1 process, ")
