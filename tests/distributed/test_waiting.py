"""Who waits says for whom; a process that takes long is waited for, one that is gone is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gtjax.distributed import pulse as pulse_module
from gtjax.distributed import waiting as module
from gtjax.distributed.exits import LOST
from gtjax.distributed.supervisor import free_port
from gtjax.distributed.team import LostError, OwnBoard, Team
from gtjax.distributed.waiting import few


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(module, "FIRST_WORD_SECONDS", 0.2)


class Stoppable(OwnBoard):
    """Answers until it is stopped."""

    stopped = False

    def put(self, name, text):
        while self.stopped:
            time.sleep(0.01)
        super().put(name, text)


def team_of_two(board, index, limit=0.6):
    team = Team(index, 2, board)
    team.pulse.limit = limit
    team.pulse.start()
    return team


def test_work_that_takes_long_is_waited_for_and_told_of(quick, capfd):
    board = Stoppable()
    first, other = (team_of_two(board, index) for index in (0, 1))
    found = []
    thread = threading.Thread(target=lambda: found.append(other.from_first(lambda: None)))
    thread.start()
    first.doing("reading the graph")
    time.sleep(2.0)  # more than three times the limit
    first.from_first(lambda: "all of it")
    thread.join(timeout=10)
    assert found == ["all of it"]
    said = capfd.readouterr().err
    host = pulse_module.socket.gethostname()
    assert f"gtjax: process 0 on {host} is reading the graph, 0 s" in said
    assert 2 <= said.count("is reading the graph") <= 6  # at twice the time, again and again
    for team in (first, other):
        team.pulse.stop()


def test_a_first_process_that_answers_no_more_is_lost(quick, capfd):
    board = Stoppable()
    first, other = (team_of_two(board, index) for index in (0, 1))
    first.doing("partitioning")
    ends = []

    def wait():
        try:
            other.from_first(lambda: None)
        except LostError as lost:
            ends.append(str(lost))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    board.stopped = True
    thread.join(timeout=10)
    board.stopped = False
    host = pulse_module.socket.gethostname()
    assert ends
    assert ends[0].startswith(f"process 0 on {host} (pid {os.getpid()}) has not answered for 1 s")
    assert "the limit is 0.6, of --watchdog-seconds" in ends[0]
    assert ends[0].endswith("it was partitioning.")
    for team in (first, other):
        team.pulse.stop()


@pytest.mark.parametrize("known", [True, False])
def test_another_process_that_is_silent_is_lost(quick, known):
    board = OwnBoard()
    first = team_of_two(board, 0)
    if known:
        board.put("alive/1", '{"marks": 0, "beat": 3, "host": "b", "pid": 9, "agreed": 0}')
    with pytest.raises(LostError) as lost:
        first.gathered(1, len)
    first.pulse.stop()
    said = "process 1 on b (pid 9) is silent" if known else "of which nothing was ever heard"
    assert said in str(lost.value)


def test_beats_are_as_many_as_it_takes_to_notice_and_no_more():
    def seconds(count, limit):
        team = Team(0, count, OwnBoard())
        team.pulse.limit = limit
        return team.pulse.seconds

    assert [seconds(count, 60.0) for count in (2, 16, 512)] == [1.0] * 3
    assert seconds(1024, 60.0) == 2.0
    assert seconds(4096, 60.0) == 7.5
    assert seconds(4096, 600.0) == 8.0
    assert seconds(4096, 10.0) == 1.25


def test_of_many_the_first_are_named():
    assert few(["a", "b"]) == "a, b"
    assert few([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


PROCESS = """
import os, signal, sys, time
import jax

index, address = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(
    address, 2, index, cluster_detection_method="deactivate", coordinator_bind_address=address
)
from gtjax.distributed.team import LostError, this_team

team = this_team()
team.pulse.limit = 6.0
team.gathered(index, sum)


def stuck():
    team.doing("reading the graph")
    time.sleep(10)  # longer than the limit
    team.doing("partitioning")
    time.sleep(2)
    os.kill(os.getpid(), signal.SIGSTOP)


try:
    team.from_first(stuck)
except LostError as lost:
    print(lost, file=sys.stderr, flush=True)
    os._exit(75)
"""


@pytest.mark.slow
def test_a_host_that_is_stopped_while_it_prepares_is_named_by_real_processes():
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("GTJAX_SUPERVISED", None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(index), address],
            env=environment,
            stderr=subprocess.PIPE if index else subprocess.DEVNULL,
            text=True,
        )
        for index in range(2)
    ]
    try:
        said = processes[1].communicate(timeout=120)[1]
        assert processes[1].returncode == LOST, said
        assert f"(pid {processes[0].pid} and stopped by a signal) has not answered for" in said
        assert "it was partitioning" in said
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
