"""Waits for other processes aloud: whom for, for how long, and why not any longer.

jax itself waits for minutes without a word, also for a name that nothing resolves and for a port
that nobody listens on. So both are tried before jax is asked to join.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gtjax.core.errors import UserError
from gtjax.core.progress import say

LINE_SECONDS = 5.0  # between two lines on what is waited for
RETRY_SECONDS = 0.2
CONNECT_SECONDS = 2.0  # that one attempt may take


@contextmanager
def waiting_aloud(what: str, problem: list[str] | None = None) -> Iterator[None]:
    """Say what is waited for, at once and every few seconds, and the last problem there was.

    Who is supervised is started together with the others: it says nothing of the first seconds.
    """
    over, started = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(LINE_SECONDS):
            why = f": {problem[-1]}" if problem else ""
            say(f"gtjax: still waiting for {what}, {time.monotonic() - started:.0f} s{why}")

    if not os.environ.get("GTJAX_SUPERVISED"):
        say(f"gtjax: waiting for {what}")
    thread = threading.Thread(target=tell, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def reach(address: str, index: int, count: int, seconds: float) -> None:
    """Return once the coordinator's name resolves and, but for process 0, its port is open."""
    host, _, port = address.rpartition(":")
    listens = index == 0  # this process is the coordinator, and will open the port
    problems: list[str] = []
    done = threading.Event()

    def attempt() -> None:
        while not done.is_set():
            try:
                place = (host.strip("[]"), int(port))
                if listens:
                    socket.getaddrinfo(*place)
                else:
                    socket.create_connection(place, CONNECT_SECONDS).close()
                done.set()
            except OSError as error:
                unknown = isinstance(error, socket.gaierror)
                kind = "the name does not resolve" if unknown else "no connection"
                problems.append(f"{kind} ({error.strerror or error})")
                done.wait(RETRY_SECONDS)

    what = f"the coordinator at {address}, as process {index} of {count}"
    # In a thread: a name that is looked up may take longer than there is time.
    threading.Thread(target=attempt, name="reaching", daemon=True).start()
    if done.wait(RETRY_SECONDS):
        return
    with waiting_aloud(what, problems):
        reached = done.wait(seconds)
        done.set()
    if not reached:
        why = problems[-1] if problems else "no answer"
        raise UserError(
            f"process {index} of {count} did not reach the coordinator at {address} within "
            f"{seconds:g} s: {why}. Check the address, that process 0 was started there, and that "
            f"no firewall is between; --join-seconds says how long to wait."
        )
