"""`gtjax COMMAND ...`: finds the command; a mistake of the user is one line and exit code 2."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback

import gtjax
from gtjax.cli.processes import is_one_of_several, leave
from gtjax.core.errors import UserError
from gtjax.distributed.exits import (
    LOST,
    MISTAKE,
    JoinError,
    ToldError,
    is_started_again,
    is_supervised,
)

# Imported only when it is called for, so that help does not wait for jax.
COMMANDS = {
    "train": "train a model on a graph",
    "launch": "run a command in several processes, and keep it running",
    "resume": "continue a run from its last checkpoint",
    "watch": "follow a run from another terminal",
    "evaluate": "measure a run's best parameters again",
    "runs": "list the runs in a folder, or compare some",
    "predict": "write class probabilities and embeddings of every node",
    "tune": "choose a model and its settings by validation, within a budget of time",
    "plan": "choose how to spread a graph over devices, and say why",
    "profile": "measure how fast the devices here compute and talk",
    "partition": "cut a graph into parts, and show what crosses between them",
    "convert": "write a graph as mapped arrays, larger than memory if it has to be",
    "datasets": "list what can be loaded, or describe one data set",
    "certificates": "make certificates for mTLS between the hosts of a run",
    "doctor": "check versions and devices, and say how to fix them",
}


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        _print(_usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        _print(f"gtjax {gtjax.__version__}")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return _mistake(f"unknown command {name!r}.{hint}\n\n{_usage()}")
    try:
        code = importlib.import_module(f"gtjax.cli.{name}").run(argv[1:])
        sys.stdout.flush()
        return leave(code)
    except ToldError:  # the process where it went wrong has said what
        return leave(MISTAKE)
    except JoinError as error:
        if not (error.told and is_supervised()):  # else it stands above, in the same terminal
            _mistake(str(error))
        return leave(LOST if is_started_again() else MISTAKE)
    except UserError as error:
        return leave(_mistake(str(error)))
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        # Python flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("gtjax: interrupted", file=sys.stderr)
        return leave(130)
    except Exception:
        if is_one_of_several():  # else the ordinary way, with the same traceback
            traceback.print_exc()
            leave(1)
        raise


def _usage() -> str:
    rows = (f"  {name:<12} {what}" for name, what in COMMANDS.items())
    commands = "\n".join(rows)
    return (
        f"usage: gtjax COMMAND [options]\n\n{commands}\n\ngtjax COMMAND --help tells the options."
    )


def _mistake(message: str) -> int:
    print(f"gtjax: {message}", file=sys.stderr)
    return MISTAKE


def _print(text: str) -> None:
    print(text)
