"""Who of the hosts of an elastic run is there.

Every supervisor has a file in the folder where they meet, with a count that it raises every second.
Who sees the count change hears the other; who has not for ten seconds, by its own clock, takes the
other for lost. So a file that an earlier launch has left is nobody, and clocks need not agree. Each
host reads the files of all once a second: with n hosts n reads a second on each.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gtjax.distributed.meeting import Meeting

BEAT_SECONDS = 1.0
SILENT_SECONDS = 10.0  # after which one that is not heard of is lost
ASLEEP = 1 / 3  # of that, between two looks: this process itself must have been stopped


def _machine() -> str:
    """The same for supervisors on one machine, as tests have them; other names may be the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


@dataclass(frozen=True)
class Member:
    """What a supervisor tells of itself."""

    number: int  # in the order in which they came
    generation: int = 0  # the last decision that it took part in
    running: bool = False
    code: int | None = None  # with which its process ended
    why: str = ""
    leaving: bool = False
    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=_machine)
    pid: int = field(default_factory=os.getpid)

    @property
    def is_ready(self) -> bool:
        """Whether it could take part in the next generation."""
        return not self.running and not self.leaving


@dataclass(frozen=True)
class Seen:
    """A member, and what is known of it; neither heard nor silent: its file is new here."""

    member: Member
    heard: bool
    silent: bool


class Members:
    """This supervisor among the others."""

    def __init__(
        self,
        meeting: Meeting,
        *,
        beat: float = BEAT_SECONDS,
        silent: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._meeting, self._every, self._limit, self._clock = meeting, beat, silent, clock
        self._beat, self._told = 0, clock()
        self._looked = clock()
        self._known: dict[int, tuple[Any, float, bool]] = {}  # beat, when seen, whether it changed
        self.own = Member(0)

    def arrive(self) -> None:
        """Take the next number."""
        while not self.own.number:
            # Who left may have had a larger one, and the last decision tells of it.
            newest = self._meeting.newest()
            taken = [*self._meeting.names("member"), *(newest.members if newest else ())]
            number = max(taken, default=0) + 1
            own = dataclasses.replace(self.own, number=number)
            if self._meeting.create("member", number, dataclasses.asdict(own) | {"beat": 0}):
                self.own = own

    def tell(self, **changes: Any) -> None:
        """Something of this member is otherwise from now on."""
        self.own = dataclasses.replace(self.own, **changes)
        self._write()

    def beat(self) -> None:
        """Called often; written when it is time to."""
        if self._clock() - self._told >= self._every:
            self._write()

    def _write(self) -> None:
        self._beat, self._told = self._beat + 1, self._clock()
        value = dataclasses.asdict(self.own) | {"beat": self._beat}
        self._meeting.write("member", self.own.number, value)

    def look(self) -> list[Seen]:
        """All that have a file, in the order in which they came; this one too."""
        now, seen = self._clock(), []
        if (gap := now - self._looked) > ASLEEP * self._limit:
            # Stopped, or waiting for a disk: that nothing was heard meanwhile says nothing.
            self._known = {n: (b, when + gap, False) for n, (b, when, _) in self._known.items()}
        self._looked = now
        numbers = self._meeting.names("member")
        self._known = {n: known for n, known in self._known.items() if n in numbers}
        for number in numbers:
            if number == self.own.number:
                continue
            value = self._meeting.read("member", number)
            if value is None:
                continue
            beat = (value.pop("beat"), value["pid"])
            before = self._known.get(number)
            if before is None:
                self._known[number] = (beat, now, False)
            elif beat != before[0]:
                self._known[number] = (beat, now, True)
            _, when, changed = self._known[number]
            recent = now - when < self._limit
            seen.append(Seen(Member(**value), heard=changed and recent, silent=not recent))
        own = Seen(self.own, heard=True, silent=False)
        return sorted([*seen, own], key=lambda each: each.member.number)

    def forget(self, number: int) -> None:
        """One that is lost, and no longer counted on; should it come back, it writes again."""
        self._meeting.remove("member", number)

    def leave(self) -> None:
        """For good."""
        if not self.own.number:
            return
        self._meeting.remove("member", self.own.number)
        self._meeting.close()
