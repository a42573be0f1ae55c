"""Keeps a run going on whatever hosts are there: fewer when one is lost, more when one comes.

    gtjax launch --elastic 2:4 -- train --data /shared/graph.npz --out /shared/run

Each host has a supervisor, and there is neither a scheduler nor a fixed coordinator: supervisors
meet in a folder beside that of the run (`meeting`), and whoever came first leads. It decides who
goes on together, and every one of those starts a process. Processes that end are started again
from the last checkpoint, by the next decision: with all, if the one that was lost comes back in
time or another takes its place; else with those that are left. One that comes later is taken in
after the next checkpoint. Losing any host is survived, also that of process 0 and of the leader.
"""

from __future__ import annotations

import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gtjax.core.errors import UserError
from gtjax.distributed.exits import FAILED, FINISHED, LOST, MISTAKE
from gtjax.distributed.failures import note_failure
from gtjax.distributed.fence import told
from gtjax.distributed.meeting import Decision, Meeting
from gtjax.distributed.members import BEAT_SECONDS, SILENT_SECONDS, Member, Members, Seen
from gtjax.distributed.supervisor import (
    Job,
    backoff_seconds,
    free_port,
    from_where,
    giving_up,
    is_begun,
    newest_checkpoint,
)
from gtjax.distributed.workers import ENTRY, Workers

PATIENCE = 10  # times the seconds that hosts have to come, after which too few give up
APPEARING_SECONDS = 20.0  # that the folder of a run may take to show on other hosts, as over NFS


@dataclass(frozen=True)
class Hosts:
    """How many are wanted."""

    least: int
    most: int
    seconds: float = 60.0  # that they have to come, and to come back

    @staticmethod
    def parsed(text: str, seconds: float) -> Hosts:
        """Read "2:4"."""
        found = re.fullmatch(r"(\d+):(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(
                f'--elastic is the least and the most hosts, such as "2:4"; found {text!r}'
            )
        if not seconds > 0:
            raise ValueError(f"--elastic-seconds is positive; found {seconds:g}")
        return Hosts(int(found[1]), int(found[2]), seconds)


@dataclass(frozen=True)
class Pace:
    """How often to look; tests are in a hurry."""

    poll: float = 0.2
    beat: float = BEAT_SECONDS
    silent: float = SILENT_SECONDS
    backoff: float = 1.0


class Elastic:
    """The supervisor of one host."""

    def __init__(
        self,
        job: Job,
        hosts: Hosts,
        *,
        finished: Callable[[], bool],
        restarts: int,
        grace: float,
        devices: int | None = None,
        say: Callable[[str], None],
        pace: Pace | None = None,
        entry: tuple[str, ...] = ENTRY,
    ):
        assert job.run is not None
        self._job, self._run, self._wanted, self._finished = job, job.run, hosts, finished
        self._restarts, self._grace, self._devices, self._say = restarts, grace, devices, say
        self._pace = pace or Pace()
        self._meeting = Meeting.beside(job.run)
        self._members = Members(self._meeting, beat=self._pace.beat, silent=self._pace.silent)
        self._workers = Workers(entry)
        self._group: Decision | None = None  # that this one takes part in
        self._known = 0  # number of the last decision that was heeded
        self._deadline: float | None = None  # when a process that does not end is killed
        self._wait: _Wait | None = None  # of the leader, for the next decision
        self._said = ""
        self._growth: int | None = None  # newest checkpoint when one more host was seen

    def run(self) -> int:
        """Returns the exit code."""
        with self._workers.hearing_signals():
            try:
                self._members.arrive()
                newest = self._meeting.newest()
                self._known = 0 if newest is None else newest.number  # made without this one
                trouble: float | None = None
                while True:
                    try:
                        if (code := self._look()) is not None:
                            return code
                        trouble = None
                    except UserError as error:  # the folder where they meet; it may come back
                        trouble = trouble or time.monotonic()
                        self._say_once(str(error))
                        if time.monotonic() - trouble > PATIENCE * self._pace.silent:
                            raise
                    time.sleep(self._pace.poll)
            finally:
                self._workers.kill()
                self._members.leave()

    def _look(self) -> int | None:
        """See what there is to do; an exit code ends this supervisor."""
        members = self._members
        if self._workers.signals and not members.own.leaving:
            members.tell(leaving=True)
        members.beat()
        newest, seen = self._meeting.newest(), members.look()
        if newest is not None and newest.number > self._known:
            self._known = newest.number
            if newest.end is not None:
                if newest.why:
                    self._say(newest.why)
                return newest.end
            self._heed(newest)
        if members.own.running:
            self._attend(seen)
        elif self._workers.signals:
            return FINISHED if members.own.code in (None, FINISHED) else FAILED
        else:
            if newest is not None and members.own.number not in newest.members:
                self._say_that_it_is_spare(seen)
            if self._leads(seen):
                self._lead(newest, seen)
        return None

    def _say_that_it_is_spare(self, seen: list[Seen]) -> None:
        running = [each.member.host for each in seen if each.heard and each.member.running]
        if running:
            self._say_once(f"this host is to spare; running are {_listed(running)}")

    # What every one does.

    def _heed(self, decision: Decision) -> None:
        """Take part, if it says so."""
        self._deadline = self._growth = self._wait = None
        own = self._members.own
        if own.running:
            self._workers.kill()
            self._say("the others went on without this host, from which they had heard nothing")
            self._members.tell(running=False, code=LOST)
        if own.number not in decision.members or own.leaving:
            return
        self._say(decision.why)
        self._group = decision
        self._members.tell(generation=decision.number, running=True, code=None, why="")
        end = time.monotonic() + APPEARING_SECONDS
        while decision.again and not is_begun(self._run) and time.monotonic() < end:
            self._members.beat()
            time.sleep(self._pace.poll)
        place = ("--coordinator", decision.coordinator)
        place += ("--num-processes", str(len(decision.members)))
        place += ("--process-id", str(decision.members.index(own.number)))
        if self._devices is not None:
            place += ("--devices-per-process", str(self._devices))
        command = self._job.again if decision.again else self._job.command
        # Never the first time: who does not come to the roll call is lost, and no mistake.
        environment = told(decision.number, self._meeting)
        self._workers.start([(*command, *place)], decision.number + 1, environment)

    def _attend(self, seen: list[Seen]) -> None:
        """To the process that is under way."""
        group, workers = self._group, self._workers
        assert group is not None
        own = self._members.own
        if not workers.alive:
            (code,) = workers.codes
            name = f"process {group.members.index(own.number)} on {own.host}"
            why = workers.what_became_of(0, name) if code else ""
            self._members.tell(running=False, code=code, why=why)
            return
        others = [each for each in seen if each.member.number in group.members]
        if any(each.silent or _failed(each.member, group) for each in others):
            # The process notices by itself, and ends; one that is stuck does not.
            self._deadline = self._deadline or time.monotonic() + self._grace
            if time.monotonic() > self._deadline:
                workers.kill()
        else:
            self._deadline = None
        heard = [each.member.number for each in others if each.heard]
        if own.number == min(heard) and not own.leaving:
            self._grow(group, seen)

    def _grow(self, group: Decision, seen: list[Seen]) -> None:
        """Once there is a new checkpoint, stop for those who came since."""
        more = [
            each.member.host
            for each in seen
            if each.heard and each.member.is_ready and each.member.number not in group.members
        ]
        if not more or len(group.members) >= self._wanted.most:
            self._growth = None
            return
        newest = newest_checkpoint(self._run)
        if self._growth is None:
            self._growth = newest
            count = len(group.members)
            self._say(f"{_listed(more)} came to the {count} that run: after the next checkpoint")
        elif newest > self._growth:
            self._growth = newest + 2**62  # it is asked once
            self._workers.pass_on(signal.SIGTERM)

    # What the leader does.

    def _leads(self, seen: list[Seen]) -> bool:
        """Whether this one came first of those who are there, or may be."""
        able = [each.member.number for each in seen if not each.silent and not each.member.leaving]
        return min(able) == self._members.own.number

    def _lead(self, newest: Decision | None, seen: list[Seen]) -> None:
        """Decide what comes next, once there is something to decide and enough are there."""
        there = {each.member.number: each.member for each in seen if not each.silent}
        number = 0 if newest is None else newest.number
        group = newest if newest is not None and newest.end is None else None
        if group is not None:
            listed = [there[each] for each in group.members if each in there]
            if any(each.running or each.generation < number for each in listed):
                return  # it is under way, or about to be
            if not any(each.generation for each in there.values()):
                group = None  # of an earlier launch, of which nobody is left
        wait = self._wait
        if wait is None or wait.number != number:
            wait = self._wait = self._begun(number, group, seen)
        if wait.end is not None:
            self._decide(Decision(number + 1, end=wait.end, why=wait.why))
            return
        ready = [each.member for each in seen if each.heard and each.member.is_ready]
        left = _left(group, seen)
        target = self._wanted.most  # hosts with which there is nothing to wait for
        if group is not None:
            target = max(self._wanted.least, len(group.members) - len(left))
        waited = time.monotonic() - wait.since
        if waited < wait.pause:
            return
        enough = len(ready) >= target
        if not enough and (len(ready) < self._wanted.least or waited < self._wanted.seconds):
            self._say_who_is_missing(target, ready)
            if len(ready) < self._wanted.least and waited > PATIENCE * self._wanted.seconds:
                self._give_up(number, ready, waited)
            return
        if any(not each.heard and not each.silent for each in seen):
            return  # of somebody it is not known yet
        self._go(number, group, wait.failures, ready[: self._wanted.most], left)
        for each in seen:
            if each.silent:
                self._members.forget(each.member.number)

    def _begun(self, number: int, group: Decision | None, seen: list[Seen]) -> _Wait:
        """See what became of the last generation, and say it."""
        since = time.monotonic()
        if group is None:
            end = FINISHED if self._finished() else None
            return _Wait(number, since, end=end, why=f"{self._run} is finished")
        listed = [each for each in seen if each.member.number in group.members]
        lost = [
            f"nothing was heard of {each.member.host} for {self._pace.silent:g} s"
            for each in listed
            if each.silent
        ]
        why = "; ".join([*lost, *(each.member.why for each in listed if each.member.why)])
        if MISTAKE in [each.member.code for each in listed if not each.silent]:
            return _Wait(number, since, end=MISTAKE, why=f"{why}; it would happen again")
        if self._finished():
            return _Wait(number, since, end=FINISHED)
        progress = newest_checkpoint(self._run) > group.checkpoint
        if not why and progress:  # all have saved, for one that came or one that leaves
            return _Wait(number, since)
        failures = 1 if progress else group.failures + 1
        why = why or "all stopped before there was a new checkpoint"
        if failures > self._restarts:
            then = giving_up(failures)
            note_failure(self._run, why, then)
            return _Wait(number, since, end=FAILED, why=f"{why}; {then}")
        then = f"starting again with all that are here within {self._wanted.seconds:g} s"
        self._say(f"{why}; {then}")
        note_failure(self._run, why, then)
        return _Wait(number, since, failures, backoff_seconds(self._pace.backoff, failures))

    def _say_who_is_missing(self, target: int, ready: list[Member]) -> None:
        here = f"{len(ready)} of {target} hosts here: {_listed(each.host for each in ready)}"
        if len(ready) < self._wanted.least:
            limit = PATIENCE * self._wanted.seconds
            self._say_once(
                f"{here}; at least {self._wanted.least} are needed, and waited for {limit:g} s"
            )
        else:
            self._say_once(f"{here}; waiting up to {self._wanted.seconds:g} s for the others")

    def _give_up(self, number: int, ready: list[Member], waited: float) -> None:
        why = (
            f"--elastic {self._wanted.least}:{self._wanted.most} needs at least "
            f"{self._wanted.least} hosts, and {len(ready)} came within {waited:.0f} s "
            f"({_listed(each.host for each in ready)}). The run is saved up to "
            f"{from_where(newest_checkpoint(self._run))}: start the same command on more hosts, or "
            "allow fewer."
        )
        note_failure(self._run, why, "giving up")
        self._decide(Decision(number + 1, end=FAILED, why=why))

    def _go(
        self,
        number: int,
        group: Decision | None,
        failures: int,
        ready: list[Member],
        left: list[str],
    ) -> None:
        hosts = tuple(each.host for each in ready)
        newest = newest_checkpoint(self._run)
        local = len({each.machine for each in ready}) == 1
        address = "127.0.0.1" if local else socket.gethostname()
        port = free_port("127.0.0.1" if local else "")
        verb = "begins" if group is None else "goes on"
        why = f"{verb} with {len(hosts)} of at most {self._wanted.most} hosts: {_listed(hosts)}"
        if group is not None:
            why += self._changes(Counter(group.hosts), Counter(hosts), Counter(left))
        decision = Decision(
            number + 1,
            tuple(each.number for each in ready),
            hosts,
            f"{address}:{port}",
            again=is_begun(self._run),
            checkpoint=newest,
            failures=failures,
            why=f"{why}; from {from_where(newest)}",
        )
        made = self._decide(decision)
        if made and group is not None and len(hosts) != len(group.hosts):
            note_failure(self._run, f"hosts were {len(group.hosts)}", decision.why)

    def _changes(self, before: Counter[str], now: Counter[str], left: Counter[str]) -> str:
        """Who is no longer there or new, in words."""
        said = ""
        if gone := _listed((before - now - left).elements()):
            said += f"; {gone} did not come back within {self._wanted.seconds:g} s"
        if quit := _listed(left.elements()):
            said += f"; {quit} left"
        if more := _listed((now - before).elements()):
            said += f"; {more} came"
        return said

    def _decide(self, decision: Decision) -> bool:
        return self._meeting.decide(decision)

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)


@dataclass(frozen=True)
class _Wait:
    """What the leader makes of the last generation, and what it waits for."""

    number: int  # of the last decision
    since: float
    failures: int = 0
    pause: float = 0.0  # seconds before the next start
    end: int | None = None  # exit code of all
    why: str = ""


def _failed(member: Member, group: Decision) -> bool:
    """Whether its process of this generation has ended, and not well."""
    return member.generation == group.number and member.code not in (None, FINISHED)


def _left(group: Decision | None, seen: list[Seen]) -> list[str]:
    """Hosts of a generation that said they leave: who is lost leaves its file."""
    there = {each.member.number for each in seen if not each.member.leaving}
    if group is None:
        return []
    return [h for n, h in zip(group.members, group.hosts, strict=True) if n not in there]


def _listed(hosts: Iterable[str]) -> str:
    """Names of hosts; one that occurs twice, as in tests, with how often."""
    return ", ".join(
        host if count == 1 else f"{host} ({count} times)" for host, count in Counter(hosts).items()
    )
