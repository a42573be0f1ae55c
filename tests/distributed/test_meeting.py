"""Where hosts of an elastic run meet: numbers are given once, and who is there is heard."""

from __future__ import annotations

import os

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.meeting import Decision, Meeting
from gtjax.distributed.members import Members


@pytest.fixture
def meeting(tmp_path):
    return Meeting.beside(tmp_path / "run")


class Clock:
    """That goes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def arrived(meeting, clock=None):
    members = Members(meeting, beat=1.0, silent=10.0, clock=clock or Clock())
    members.arrive()
    return members


def told(members):
    names = {(True, False): "heard", (False, True): "silent", (False, False): "new"}
    return {each.member.number: names[each.heard, each.silent] for each in members.look()}


def test_a_decision_of_a_number_is_made_once_also_by_two_that_lead(meeting):
    other = Meeting(meeting.folder)
    assert meeting.newest() is None
    assert meeting.decide(Decision(1, (1, 2), ("a", "b"), "a:1"))
    assert not other.decide(Decision(1, (2, 3), ("b", "c"), "b:1"))
    assert other.newest() == Decision(1, (1, 2), ("a", "b"), "a:1")
    assert other.decide(Decision(2, end=2, why="because"))
    assert meeting.newest() == Decision(2, end=2, why="because")
    assert not list(meeting.folder.glob(".*"))  # nothing half written


def test_a_link_of_which_the_answer_was_lost_is_ones_own(meeting, monkeypatch):
    link = os.link

    def lost(source, target):
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lost)
    assert meeting.decide(Decision(1, (1,), ("a",)))


def test_a_file_system_without_links_is_refused(meeting, monkeypatch):
    def none(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with pytest.raises(UserError, match=r"agree by hard links.*Give --out in another"):
        arrived(meeting)


def test_who_comes_has_the_next_number_and_is_heard_once_it_beats(meeting):
    clock = Clock()
    first, second = arrived(meeting, clock), arrived(meeting, clock)
    assert (first.own.number, second.own.number) == (1, 2)
    assert told(first) == {1: "heard", 2: "new"}
    clock.now += 1
    second.beat()
    assert told(first) == {1: "heard", 2: "heard"}
    for _ in range(11):
        clock.now += 1
        seen = told(first)
    assert seen == {1: "heard", 2: "silent"}
    second.beat()  # it was stopped, and goes on
    assert told(first) == {1: "heard", 2: "heard"}


def test_files_of_an_earlier_launch_are_nobody(meeting):
    arrived(meeting)
    clock = Clock()
    now = arrived(meeting, clock)
    assert now.own.number == 2
    assert told(now) == {1: "new", 2: "heard"}
    for _ in range(10):
        clock.now += 1
        seen = told(now)
    assert seen == {1: "silent", 2: "heard"}


def test_who_was_stopped_itself_takes_nobody_for_lost_at_once(meeting):
    clock = Clock()
    first, second = arrived(meeting, clock), arrived(meeting, clock)
    told(first)
    second.tell(running=True)
    assert told(first)[2] == "heard"
    clock.now += 60
    assert told(first)[2] == "new"
    clock.now += 1
    second.beat()
    assert told(first)[2] == "heard"


def test_numbers_are_not_given_again_and_the_last_takes_the_folder_away(meeting):
    first, second = arrived(meeting), arrived(meeting)
    meeting.decide(Decision(1, (1, 2), ("a", "b")))
    second.leave()
    third = arrived(meeting)
    assert third.own.number == 3
    first.leave()
    assert meeting.folder.exists()
    third.leave()
    assert not meeting.folder.exists()
