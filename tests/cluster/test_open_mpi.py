"""Runs under a real mpirun."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cluster.conftest import GTJAX, TRAIN, WORKER, held, losses, send

SECOND = {"OMPI_COMM_WORLD_RANK": "1"}
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")


@pytest.fixture
def started(installed, tmp_path):
    """Start a command in two ranks."""

    def start(*command):
        run = tmp_path / "run"
        words = (*command, "--out", str(run)) if TRAIN[0] in command else (*command, str(run))
        with (tmp_path / "log").open("a") as log:
            return subprocess.Popen([*MPIRUN, GTJAX, *words], stdout=log, stderr=log), run

    return start


def test_two_ranks(started, tmp_path, undisturbed):
    mpirun, run = started(*TRAIN)
    assert mpirun.wait(900) == 0, (tmp_path / "log").read_text()
    assert losses(run) == undisturbed


def test_a_rank_that_dies_ends_all_and_the_run_is_resumed(started, tmp_path, undisturbed):
    mpirun, run = started(*TRAIN)
    with held(run, **SECOND):
        send(signal.SIGKILL, run, **SECOND)
    assert mpirun.wait(300) != 0
    mpirun, run = started("resume")
    assert mpirun.wait(900) == 0, (tmp_path / "log").read_text()
    assert losses(run) == undisturbed


def test_a_supervised_rank_that_dies_is_started_again(started, tmp_path, undisturbed):
    mpirun, run = started("launch", "--", *TRAIN)
    with held(run, **SECOND, **WORKER):
        send(signal.SIGKILL, run, **SECOND, **WORKER)
    assert mpirun.wait(900) == 0, (tmp_path / "log").read_text()
    assert losses(run) == undisturbed
    assert "starting again" in (tmp_path / "log").read_text()
