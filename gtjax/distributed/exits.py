"""How a process of a run ends: its exit code, and what a supervisor makes of it."""

from __future__ import annotations

from gtjax.core.errors import UserError

FINISHED = 0  # or stopped on request, and saved
FAILED = 1
MISTAKE = 2  # the user's, or a disk that is full: the same would happen again
LOST = 75  # another process is gone or stuck: worth starting again from the last checkpoint


class ToldError(UserError):
    """What went wrong in another process, which has said it already."""
