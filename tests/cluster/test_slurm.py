"""Runs under a real SLURM, and what SLURM does to them: losses are those of the undisturbed run."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.cluster.conftest import GTJAX, TRAIN, WORKER, held, losses, send, steps_taken, until
from tests.cluster.slurm import NODES

SECOND = {**WORKER, "SLURM_PROCID": "1"}


@pytest.fixture
def submitted(slurm, tmp_path, monkeypatch):
    """Submit the run to two nodes as a user would; its job, its folder and its log."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])

    def submit(*options, command=TRAIN, more=()):
        out = tmp_path / "run"
        words = (*command, "--out", str(out), *more) if command is TRAIN else command
        done = subprocess.run(
            [GTJAX, "launch", "--slurm", "--nodes", "2", *options, "--", *words],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        return job, out, out.with_name(f"run-slurm-{job}.log")

    return submit


def test_a_step_over_two_nodes(slurm, submitted, undisturbed):
    job, run, log = submitted()
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert losses(run) == undisturbed
    assert "2 processes, 2 devices" in log.read_text()


def test_a_worker_that_is_killed(slurm, submitted, undisturbed):
    job, run, log = submitted()
    with held(run, **SECOND):
        send(signal.SIGKILL, run, **SECOND)
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert losses(run) == undisturbed
    assert "was ended by SIGKILL; starting again" in log.read_text()


def test_a_node_that_is_drained_finishes_what_it_has(slurm, submitted, undisturbed):
    job, run, log = submitted()
    with held(run, **SECOND):
        slurm.call("scontrol", "update", f"nodename={NODES[1]}", "state=drain", "reason=test")
    try:
        assert slurm.ended(job) == "COMPLETED", log.read_text()
        assert losses(run) == undisturbed
        until(lambda: slurm.states()[NODES[1]] == "DRAINED")
    finally:
        slurm.call("scontrol", "update", f"nodename={NODES[1]}", "state=resume")


@pytest.mark.parametrize("node", [1, 0])
def test_a_node_whose_daemon_dies_is_waited_for(slurm, submitted, undisturbed, node):
    """SLURM queues the job again, and cannot end what still runs on that node."""
    job, run, log = submitted()
    with held(run, **SECOND):
        slurm.kill(f"slurmd.{NODES[node]}", signal.SIGKILL)
        until(lambda: "DOWN" in slurm.states()[NODES[node]])
        until(lambda: slurm.state(job) == "PENDING")
    slurm.start_node(NODES[node])
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert losses(run) == undisturbed
    assert "Restarts=1" in slurm.call("scontrol", "show", "job", job)


def test_a_signal_saves_and_the_run_is_continued(slurm, submitted, undisturbed):
    job, run, log = submitted()
    with held(run, **SECOND):
        slurm.call("scancel", "--signal=TERM", job)
        until(lambda: "gtjax: stopping" in log.read_text())
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert "stopped at step" in log.read_text()
    assert not (run / "result.json").exists()
    job, run, log = submitted(command=("resume", str(run)))
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert losses(run) == undisturbed


def test_the_time_limit_saves_before_it_comes(slurm, submitted, undisturbed):
    job, run, log = submitted("--time", "1d", "--save-seconds", "60")
    with held(run, **SECOND):
        used = slurm.call("squeue", "-h", "-j", job, "-O", "TimeUsed").strip()
        limit = int(used.split(":")[-2]) + 1  # minutes
        slurm.call("scontrol", "update", f"jobid={job}", f"timelimit={limit}")
        until(lambda: "gtjax: stopping" in log.read_text())
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert "stopped at step" in log.read_text()
    rows = (run / "metrics.jsonl").read_text().splitlines()
    taken = [json.loads(row)["loss"] for row in rows]
    assert taken == undisturbed[: len(taken)]


def test_a_job_that_is_queued_again_continues(slurm, submitted, undisturbed):
    job, run, log = submitted()
    with held(run, **SECOND):
        slurm.call("scontrol", "requeue", job)
    assert slurm.ended(job) == "COMPLETED", log.read_text()
    assert losses(run) == undisturbed
    assert log.read_text().count("resuming") == 1


def test_the_runs_of_an_array_do_not_disturb_each_other(slurm, tmp_path, undisturbed):
    runs = [tmp_path / f"run-{index}" for index in range(2)]
    words = [GTJAX, "launch", "--", *TRAIN, "--out", f"{tmp_path}/run-$SLURM_ARRAY_TASK_ID"]
    script = f"#!/bin/bash\nexec srun --kill-on-bad-exit=0 {' '.join(words)}\n"
    (tmp_path / "batch.sh").write_text(script)
    log = f"--output={tmp_path}/log-%a"
    job = slurm.submit("-N2", "-n2", "--array=0-1", log, str(tmp_path / "batch.sh"))
    until(lambda: slurm.state(job) == "RUNNING" and all(map(steps_taken, runs)))
    assert slurm.ended(job) == "COMPLETED", (tmp_path / "log-0").read_text()
    assert [losses(run) == undisturbed for run in runs] == [True, True]
