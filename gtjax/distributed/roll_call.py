"""The roll call before processes join: who is there, who is missing, and whether all fit together.

jax waits for minutes without a word, and what does not fit shows later, as a hang. So the first
process listens at the coordinator's port before jax does, the others come there with a card that
says who they are, and all go on once everybody is there and nothing is wrong. What is said is
JSON, a line each, under mTLS if that is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from gtjax.core.progress import say
from gtjax.distributed.certificates import ADVICE
from gtjax.distributed.exits import JoinError, is_supervised
from gtjax.distributed.place import PORT, Place

LINE_SECONDS = 5.0  # between two lines on what is waited for
RETRY_SECONDS = 0.2
CONNECT_SECONDS = 2.0  # that one attempt may take
GREETING_SECONDS = 10.0  # that a process has, once connected, to say who it is
TAKEN_SECONDS = 3.0  # in which a port may become free
LAST_SECONDS = 3.0  # before the limit, for the last word of the first process
CLOCK_SECONDS = 60.0  # that clocks may be apart
MOST_NAMED = 8  # missing processes in a line


def _versions() -> dict[str, str]:
    found = {}
    for name in ("gtjax", "jax", "jaxlib"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # only on the path
            found[name] = importlib.metadata.version(name)
    return found | {"Python": ".".join(platform.python_version_tuple()[:2])}


@dataclass(frozen=True)
class Card:
    """What a process says of itself."""

    index: int
    count: int
    started: str = ""  # what the scheduler calls this time of starting
    problem: str | None = None  # why it cannot take part
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    clock: float = field(default_factory=time.time)
    versions: dict[str, str] = field(default_factory=_versions)

    @property
    def who(self) -> str:
        """For people."""
        return f"process {self.index} (pid {self.pid} on {self.host})"


def misfit(first: Card, other: Card, clock: float) -> str | None:
    """What is wrong with a process that comes at this time, in the words of the error."""
    if other.problem is not None:
        return f"{other.who}: {other.problem}"
    if other.count != first.count:
        return (
            f"{first.who} was told of {first.count} processes, {other.who} of {other.count}. "
            "Start all with the same --num-processes."
        )
    if not 0 < other.index < first.count:
        return f"{other.who} is none of {first.count}: they are numbered from 0."
    for name, version in first.versions.items():
        found = other.versions.get(name)
        if found != version:
            return (
                f"all processes need the same {name}: {first.who} has {version}, {other.who} has "
                f"{found}. Install the same versions on both hosts."
            )
    apart = other.clock - clock
    if abs(apart) > CLOCK_SECONDS:
        return (
            f"clocks of hosts may be {CLOCK_SECONDS:g} s apart: that of {other.who} is "
            f"{abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} that of {first.who}. Set "
            "them by NTP."
        )
    return None


def answer(
    place: Place,
    seconds: float,
    *,
    secure: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    local: bool = False,
    problem: str | None = None,
) -> None:
    """Return once all processes are there; `secure` is how to listen and how to connect."""
    card = Card(place.index, place.count, place.time, problem)
    if not (local and is_supervised()):  # else all speak into one terminal
        say(
            f"gtjax: process {place.index} of {place.count} on {card.host}, coordinator "
            f"{place.coordinator} (told by {place.told_by})"
        )
    if place.index == 0:
        _resolved(place, seconds)
        roll = _Roll(place, card, secure and secure[0], local=local)
        asyncio.run(roll.call(seconds))
    else:
        _Caller(place, card, secure and secure[1]).come(seconds)


class _Roll:
    """The first process, while others come."""

    def __init__(self, place: Place, card: Card, secure: ssl.SSLContext | None, *, local: bool):
        self._place, self._card, self._secure = place, card, secure
        self._bind = place.host.strip("[]") if local else None
        self._came: dict[int, Card] = {}
        self._refused: dict[str, str] = {}  # by address
        self._over = asyncio.Event()
        self._mistake: str | None = card.problem
        self._guests: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()  # to those of them who are known

    async def call(self, seconds: float) -> None:
        """Listen until all are there, or something is wrong."""
        began = time.monotonic()
        if self._card.problem is not None:  # long enough to tell those who come
            seconds = min(seconds, GREETING_SECONDS)
        # Earlier than the others, who hear why.
        end = began + max(seconds - LAST_SECONDS, seconds / 2)
        server = await self._listening()
        try:
            while not self._done() and time.monotonic() < end:
                wait = min(LINE_SECONDS, end - time.monotonic())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), max(0.01, wait))
                if not self._done() and self._mistake is None:
                    waited = time.monotonic() - began
                    say(f"gtjax: process 0 waits for {self._missing()}, {waited:.0f} s")
                    await self._tell({"missing": self._missing()})
            if not self._done() and self._mistake is None:
                self._mistake = (
                    f"{self._missing()} of {self._place.count} did not come to "
                    f"{self._place.coordinator} within {seconds:g} s{self._suspicion()}. Check "
                    "that all were started and that no firewall is between; --join-seconds says "
                    "how long to wait."
                )
            if self._mistake is not None:
                await self._tell({"mistake": self._mistake})
                raise JoinError(self._mistake)
            await self._tell({"go": True})
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            if self._guests:  # who has been told leaves
                await asyncio.wait(self._guests, timeout=1.0)

    async def _listening(self) -> asyncio.Server:
        port = int(self._place.coordinator.rpartition(":")[2])
        end = time.monotonic() + TAKEN_SECONDS
        while True:
            try:
                return await asyncio.start_server(self._received, self._bind, port)
            except OSError as error:
                if time.monotonic() > end:
                    other = (
                        f"Set {PORT} to another one, the same for all tasks"
                        if self._place.told_by in ("SLURM", "Open MPI")
                        else "Choose another one in --coordinator, the same for all"
                    )
                    raise JoinError(
                        f"process 0 on {self._card.host} cannot listen at port {port}: "
                        f"{error.strerror}. {other}."
                    ) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _received(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        guest = asyncio.current_task()
        assert guest is not None
        self._guests.add(guest)
        try:
            await self._greet(reader, writer)
        except asyncio.CancelledError:  # it took its time, and all is over
            return
        finally:
            writer.close()
            self._guests.discard(guest)
            self._writers.discard(writer)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")[0]
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                if self._secure is not None:
                    await writer.start_tls(self._secure)
                card = Card(**json.loads(await reader.readline()))
        except ssl.SSLError as error:
            self._refused[address] = reason(error)
            return
        except (OSError, ValueError, TypeError, TimeoutError):  # it is none of us
            return
        if card.started != self._card.started:
            said = f"{card.who} is of {card.started}; this is {self._card.started}"
            await _send(writer, {"mistake": f"{said}. It was left over: end it."})
            return
        before = self._came.get(card.index)
        if before is not None and (before.host, before.pid) != (card.host, card.pid):
            self._mistake = (
                f"{before.who} and pid {card.pid} on {card.host} say that they are the same "
                "process. Give each its own --process-id."
            )
        self._mistake = self._mistake or misfit(self._card, card, time.time())
        self._writers.add(writer)
        self._came[card.index] = card
        if self._mistake is not None:
            await _send(writer, {"mistake": self._mistake})
        if self._done():
            self._over.set()
        with contextlib.suppress(OSError):
            await reader.read()  # until it goes
        gone = self._mistake is None and not self._over.is_set()
        if gone and self._came.get(card.index) is card:
            del self._came[card.index]

    def _done(self) -> bool:
        wrong = self._mistake is not None and self._card.problem is None
        return wrong or len(self._came) == self._place.count - 1

    def _missing(self) -> str:
        missing = [str(i) for i in range(1, self._place.count) if i not in self._came]
        named = ", ".join(missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"process{'es' * (len(missing) > 1)} {named}{more}"

    def _suspicion(self) -> str:
        said = [f"{address} was refused: {why}" for address, why in self._refused.items()]
        if not said and not _is_here(self._place.host):
            said = [f"{self._place.host} does not seem to be this host, {self._card.host}"]
        return f" ({'; '.join(said)})" if said else ""

    async def _tell(self, what: dict[str, Any]) -> None:
        for writer in list(self._writers):
            await _send(writer, what)


async def _send(writer: asyncio.StreamWriter, what: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        writer.write(json.dumps(what).encode() + b"\n")
        await writer.drain()


class _Caller:
    """Any other process: it comes to the first one, again and again until it is heard."""

    def __init__(self, place: Place, card: Card, secure: ssl.SSLContext | None):
        self._place, self._card, self._secure = place, card, secure
        self._who = f"process {card.index} of {card.count} on {card.host}"
        self._problem = ""
        self._mistake: str | None = None
        self._told = False
        self._over = threading.Event()

    def come(self, seconds: float) -> None:
        """Return once the first process says that all are there."""
        where, began = self._place.coordinator, time.monotonic()
        # In a thread: a name that is looked up may take longer than there is time.
        threading.Thread(target=self._attempts, name="roll call", daemon=True).start()
        end = began + seconds
        while not self._over.wait(max(0.0, min(LINE_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                break
            say(
                f"gtjax: process {self._card.index} waits at the coordinator {where}, "
                f"{time.monotonic() - began:.0f} s: {self._problem or 'no answer'}"
            )
        if self._mistake is not None:
            raise JoinError(self._mistake, told=self._told)
        if not self._over.is_set():
            self._over.set()
            raise JoinError(
                f"{self._who} was not let in at the coordinator {where} within {seconds:g} s: "
                f"{self._problem or 'no answer'}. Check the address, that process 0 was started "
                "there, and that no firewall is between; --join-seconds says how long to wait."
            )

    def _attempts(self) -> None:
        while not self._over.is_set():
            try:
                self._attempt()
            except ssl.SSLCertVerificationError as error:  # that will not change
                self._mistake = f"{self._who} ends: the coordinator's {_refusal(error)}. {ADVICE}."
                self._over.set()
            except ConnectionRefusedError as error:
                # It may have given up: what was wrong before says more.
                self._problem = self._problem or reason(error)
            except OSError as error:
                self._problem = reason(error)
            self._over.wait(RETRY_SECONDS)

    def _attempt(self) -> None:
        host, _, port = self._place.coordinator.rpartition(":")
        host = host.strip("[]")
        with contextlib.ExitStack() as stack:
            link = stack.enter_context(socket.create_connection((host, int(port)), CONNECT_SECONDS))
            link.settimeout(GREETING_SECONDS)
            if self._secure is not None:
                link = stack.enter_context(self._secure.wrap_socket(link, server_hostname=host))
            card = dataclasses.replace(self._card, clock=time.time())
            link.sendall(json.dumps(dataclasses.asdict(card)).encode() + b"\n")
            lines = stack.enter_context(link.makefile("rb"))
            while not self._over.is_set():
                line = lines.readline()
                try:
                    said = json.loads(line)
                    self._heard(said)
                except (ValueError, AttributeError):
                    self._problem = (
                        "it closed the connection" if not line else "another program has that port"
                    )
                    return

    def _heard(self, said: dict[str, Any]) -> None:
        if "missing" in said:
            self._problem = f"it waits for {said['missing']}"
        if "mistake" in said:
            self._mistake, self._told = str(said["mistake"]), True
        if said.get("go") or self._mistake is not None:
            self._over.set()


def _resolved(place: Place, seconds: float) -> None:
    """The first process does not look for itself, but the others will."""
    found, problem = threading.Event(), ["no answer"]

    def look() -> None:
        while not found.is_set():
            try:
                socket.getaddrinfo(place.host.strip("[]"), None)
                found.set()
            except OSError as error:
                problem.append(reason(error))
                found.wait(RETRY_SECONDS)

    threading.Thread(target=look, name="looking", daemon=True).start()
    if not found.wait(min(seconds, GREETING_SECONDS)):
        found.set()
        raise JoinError(
            f"the coordinator's host {place.host} is not known on {socket.gethostname()}: "
            f"{problem[-1]}. Check its name, or give its address in --coordinator."
        )


def reason(error: OSError) -> str:
    """Why there is no connection, in a few words."""
    if isinstance(error, socket.gaierror):
        return f"the name does not resolve ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its {_refusal(error)}"
    if isinstance(error, ssl.SSLError):
        text = (error.reason or str(error)).replace("_", " ").lower()
        return f"no mTLS: {text}"
    if isinstance(error, TimeoutError):
        return "no answer (timed out): a firewall may drop what is sent"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nobody listens there, or a firewall refuses"
    return f"no connection ({error.strerror or error})"


def _refusal(error: ssl.SSLCertVerificationError) -> str:
    return f"certificate is refused: {error.verify_message}"


def _is_here(host: str) -> bool:
    """Whether a name is this host's, as far as binding to it tells."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(
            host.strip("[]"), 0, type=socket.SOCK_STREAM
        ):
            with contextlib.suppress(OSError), socket.socket(family, kind) as one:
                one.bind(address)
                return True
    except OSError:
        pass
    return False
