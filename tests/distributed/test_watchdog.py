"""A turn that takes too long ends the process, and the one that did not arrive is named."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest

from gtjax.distributed import pulse
from gtjax.distributed import watchdog as module
from gtjax.distributed.exits import LOST
from gtjax.distributed.team import OwnBoard, Team
from gtjax.distributed.watchdog import Watchdog


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for each in (module, pulse):
        monkeypatch.setattr(each, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "INSPECTION_SECONDS", 0.5)


def watch(index, count, board, folder, ends, **options):
    options = {"least": 1.0, "end": lambda code: ends.append((index, code)), **options}
    return Watchdog(Team(index, count, board), folder, **options)


def wait_for(holds, seconds=10.0):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    assert holds()


def test_who_is_behind_is_named_by_the_others_and_leaves_its_stacks(tmp_path, capfd):
    board, ends = OwnBoard(), []
    with contextlib.ExitStack() as stack:
        dogs = [stack.enter_context(watch(i, 3, board, tmp_path, ends)) for i in range(3)]
        for turn in range(2):
            for index, dog in enumerate(dogs):
                if turn == 0 or index != 2:  # process 2 never comes to its second turn
                    dog.next_turn(1)
        wait_for(lambda: {index for index, _ in ends} == {0, 1, 2})
    said = capfd.readouterr().err
    assert "process 2 did not arrive: it answers, but is stuck; pid" in said
    assert "process 0 did not arrive" not in said
    assert "process 1 did not arrive" not in said
    assert all(code == LOST for _, code in ends)
    stacks = (tmp_path / "stacks" / "process-2.txt").read_text()
    assert "test_who_is_behind_is_named" in stacks


def test_who_is_silent_is_named(tmp_path, capfd):
    board, ends = OwnBoard(), []
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(stopped.pid, 19)
        told = f'{{"marks": 1, "beat": 7, "host": "{pulse.socket.gethostname()}", '
        board.put("alive/1", told + f'"pid": {stopped.pid}}}')
        with watch(0, 2, board, tmp_path, ends) as dog:
            dog.next_turn(1)
            wait_for(lambda: ends)
    finally:
        stopped.kill()
        stopped.wait()
    said = capfd.readouterr().err
    assert "process 1 did not arrive: it is silent and stopped by a signal" in said
    assert f"pid {stopped.pid} on" in said


def test_turns_in_time_end_nothing_however_long_the_rest_takes(tmp_path):
    board, ends = OwnBoard(), []
    with watch(0, 1, board, tmp_path, ends, least=0.6) as dog:
        for _ in range(8):
            dog.next_turn(1)
            time.sleep(0.2)
            dog.took(0.2)
        with dog.paused():
            time.sleep(1.5)
        dog.next_turn(1)
    assert not ends


def test_the_limit_follows_the_median_and_the_number_of_steps(tmp_path):
    dog = watch(0, 1, OwnBoard(), tmp_path, [], least=60.0)
    for seconds in (9.0, 10.0, 500.0):
        dog.took(seconds)
    dog.next_turn(1)
    assert dog.limit == 100.0
    dog.next_turn(3)
    assert dog.limit == 300.0
    fast = watch(0, 1, OwnBoard(), tmp_path, [], least=60.0)
    fast.took(0.1)
    fast.next_turn(10)
    assert fast.limit == 60.0


def test_a_coordinator_that_does_not_answer_is_named(tmp_path, capfd):
    class Dead(OwnBoard):
        def put(self, name, text):
            time.sleep(3)

        def under(self, prefix):
            time.sleep(3)
            return {}

    ends = []
    with watch(1, 2, Dead(), tmp_path, ends) as dog:
        dog.next_turn(1)
        wait_for(lambda: ends)
    assert (
        "process 0 did not arrive: it is the coordinator, and does not answer"
        in capfd.readouterr().err
    )
