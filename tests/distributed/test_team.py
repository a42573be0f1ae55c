"""Processes agree on what the first one decides; here they are threads with one board."""

from __future__ import annotations

import threading

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.exits import ToldError
from gtjax.distributed.team import OwnBoard, Team


def together(count, work):
    """What `work(team)` gives or raises in each of so many processes."""
    board, results = OwnBoard(), [None] * count

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


def test_all_get_what_all_have():
    assert together(3, lambda team: team.from_all(team.index**2)) == [[0, 1, 4]] * 3


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
