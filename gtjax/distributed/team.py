"""The processes of a run, and how they agree.

What is decided by a clock, a signal or a file has to be decided once: the first process decides and
tells the others, through the coordinator that `jax.distributed` runs anyway. Nothing here is a
collective of the devices, so a process that waits can be told apart from one that is stuck.
Everything that is told is JSON.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import jax

from gtjax.core.errors import UserError
from gtjax.distributed.exits import ToldError

T = TypeVar("T")

PATIENCE_MS = 2000  # of one look for a value that another process has yet to give


class LostError(Exception):
    """Another process of the run is gone: nothing can go on without it."""


class Board(Protocol):
    """Where processes leave what the others should know."""

    def put(self, name: str, text: str) -> None:
        """Leave something, instead of what was there."""
        ...

    def wait(self, name: str) -> str | None:
        """What was left there; None if nothing comes for a while."""
        ...

    def under(self, prefix: str) -> dict[str, str]:
        """Everything whose name begins so, by the rest of its name."""
        ...

    def remove(self, name: str) -> None:
        """Forget it."""
        ...


class Team:
    """This process among those of its run. Every process makes the same calls in the same order."""

    def __init__(self, index: int, count: int, board: Board):
        self.index, self.count, self.board = index, count, board
        self._told = 0
        self._turn = 0

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
        self._told += 1
        name = f"told/{self._told}"
        if not self.is_first:
            said = json.loads(self._patiently(name))
            if "mistake" in said:
                raise ToldError(said["mistake"])
            return said["value"]
        try:
            value = make()
        except UserError as error:
            self.board.put(name, json.dumps({"mistake": str(error)}))
            raise
        self.board.put(name, json.dumps({"value": value}))
        return value

    def from_all(self, value: Any) -> list[Any]:
        """What every process has, in the order of the processes."""
        if self.is_alone:
            return [value]
        self._told += 1
        self.board.put(f"all/{self._told}/{self.index}", json.dumps(value))
        names = (f"all/{self._told}/{index}" for index in range(self.count))
        return [json.loads(self._patiently(name)) for name in names]

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
        here = None if mistake is None else [socket.gethostname(), str(mistake)]
        for index, each in enumerate(self.from_all(here)):
            if each is None:
                continue
            if index == 0 and mistake is not None and self.is_first:
                raise mistake
            said = each[1] if index == 0 else f"process {index} on {each[0]}: {each[1]}"
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

    def _patiently(self, name: str) -> str:
        while True:
            text = self.board.wait(name)
            if text is not None:
                return text


class Coordinator:
    """The board of `jax.distributed`, kept by the first process."""

    def __init__(self, client: Any):
        self._client = client

    def put(self, name: str, text: str) -> None:
        """Leave something there."""
        with _lost_if_it_fails():
            # An empty value is taken for none.
            self._client.key_value_set(f"gtjax/{name}", f"={text}", allow_overwrite=True)

    def wait(self, name: str) -> str | None:
        """Look for a while."""
        with _lost_if_it_fails():
            try:
                return self._client.blocking_key_value_get(f"gtjax/{name}", PATIENCE_MS)[1:]
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" in str(error):
                    return None
                raise

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

    def put(self, name: str, text: str) -> None:
        """Leave something there."""
        self._texts[name] = text

    def wait(self, name: str) -> str | None:
        """Look for a moment."""
        if name not in self._texts:
            time.sleep(0.01)
        return self._texts.get(name)

    def under(self, prefix: str) -> dict[str, str]:
        """Look once."""
        known = list(self._texts.items())
        return {name.removeprefix(prefix): t for name, t in known if name.startswith(prefix)}

    def remove(self, name: str) -> None:
        """Forget it."""
        self._texts.pop(name, None)


@contextmanager
def _lost_if_it_fails() -> Iterator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        raise LostError(f"the coordinator (process 0) does not answer: {error}") from error


def this_team() -> Team:
    """The processes that jax knows of."""
    if jax.process_count() == 1:
        return Team(0, 1, OwnBoard())
    from jax._src import distributed  # the client of the coordinator has no public name

    return Team(
        jax.process_index(), jax.process_count(), Coordinator(distributed.global_state.client)
    )
