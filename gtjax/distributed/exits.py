"""How a process of a run ends: its exit code, and what a supervisor makes of it."""

from __future__ import annotations

import os

from gtjax.core.errors import UserError

FINISHED = 0  # or stopped on request, and saved
FAILED = 1
MISTAKE = 2  # the user's, or a disk that is full: the same would happen again
LOST = 75  # another process is gone or stuck: worth starting again from the last checkpoint


SUPERVISED = "GTJAX_SUPERVISED"  # in the environment: how often it was started


def is_supervised() -> bool:
    """Whether a supervisor started this process, and starts it again."""
    return bool(os.environ.get(SUPERVISED))


def is_started_again() -> bool:
    """Whether it did so before: who does not come now has come then, and may be back soon."""
    return os.environ.get(SUPERVISED, "1") != "1"


class ToldError(UserError):
    """What went wrong in another process, which has said it already."""


class JoinError(UserError):
    """The processes of a run did not come together; `told` by the first one, which says it too."""

    def __init__(self, text: str, *, told: bool = False):
        super().__init__(text)
        self.told = told
