"""What there is to see of a run from outside: its folder, read without jax and without trust."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.distributed.failures import failures
from gtjax.distributed.supervisor import newest_checkpoint
from gtjax.remote.address import shown
from gtjax.runs.listing import is_run, read_run
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.status import FILE

SILENT_SECONDS = 300.0  # after which nobody seems to start the run again
MOST_SHOWN = 5  # failures, the newest


@dataclass(frozen=True)
class Sight:
    """One look at a run."""

    run: str
    state: str  # as `gtjax runs` has it: running, finished, interrupted, unknown, broken
    status: dict[str, Any]  # as the run itself wrote it last
    checkpoint: int | None
    failures: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None
    now: float = field(default_factory=time.time)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self.state in ("finished", "broken"):
            return True
        gone = self.silent is None or self.silent > SILENT_SECONDS
        stopped = str(self.status.get("phase", "")).startswith("stopped")
        return self.state != "running" and (stopped or gone)

    @property
    def silent(self) -> float | None:
        """Seconds since the run has said something; None if it never did."""
        then = self.status.get("updated")
        return None if then is None else max(0.0, self.now - then)

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return dataclasses.asdict(self) | {"silent_seconds": self.silent}


def look(run: Path) -> Sight:
    """Look at the folder of a run."""
    if not is_run(run):
        raise UserError(
            f"{shown(run)} is not the folder of a run. gtjax runs lists those in a folder."
        )
    summary = read_run(run)
    try:
        status = RunFolder.at(run, writes=False).read_json(FILE)
    except UserError:
        status = None
    step = newest_checkpoint(run)
    return Sight(
        shown(run),
        summary.state,
        status if isinstance(status, dict) else {},
        None if step < 0 else step,
        failures(run),
        summary.problem,
    )


def described(sight: Sight) -> list[str]:
    """A few lines for people."""
    known = sight.status
    lines = [f"{sight.run}: {sight.state}{_phase(sight)}"]
    if sight.problem:
        lines.append(sight.problem)
    if known.get("step") is not None:
        lines.append(_progress(known))
    if known.get("hosts"):
        lines.append(_hosts(known["hosts"]))
    slow = known.get("slow") or {}
    if slow:
        named = (f"process {index} computes {ratio:.1f}x as long" for index, ratio in slow.items())
        lines.append(f"slow: {', '.join(named)} as the median")
    at = sight.checkpoint
    lines.append("no checkpoint yet" if at is None else f"last checkpoint: step {at:,}")
    if sight.failures:
        lines.append(f"failures: {len(sight.failures)}")
        lines += [
            f"  {each['date']} on {each['host']}: {each['why']}; {each['then']}"
            for each in sight.failures[-MOST_SHOWN:]
        ]
    return lines


def _phase(sight: Sight) -> str:
    if sight.is_over:
        return ""
    words = [f" ({sight.status.get('phase', 'starting')}"]
    if sight.silent is not None and (sight.silent > 10 or sight.state != "running"):
        words.append(f"last heard of {sight.silent:.0f} s ago")
    return ", ".join(words) + ")"


def _progress(known: dict[str, Any]) -> str:
    step, steps = known["step"], known.get("steps") or 0
    words = [f"step {step:,} of {steps:,}"]
    if known.get("loss") is not None:
        words.append(f"loss {known['loss']:.4f}")
    if known.get("best") is not None:
        words.append(f"best val {known['metric']} {known['best']:.4f} at step {known['best_step']}")
    if known.get("seconds_per_step"):
        words.append(f"{known['seconds_per_step']:.3g} s/step")
        if steps > step:
            words.append(f"{(steps - step) * known['seconds_per_step']:.0f} s left")
    if known.get("communication") is not None:
        words.append(f"communication {known['communication']:.0%}")
    return ", ".join(words)


def _hosts(hosts: list[dict[str, Any]]) -> str:
    each = (f"{one['host']} ({one['processes']} p., {one['devices']} dev.)" for one in hosts)
    return f"hosts: {', '.join(each)}"
