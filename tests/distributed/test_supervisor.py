"""The supervisor with processes that do what they are told: end, fail, hang, ignore signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from gtjax.distributed.exits import FAILED, FINISHED, LOST, MISTAKE
from gtjax.distributed.supervisor import Job, Local, Supervisor, free_port, newest_checkpoint

# What a worker does: argv is [command, run folder, ..., --process-id, index].
WORKER = """
import os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[2]); run.mkdir(exist_ok=True)
index = int(sys.argv[-1]) if "--process-id" in sys.argv else 0
(run / "starts").open("a").write(f"{sys.argv[1]} {index}\\n")
starts = lambda: (run / "starts").read_text().split("\\n").count(f"{sys.argv[1]} {index}")
def checkpoint(step):
    (run / "config.json").write_text("{}")
    (run / "checkpoints" / str(step)).mkdir(parents=True, exist_ok=True)
"""


def supervise(tmp_path, code, processes=1, restarts=3, **options):
    run, said = tmp_path / "run", []
    job = Job(("train", str(run)), ("resume", str(run)), run)
    supervisor = Supervisor(
        job,
        Local(processes, pin=False),
        restarts=restarts,
        **{"grace": 1.0, "backoff": 0.05, **options},
        say=said.append,
        entry=(sys.executable, "-c", WORKER + textwrap.dedent(code)),
    )
    return supervisor, run, said


def started(run):
    return (run / "starts").read_text().split("\n")[:-1]


def test_all_that_finish_are_finished(tmp_path):
    supervisor, run, said = supervise(tmp_path, "sys.exit(0)", processes=3)
    assert supervisor.run() == FINISHED
    assert sorted(started(run)) == ["train 0", "train 1", "train 2"]
    assert not said


def test_who_is_killed_is_named_and_the_run_continued_from_its_checkpoint(tmp_path):
    code = """
    checkpoint(40)
    if sys.argv[1] == "train":
        if index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # stuck: it would wait for the other
    """
    supervisor, run, said = supervise(tmp_path, code, processes=2)
    began = time.monotonic()
    assert supervisor.run() == FINISHED
    assert time.monotonic() - began < 20
    assert sorted(started(run)) == ["resume 0", "resume 1", "train 0", "train 1"]
    assert len(said) == 1
    assert "process 1 (pid" in said[0]
    assert (
        "was ended by SIGKILL; starting again in 0.05 s from the checkpoint of step 40" in said[0]
    )


def test_it_begins_anew_where_nothing_was_written(tmp_path):
    supervisor, run, said = supervise(tmp_path, f"sys.exit(0 if starts() > 1 else {LOST})")
    assert supervisor.run() == FINISHED
    assert started(run) == ["train 0", "train 0"]
    assert "from the beginning" in said[0]


def test_it_gives_up_after_failures_without_progress(tmp_path):
    supervisor, run, said = supervise(tmp_path, "sys.exit(1)", restarts=2)
    assert supervisor.run() == FAILED
    assert started(run) == ["train 0"] * 3
    assert "giving up after 3 failures without a new checkpoint" in said[-1]
    assert [word for line in said for word in line.split() if word in ("0.05", "0.1")] == [
        "0.05",
        "0.1",
    ]


def test_progress_forgives(tmp_path):
    code = """
    checkpoint(starts() if sys.argv[1] == "resume" else 0)
    sys.exit(0 if sys.argv[1] == "resume" and starts() > 5 else 1)
    """
    supervisor, _run, said = supervise(tmp_path, code, restarts=1)
    assert supervisor.run() == FINISHED
    assert len(said) == 6


def test_a_mistake_is_not_repeated(tmp_path):
    code = f"""
    if index == 1:
        sys.exit({MISTAKE})
    time.sleep(60)
    """
    supervisor, run, _said = supervise(tmp_path, code, processes=2)
    assert supervisor.run() == MISTAKE
    assert sorted(started(run)) == ["train 0", "train 1"]


def test_a_signal_is_passed_on_once_and_the_second_ends_all(tmp_path):
    code = """
    checkpoint(1)
    signal.signal(signal.SIGTERM, lambda *_: (run / f"asked-{index}").write_text("x"))
    (run / f"ready-{index}").write_text("x")
    while True:
        time.sleep(0.05)
    """
    supervisor, run, _ = supervise(tmp_path, code, processes=2)

    def signals():
        wait_for(lambda: all((run / f"ready-{i}").exists() for i in range(2)))
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(lambda: all((run / f"asked-{i}").exists() for i in range(2)))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=signals)
    thread.start()
    assert supervisor.run() == FAILED
    thread.join()
    assert len(started(run)) == 2


def test_workers_that_save_on_a_signal_end_well(tmp_path):
    code = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (run / f"ready-{index}").write_text("x")
    time.sleep(60)
    """
    supervisor, run, _ = supervise(tmp_path, code, processes=2)

    def signals():
        wait_for(lambda: all((run / f"ready-{i}").exists() for i in range(2)))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=signals)
    thread.start()
    assert supervisor.run() == FINISHED
    thread.join()


def wait_for(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    assert holds()


@pytest.mark.parametrize(("names", "newest"), [((), -1), (("3", "12", "40.tmp"), 12), (("x",), -1)])
def test_the_newest_checkpoint(tmp_path, names, newest):
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert newest_checkpoint(tmp_path) == newest
    assert newest_checkpoint(None) == -1


def test_the_port_is_free_and_on_this_machine():
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import socket; socket.socket().bind(('127.0.0.1', {free_port()}))",
        ],
        check=True,
    )
