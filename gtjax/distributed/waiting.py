"""Waiting for another process: says for whom and why, and does not wait for one that is gone.

What takes long is not a mistake: the first process may read, plan and partition for an hour, and
those who wait say now and then what it does. But a process that was stopped, or whose host is gone,
closes no connection. It is lost when nothing was heard of it for the limit (`Pulse.limit`): of the
first process when it takes no beat, which a computation that keeps Python busy does not hinder; of
others when they send none.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from gtjax.core.progress import say
from gtjax.distributed.exits import is_supervised
from gtjax.distributed.pulse import Awake, LostError, Seen

if TYPE_CHECKING:
    from gtjax.distributed.team import Team

FIRST_WORD_SECONDS = 20.0  # of waiting in vain; then at twice that, and so on
MOST_NAMED = 8  # of many who are missing


class Waiting:
    """One wait of this process for what another has yet to give."""

    def __init__(self, team: Team, agreement: int):
        self._team, self._agreement = team, agreement
        self._awake = Awake(team.pulse.limit / 2)  # a longer look: this process was stopped
        self._seconds, self._next_word = 0.0, FIRST_WORD_SECONDS
        self._silent = 0.0
        self._answered = team.pulse.answered
        self._beats: dict[int, tuple[int, float]] = {}  # of others: which, and silent for how long

    def in_vain(self) -> None:
        """It was looked for and is not there yet; raises `LostError` if it will never be."""
        team, since = self._team, self._awake.seconds()
        self._seconds += since
        if not team.pulse.is_beating:
            return
        if team.is_first:
            self._hear_others(since)
        else:
            self._hear_first(since)

    def _hear_first(self, since: float) -> None:
        pulse = self._team.pulse
        pulse.is_asked = True
        heard = pulse.answered > self._answered
        self._answered = pulse.answered
        self._silent = 0.0 if heard else self._silent + since
        first, limit = pulse.first, pulse.limit
        who = "process 0" if first is None else f"process 0 on {first.host}"
        what = first.doing if first is not None and first.doing else "at work"
        if self._silent > limit:
            where = "" if first is None else f" (pid {first.pid}{first.state})"
            raise LostError(
                f"{who}{where} has not answered for {self._silent:.0f} s; the limit is {limit:g}, "
                f"of --watchdog-seconds. When it was last heard of, it was {what}."
            )
        if self._silent > limit / 3:
            self._say(f"{who} does not answer, {self._silent:.0f} s; it was {what}")
        elif not is_supervised() or _is_elsewhere(first):  # else its progress is shown here
            self._say(f"{who} is {what}, {self._seconds:.0f} s")

    def _hear_others(self, since: float) -> None:
        """The first waits for all others."""
        team, limit = self._team, self._team.pulse.limit
        if self._seconds < min(limit, FIRST_WORD_SECONDS) / 2:
            return
        seen = team.pulse.of_all()
        missing = [
            index
            for index in range(1, team.count)
            if index not in seen or seen[index].agreed < self._agreement
        ]
        lost = []
        for index in missing:
            beat = seen[index].beat if index in seen else 0
            before, silent = self._beats.get(index, (beat, 0.0))
            silent = silent + since if beat == before else 0.0
            self._beats[index] = beat, silent
            if silent > limit:
                lost.append(f"{_named(index, seen)} is silent{_state(index, seen)}, {silent:.0f} s")
        if lost:
            raise LostError(f"{few(lost)}; the limit is {limit:g} s, of --watchdog-seconds")
        if missing:
            doing = [
                f"{_named(index, seen)}{f' ({seen[index].doing})' if index in seen else ''}"
                for index in missing
            ]
            self._say(f"process 0 waits for {few(doing)}, {self._seconds:.0f} s")

    def _say(self, text: str) -> None:
        if self._seconds >= self._next_word:
            self._next_word = 2 * self._seconds
            say(f"gtjax: {text}")


def few(names: list[str]) -> str:
    """All of them, or the first and how many more."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_elsewhere(first: Seen | None) -> bool:
    return first is not None and first.host != socket.gethostname()


def _named(index: int, seen: dict[int, Seen]) -> str:
    if index not in seen:
        return f"process {index}, of which nothing was ever heard,"
    return f"process {index} on {seen[index].host} (pid {seen[index].pid})"


def _state(index: int, seen: dict[int, Seen]) -> str:
    return seen[index].state if index in seen else ""
