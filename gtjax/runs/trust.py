"""Tries a kernel on the device itself before a run is built on it.

The first time that a kernel is used on a kind of device, with these versions, it computes a small
awkward graph forward and backward beside XLA (`pallas_kernels/trial.py`), with the op, the heads
and the types of the run. That takes seconds, and agreement is remembered in the user's cache. Where
it disagrees, raises or does not come back, XLA takes its place, in one line, and what was seen is
written to a file for a bug report; a kernel that was asked for by name is refused instead.

It runs in a thread and not in a process, since one process alone can have a TPU, or most of a GPU's
memory; a compiler that hangs is left behind. Kernels that the test suite runs on every machine, the
native ones of the CPU and XLA, are not tried.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from gtjax.core.errors import UserError
from gtjax.core.hashed_files import hash_of_json
from gtjax.core.progress import say
from gtjax.core.user_cache import user_cache
from gtjax.distributed.team import Team
from gtjax.hardware.kernel_table import shapes_of
from gtjax.hardware.measure import PACKAGES
from gtjax.hardware.ops import OPS as MEASURED
from gtjax.sharding.recording import Call
from pallas_kernels.op import DISTRUSTED, Kernel, Op
from pallas_kernels.trial import RowShapes, trial

TESTED = ("cpu", "xla")
LIMIT_SECONDS = 120.0  # compiling both takes some ten seconds


@dataclass(frozen=True)
class Doubt:
    """A kernel of an op that cannot be trusted, why, and where more of it is written."""

    op: str
    kernel: str
    reason: str
    report: str


class Tried(NamedTuple):
    """An op, and what it is given."""

    op: Op
    rows: RowShapes


def trust(
    kernel: str, calls: Iterable[Call | Tried], platform: str, team: Team, *, show: bool = True
) -> None:
    """Try the kernels that these calls would run with, and put XLA in the place of wrong ones.

    Every process of a run tries; what one of them doubts, all do.
    """
    asked = {(call.op.name, repr(call.rows)): call for call in calls}
    for call in asked.values():
        chosen = call.op.kernel(kernel, platform)
        if chosen.name in TESTED:
            continue
        doubt = tried(call.op, chosen, call.rows, platform)
        found = team.first_found(doubt and vars(doubt))
        if found is None:
            continue
        doubt = Doubt(**found[1])
        told = f"kernel {doubt.kernel} of {doubt.op} is not trusted on this device: {doubt.reason}"
        more = f"Please attach {doubt.report} to a bug report."
        if kernel != "auto":
            raise UserError(f"{told}. {more} Use --kernel auto or xla.")
        DISTRUSTED[doubt.op, doubt.kernel] = f"it was tried on this device, and {doubt.reason}"
        if show:
            say(f"{told}. XLA runs in its place, slower. {more}")


def trust_measured(kernel: str, team: Team, *, show: bool = True) -> None:
    """The same for the ops whose kernels are timed when devices are measured."""
    calls = [Tried(op, shapes_of(op, "float32")) for op in MEASURED.values() if op.kernels]
    trust(kernel, calls, jax.default_backend(), team, show=show)


def tried(op: Op, kernel: Kernel, rows: RowShapes, platform: str) -> Doubt | None:
    """Whether a kernel is wrong on this device: remembered, or tried now."""
    about = about_trial(op, kernel, rows)
    path = _remembered(about)
    with contextlib.suppress(OSError, ValueError):
        if json.loads(path.read_text(encoding="utf-8"))["about"] == about:
            return None
    start, found = time.monotonic(), _within(LIMIT_SECONDS, op, kernel, rows, platform)
    about |= {"seconds": round(time.monotonic() - start, 1)}
    if isinstance(found, str):
        summary, details = found.split("\n", 1)[0], found
    elif found.agrees:
        with contextlib.suppress(OSError):  # tried again next time
            _write(path, {"about": about_trial(op, kernel, rows), "errors": dict(found.errors)})
        return None
    else:
        what, error = found.worst
        summary = f"its {what} differs from XLA's by {error:.2g} of the largest number"
        details = json.dumps(dict(found.errors))
    report = _report(about | {"reason": summary, "details": details})
    return Doubt(op.name, kernel.name, summary, report)


def about_trial(op: Op, kernel: Kernel, rows: RowShapes) -> dict[str, Any]:
    """All that an outcome is remembered by."""
    device = jax.local_devices()[0]
    return {
        "op": repr(op.message) + op.reduce.name if op.name == "custom" else op.name,
        "kernel": kernel.name,
        "rows": repr(tuple(rows)),
        "device": device.device_kind,
        "platform": getattr(device.client, "platform_version", ""),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _within(seconds: float, op: Op, kernel: Kernel, rows: RowShapes, platform: str) -> Any:
    """The outcome of a trial, or a text: what went wrong in a line, and then all of it."""
    box: list[Any] = []

    def work() -> None:
        try:
            with jax.default_device(jax.local_devices()[0]):
                box.append(trial(op, kernel, rows, platform))
        except Exception as error:
            first = str(error).strip().split("\n", 1)[0][:200]
            box.append(f"it raised {type(error).__name__}: {first}\n{traceback.format_exc()}")

    thread = threading.Thread(target=work, daemon=True, name="trial of a kernel")
    thread.start()
    thread.join(seconds)
    return box[0] if box else f"it did not finish within {seconds:.0f} s"


def _remembered(about: dict[str, Any]) -> Path:
    return user_cache() / "kernels" / f"{about['kernel']}-{hash_of_json(about)[:16]}.json"


def _report(content: dict[str, Any]) -> str:
    """Write a report where it can be written, and say where that is."""
    name = re.sub(r"[^\w.-]+", "-", f"{content['kernel']}-{content['op']}")[:60]
    name = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    for folder in (user_cache() / "kernels" / "reports", Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            _write(folder / name, content)
            return str(folder / name)
    return "this output"


def _write(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as file:
        json.dump(content, file, indent=1)
    Path(file.name).replace(path)
