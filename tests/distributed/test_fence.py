"""A process that was left behind writes nothing to the run of the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import jax.numpy as jnp
import pytest

from gtjax.cli.main import main
from gtjax.distributed.exits import FINISHED, LOST
from gtjax.distributed.fence import Fence, told
from gtjax.distributed.meeting import Decision, Meeting
from gtjax.distributed.pulse import LostError
from gtjax.distributed.workers import ENTRY
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.program import State
from tests.distributed.test_supervisor import wait_for


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def decided(run: Path, number: int) -> None:
    assert Meeting.beside(run).decide(Decision(number, (1,), ("a",), "a:1"))


def of_generation(run: Path, number: int) -> Fence:
    return Fence(told(number, Meeting.beside(run)))


def test_who_no_elastic_supervisor_started_may_write(run):
    decided(run, 7)
    Fence({}).check()


def test_who_is_of_the_newest_generation_may_write(run):
    decided(run, 7)
    of_generation(run, 7).check()


@pytest.mark.parametrize(("newest", "said"), [(8, "they are at 8"), (None, "all are done")])
def test_who_was_gone_on_without_may_not(run, newest, said):
    if newest is not None:
        decided(run, newest)
    with pytest.raises(LostError, match=said):
        of_generation(run, 7).check()


def test_it_neither_writes_a_checkpoint_nor_removes_those_of_the_others(run):
    def snapshot(step):
        params = {"w": jnp.float32(step)}
        return Snapshot(
            State(params, None, (), jnp.int32(step), jnp.array(True)), Best.none_yet(params)
        )

    decided(run, 1)
    with Checkpoints(run) as ours:  # of those who went on
        ours.save(snapshot(60))
    theirs = Checkpoints(run, allowed=of_generation(run, 1).check)
    decided(run, 2)
    theirs.save(snapshot(50))
    with pytest.raises(LostError):
        theirs.save(snapshot(51))
    assert Checkpoints(run).steps() == [60]


@pytest.mark.slow
def test_seeds_in_turn_each_with_a_folder_are_held_to_the_same_decision(run, monkeypatch):
    decided(run, 1)
    monkeypatch.setenv(*told(1, Meeting.beside(run)).popitem())
    small = ["--data", "synthetic-citation:nodes=100", "--model", "gcn", "--devices", "2"]
    train = ["train", *small, "--steps", "1", "--seeds", "2", "--out", str(run)]
    assert main(train) == FINISHED
    decided(run, 2)
    assert main([*train[:-1], f"{run}-2"]) == LOST


@pytest.mark.slow
def test_a_run_of_one_process_whose_supervisor_is_stopped_is_taken_over(tmp_path, run):
    """And has every step once: the process that was left behind ends by itself."""
    train = ["train", "--data", "synthetic-citation:nodes=100", "--model", "gcn"]
    train += ["--out", str(run), "--steps", "1000000", "--checkpoint-seconds", "1"]
    launch = [*ENTRY, "launch", "--elastic", "1:2", "--elastic-seconds", "1", "--", *train]

    def host(name):
        with (tmp_path / name).open("wb") as log:
            return subprocess.Popen(launch, stdout=log, stderr=log)

    def said(name):
        return (tmp_path / name).read_text(errors="replace")

    hosts = [host("first.log")]
    try:
        wait_for((run / "checkpoints").is_dir, 120)
        (worker,) = _children(hosts[0].pid)
        hosts[0].send_signal(signal.SIGSTOP)
        hosts.append(host("second.log"))
        newest = Meeting.beside(run).newest
        wait_for(lambda: newest().number == 2 and newest().hosts, 60)
        wait_for(lambda: _ended(worker), 60)
        assert "have gone on without this process" in said("first.log")
        step = _steps(run)[-1]
        wait_for(lambda: _steps(run)[-1] > step, 120)
        assert _every_step_once(run)
        hosts[0].send_signal(signal.SIGCONT)
        wait_for(lambda: "the others went on without this host" in said("first.log"), 60)
        for each in hosts:
            each.send_signal(signal.SIGTERM)
        assert hosts[1].wait(120) == FINISHED
        assert _every_step_once(run)
    finally:
        for each in hosts:
            if each.poll() is None:
                for pid in (*_children(each.pid), each.pid):
                    os.kill(pid, signal.SIGKILL)
            each.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def _every_step_once(run: Path) -> bool:
    steps = _steps(run)  # read once: it grows
    return steps == list(range(1, len(steps) + 1))


def _steps(run: Path) -> list[int]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]
