"""The processes of a run, and how they agree.

What is decided by a clock, a signal or a file has to be decided once: the first process decides and
tells the others, through the coordinator that `jax.distributed` runs anyway. Nothing here is a
collective of the devices, so a process that waits can be told apart from one that is stuck.
Everything that is told is JSON.

What all have to say goes to the first, which makes one answer of it for all (`gathered`): three
rounds whatever the number of processes, three requests of each at the coordinator, and bytes that
grow with the number of processes and no faster, since the answer does not hold what each has said.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import jax

from gtjax.core.errors import UserError
from gtjax.distributed.exits import ToldError
from gtjax.distributed.pulse import LostError, Pulse
from gtjax.distributed.waiting import Waiting

__all__ = ["Board", "Coordinator", "LostError", "OwnBoard", "Team", "this_team"]

T = TypeVar("T")

# Of one look for a value that another process has yet to give. Signals are heeded between looks,
# and each is a request at the coordinator: of many processes, never more than 256 a second.
PATIENCE_SECONDS = 2.0
LONGEST_PATIENCE_SECONDS = 15.0
LOOKS_A_SECOND = 256


class Board(Protocol):
    """Where processes leave what the others should know."""

    def put(self, name: str, text: str) -> None:
        """Leave something, instead of what was there."""
        ...

    def wait(self, name: str) -> str | None:
        """What was left there; None if nothing comes for a while."""
        ...

    def look(self, name: str) -> str | None:
        """What is there now; None if nothing is."""
        ...

    def under(self, prefix: str) -> dict[str, str]:
        """Everything whose name begins so, up to a slash, by the rest of its name."""
        ...

    def count(self, name: str) -> int:
        """How often this was asked, by whomever, this time included."""
        ...

    def remove(self, name: str) -> None:
        """Forget it, and what is under it."""
        ...


class Team:
    """This process among those of its run. Every process makes the same calls in the same order."""

    def __init__(self, index: int, count: int, board: Board):
        self.index, self.count, self.board = index, count, board
        self.pulse = Pulse(board, index, count)
        self._agreed = 0
        self._turn = 0
        self._old: list[str] = []  # answers that some may not have read yet

    @property
    def is_first(self) -> bool:
        """Whether this is the process that decides, writes and shows."""
        return self.index == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.count == 1

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, in all of them; a mistake there is one everywhere.

        As JSON: what comes back has lists for tuples.
        """
        if self.is_alone:
            return make()
        name = self._next("told")
        if not self.is_first:
            return self._told(name)
        try:
            value = make()
        except UserError as error:
            self._tell(name, {"mistake": str(error)})
            raise
        self._tell(name, {"value": value})
        return value

    def gathered(self, value: Any, make: Callable[[list[Any]], T]) -> T:
        """What the first process makes of what every process has, in all of them.

        `make` gets the values in the order of the processes. What it makes goes to all, so let it
        be what all need to know and no more. A mistake of it is one everywhere.
        """
        if self.is_alone:
            return make([value])
        name = self._next("gathered")
        if not self.is_first:
            self._give(name, value)
            return self._told(f"{name}/answer")
        values = self._taken(name, value)
        try:
            answer = make(values)
        except UserError as error:
            self._tell(f"{name}/answer", {"mistake": str(error)}, name)
            raise
        self._tell(f"{name}/answer", {"value": answer}, name)
        return answer

    def to_first(self, value: Any) -> list[Any] | None:
        """What every process has, in the order of the processes; None in all but the first."""
        if self.is_alone:
            return [value]
        name = self._next("gathered")
        if not self.is_first:
            self._give(name, value)
            return None
        values = self._taken(name, value)
        self.board.remove(name)
        return values

    def first_found(self, value: Any) -> tuple[int, Any] | None:
        """The first process that has something, not None, and what it has: the same in all."""
        found = self.gathered(
            value, lambda all_: next(([i, v] for i, v in enumerate(all_) if v is not None), None)
        )
        return None if found is None else (found[0], found[1])

    @contextmanager
    def mistakes_shared(self) -> Iterator[None]:
        """A mistake in here in one process is one in all, instead of an endless wait.

        The first says it, whose it is too: when it ends, jax ends the others at once.
        """
        mistake: UserError | None = None
        try:
            yield
        except UserError as error:
            mistake = error
        found = self.first_found(None if mistake is None else [socket.gethostname(), str(mistake)])
        if found is None:
            return
        index, (host, said) = found
        if index == 0 and mistake is not None and self.is_first:
            raise mistake
        said = said if index == 0 else f"process {index} on {host}: {said}"
        raise UserError(said) if self.is_first else ToldError(said)

    def turn(self, decide: Callable[[], Any]) -> Any:
        """As `from_first`, for what is decided again and again: what is past is forgotten.

        Between two turns every process has to wait for all others, as a training step does.
        """
        if self.is_alone:
            return decide()
        self._turn += 1
        name = f"turn/{self._turn}"
        if not self.is_first:
            return json.loads(self._patiently(name))
        value = decide()
        self.board.put(name, json.dumps(value))
        if self._turn > 2:
            self.board.remove(f"turn/{self._turn - 2}")
        return value

    def ask(self, what: str) -> None:
        """Let the first process know that this one wants something."""
        self.board.put(f"asked/{what}/{self.index}", "")

    def asked(self, what: str) -> list[int]:
        """The processes that want it."""
        return [int(index) for index in self.board.under(f"asked/{what}/")]

    def doing(self, what: str) -> None:
        """Let those who wait for this process know what it does."""
        self.pulse.doing = what

    def _next(self, kind: str) -> str:
        self._agreed += 1
        self.pulse.agreed = self._agreed
        return f"{kind}/{self._agreed}"

    def _give(self, name: str, value: Any) -> None:
        """To the first process; nothing need not be sent, but who has nothing is counted too."""
        if value is not None:
            self.board.put(f"{name}/of/{self.index}", json.dumps(value))
        if self.board.count(f"{name}/count") == self.count - 1:
            self.board.put(f"{name}/full", "")

    def _taken(self, name: str, value: Any) -> list[Any]:
        """What every process gave. Who gives has read all that was told before: it is forgotten."""
        self._patiently(f"{name}/full")
        found = {int(i): json.loads(text) for i, text in self.board.under(f"{name}/of/").items()}
        for old in self._old:
            self.board.remove(old)
        self._old = []
        return [json.loads(json.dumps(value)), *(found.get(i) for i in range(1, self.count))]

    def _tell(self, name: str, said: dict[str, Any], folder: str | None = None) -> None:
        self.board.put(name, json.dumps(said))
        self._old.append(folder or name)

    def _told(self, name: str) -> Any:
        said = json.loads(self._patiently(name))
        if "mistake" in said:
            raise ToldError(said["mistake"])
        return said["value"]

    def _patiently(self, name: str) -> str:
        text = self.board.wait(name)
        if text is not None:
            return text
        waiting = Waiting(self, self._agreed)
        try:
            while (text := self.board.wait(name)) is None:
                waiting.in_vain()
            return text
        finally:
            self.pulse.is_asked = False


class Coordinator:
    """The board of `jax.distributed`, kept by the first process."""

    def __init__(self, client: Any, count: int):
        self._client = client
        patience = min(max(PATIENCE_SECONDS, count / LOOKS_A_SECOND), LONGEST_PATIENCE_SECONDS)
        self._patience_ms = int(1000 * patience)

    def put(self, name: str, text: str) -> None:
        """Leave something there."""
        with _lost_if_it_fails():
            # An empty value is taken for none.
            self._client.key_value_set(f"gtjax/{name}", f"={text}", allow_overwrite=True)

    def wait(self, name: str) -> str | None:
        """Look for a while."""
        with _lost_if_it_fails():
            try:
                return self._client.blocking_key_value_get(f"gtjax/{name}", self._patience_ms)[1:]
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" in str(error):
                    return None
                raise

    def look(self, name: str) -> str | None:
        """Look once."""
        with _lost_if_it_fails():
            try:
                return self._client.key_value_try_get(f"gtjax/{name}")[1:]
            except jax.errors.JaxRuntimeError as error:
                if "NOT_FOUND" in str(error):
                    return None
                raise

    def count(self, name: str) -> int:
        """Count one more."""
        with _lost_if_it_fails():
            return self._client.key_value_increment(f"gtjax/{name}", 1)

    def under(self, prefix: str) -> dict[str, str]:
        """Look once."""
        with _lost_if_it_fails():
            found = self._client.key_value_dir_get(f"gtjax/{prefix}")
            return {name.removeprefix(f"gtjax/{prefix}"): text[1:] for name, text in found}

    def remove(self, name: str) -> None:
        """Forget it."""
        with _lost_if_it_fails():
            self._client.key_value_delete(f"gtjax/{name}")


class OwnBoard:
    """The board of a process that is alone, or of threads in a test."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._one_at_a_time = threading.Lock()

    def put(self, name: str, text: str) -> None:
        """Leave something there."""
        self._texts[name] = text

    def wait(self, name: str) -> str | None:
        """Look for a moment."""
        if name not in self._texts:
            time.sleep(0.01)
        return self._texts.get(name)

    def look(self, name: str) -> str | None:
        """Look once."""
        return self._texts.get(name)

    def count(self, name: str) -> int:
        """Count one more."""
        with self._one_at_a_time:
            number = int(self._texts.get(name, "0")) + 1
            self._texts[name] = str(number)
            return number

    def under(self, prefix: str) -> dict[str, str]:
        """Look once."""
        known = list(self._texts.items())
        return {name.removeprefix(prefix): t for name, t in known if name.startswith(prefix)}

    def remove(self, name: str) -> None:
        """Forget it."""
        for each in [name, *(f"{name}/{rest}" for rest in self.under(f"{name}/"))]:
            self._texts.pop(each, None)


@contextmanager
def _lost_if_it_fails() -> Iterator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        raise LostError(f"the coordinator (process 0) does not answer: {error}") from error


def this_team() -> Team:
    """The processes that jax knows of; the same one every time, since it counts agreements."""
    if jax.process_count() == 1:
        return Team(0, 1, OwnBoard())
    from jax._src import distributed  # the client of the coordinator has no public name

    client = distributed.global_state.client
    if client not in _TEAMS:
        _TEAMS.clear()
        count = jax.process_count()
        _TEAMS[client] = Team(jax.process_index(), count, Coordinator(client, count))
        _TEAMS[client].pulse.start()
    return _TEAMS[client]


_TEAMS: dict[Any, Team] = {}  # by the client, of which jax has at most one
