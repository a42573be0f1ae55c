"""Processes agree on what the first one decides; here they are threads with one board."""

from __future__ import annotations

import threading
import time

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.exits import ToldError
from gtjax.distributed.team import OwnBoard, Team


def together(count, work, board=None):
    """What `work(team)` gives or raises in each of so many processes."""
    board, results = board or OwnBoard(), [None] * count

    def run(index):
        try:
            results[index] = work(Team(index, count, board))
        except UserError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    return results


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_get_what_the_first_makes(count):
    made = []

    def work(team):
        first = team.from_first(lambda: made.append(team.index) or {"a": [1, 2.5, None, "x"]})
        return first, team.from_first(lambda: team.index)

    assert together(count, work) == [({"a": [1, 2.5, None, "x"]}, 0)] * count
    assert made == [0]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_get_what_the_first_makes_of_what_all_have(count):
    made = []

    def work(team):
        value = None if team.index == 1 else team.index**2  # nothing is something to have too
        return team.gathered(value, lambda values: made.append(team.index) or [sum_of(values)])

    def sum_of(values):
        assert values == [None if i == 1 else i**2 for i in range(count)]
        return sum(each or 0 for each in values)

    assert together(count, work) == [[sum(i**2 for i in range(count) if i != 1)]] * count
    assert made == [0]


def test_what_all_have_goes_to_the_first_alone():
    assert together(3, lambda team: team.to_first(team.index)) == [[0, 1, 2], None, None]


def test_the_first_that_has_something_is_known_to_all():
    found = together(4, lambda team: team.first_found("x" * team.index if team.index > 1 else None))
    assert found == [(2, "xx")] * 4
    assert together(4, lambda team: team.first_found(None)) == [None] * 4


def test_a_mistake_in_what_the_first_makes_is_one_of_all():
    def broken(values):
        raise UserError(f"{len(values)} are too few")

    first, *others = together(3, lambda team: team.gathered(1, broken))
    assert type(first) is UserError
    assert all(isinstance(each, ToldError) and str(each) == "3 are too few" for each in others)


def test_what_was_told_is_forgotten_once_all_have_read_it():
    boards = []

    def work(team):
        boards.append(team.board)
        for number in range(20):
            team.from_first(lambda n=number: n)
            team.gathered(team.index, sum)
            team.to_first(team.index)

    together(3, work)
    left = boards[0].under("")
    assert len(left) <= 1, left  # the last


def test_the_coordinator_takes_three_requests_of_a_process_however_many_there_are():
    class Counting(OwnBoard):
        def __init__(self):
            super().__init__()
            self.requests = []

        def put(self, name, text):
            self.requests.append(("put", name, len(text)))
            super().put(name, text)

        def count(self, name):
            self.requests.append(("count", name, 0))
            return super().count(name)

        def under(self, prefix):
            found = super().under(prefix)
            self.requests.append(("under", prefix, sum(map(len, found.values()))))
            return found

    taken = {}
    for count in (4, 16):
        board = Counting()
        together(count, lambda team: team.gathered([team.index], len), board)
        taken[count] = board.requests
    assert [len(taken[count]) for count in (4, 16)] == [2 * (count - 1) + 3 for count in (4, 16)]
    size = {count: sum(each[2] for each in taken[count]) for count in taken}
    assert size[16] < 6 * size[4]


def test_all_wait_for_the_slowest():
    done = []

    def work(team):
        if team.index == 2:
            time.sleep(0.3)
        done.append(team.index)
        team.gathered(None, lambda found: None)
        assert sorted(done) == [0, 1, 2]

    assert together(3, work) == [None] * 3


def test_a_mistake_of_the_first_is_one_of_all():
    def broken():
        raise UserError("no such file")

    first, *others = together(3, lambda team: team.from_first(broken))
    assert type(first) is UserError
    assert all(isinstance(each, ToldError) and str(each) == "no such file" for each in others)


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_a_mistake_of_any_is_one_of_all(guilty):
    def work(team):
        with team.mistakes_shared():
            if team.index == guilty:
                raise UserError(f"damaged in {team.index}")

    results = together(3, work)
    assert all(str(each).endswith(f"damaged in {guilty}") for each in results)
    assert all(
        str(each).startswith(f"process {guilty} on " if guilty else "damaged") for each in results
    )
    assert [isinstance(each, ToldError) for each in results] == [False, True, True]


def test_turns_are_the_firsts_and_are_forgotten():
    boards, step = [], threading.Barrier(2)

    def work(team):
        boards.append(team.board)
        turns = []
        for number in range(6):
            turns.append(team.turn(lambda n=number: 10 * n if team.is_first else "never"))
            step.wait(timeout=20)  # as a training step makes all wait for all
        return turns

    assert together(2, work) == [[0, 10, 20, 30, 40, 50]] * 2
    assert len(boards[0].under("turn/")) <= 2


def test_anybody_can_ask():
    asked = threading.Barrier(3)

    def work(team):
        if team.index == 2:
            team.ask("stop")
        asked.wait(timeout=20)
        return team.asked("stop")

    assert together(3, work) == [[2]] * 3
