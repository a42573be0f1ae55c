"""What came of a run, as its `result.json` holds it."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from gtjax.runs.config import TrainConfig, to_mapping
from gtjax.runs.facts import GraphFacts
from gtjax.runs.program import Program
from gtjax.runs.run_folder import versions

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Result:
    """What came of a run: the folder it left, and what its `result.json` holds.

    A run in a store has its files also in `folder`, on this machine, until it is resumed.
    """

    folder: Path
    values: dict[str, Any]
    address: str = ""  # of the run, if it is in a store; else the folder again

    @property
    def shown(self) -> str:
        """Where it is, as a user would name it."""
        return self.address or str(self.folder)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def result_values(
    rows: Rows,
    metrics: dict[str, float],
    *,
    program: Program,
    facts: GraphFacts,
    config: TrainConfig,
    **known: Any,
) -> dict[str, Any]:
    """Metrics, times and settings of a run, of its rows of metrics."""
    # The first dispatch is the slowest and not typical.
    seconds = [row["seconds_per_step"] for row in rows if "seconds_per_step" in row]
    return {
        "losses": [row["loss"] for row in rows],
        **metrics,
        "metric": program.task.metric,
        **known,
        "seconds_per_step": statistics.median(seconds[1:] or seconds),
        "strategy": program.spread.strategy.name,
        "mesh": dataclasses.asdict(program.spread.shape),
        **_exactness(rows, program),
        "device": jax.devices()[0].device_kind,
        "data": {"name": facts.name, "fingerprint": facts.fingerprint},
        "config": to_mapping(config),
        "versions": versions(),
    }


def _exactness(rows: Rows, program: Program) -> dict[str, Any]:
    """Whether steps saw the whole graph, and if not how much: over all draws of parts."""
    known = {"approximate": not program.exact, "batching": program.batching.name}
    known["wire"] = program.wire.name
    waited = [row for row in rows if "waiting" in row]
    if waited:
        draws, steps = (
            sum(row.get(name, 0.0) for row in waited[1:] or waited)
            for name in ("draw_seconds", "seconds_per_step")
        )
        known["waiting"] = draws / max(draws + steps, 1e-9)
        known["epochs"] = waited[-1].get("epoch", 0.0)
        known["shapes_grown"] = int(waited[-1].get("shapes_grown", 0))
        if "cache_hit_rate" in waited[-1]:
            names = ("cache_rows", "cache_hit_rate", "feature_bytes_read")
            known |= {name: waited[-1][name] for name in names}
    seen = [row for row in rows if "coverage" in row]
    if not seen:
        return known
    coverage = {
        "mean": statistics.fmean(row["coverage"] for row in seen),
        "min": min(row["coverage_min"] for row in seen),
        "max": max(row["coverage_max"] for row in seen),
    }
    draws = [row["draw_seconds"] for row in rows if "draw_seconds" in row]
    seconds = statistics.median(draws) if draws else None
    return known | {"coverage": coverage, "seconds_per_draw": seconds}
