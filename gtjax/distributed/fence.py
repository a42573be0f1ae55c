"""What keeps a process that was left behind from writing to the run of the others.

A supervisor of an elastic run that is stopped for a while, or killed, is taken for lost, and the
others go on without it. Its process may still be there: alone in its generation it waits for
nobody, and would write checkpoints, and remove newer ones, beside those that went on. So before it
writes it looks for a later decision than the one that it was started by.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gtjax.distributed.meeting import Meeting
from gtjax.distributed.pulse import LostError

# In the environment: the decision that a process was started by, and the folder that holds it. Not
# found from the folder of a run: of seeds that are trained in turn each has one of its own.
DECIDED = "GTJAX_DECIDED"


def told(number: int, meeting: Meeting) -> dict[str, str]:
    """What a supervisor adds to the environment of a process."""
    return {DECIDED: f"{number}:{meeting.folder}"}


class Fence:
    """Around what this process writes; open for one that no elastic supervisor has started."""

    def __init__(self, environment: Mapping[str, str] = os.environ):
        number, _, folder = environment.get(DECIDED, "0:").partition(":")
        self._number, self._meeting = int(number), Meeting(Path(folder))

    def check(self) -> None:
        """Raise LostError if the others have gone on without this process."""
        if not self._number:
            return
        try:
            newest = max(self._meeting.names("decision"), default=None)
        except OSError:  # the shared folder does not answer: nothing is known
            return
        if newest is None or newest > self._number:
            raise LostError(
                "the other hosts have gone on without this process: its supervisor was not heard "
                f"of for a while. It was of generation {self._number}, "
                + ("and all are done." if newest is None else f"and they are at {newest}.")
            )
