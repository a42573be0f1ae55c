"""A worker: takes trials from the journal and runs them until the time is over.

Several of them share a journal, each a process of its own with its share of the cores
(`python -m gtjax.tuning.worker FOLDER NUMBER`). What they need to know is in `orders.json`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.compiled_programs import keep_compiled

TOLD = "orders.json"
GRAPH = "graph.npz"  # as trials see it


@dataclass(frozen=True)
class Orders:
    """What a worker is told."""

    study: str  # which of the two
    models: tuple[str, ...]
    base: dict[str, Any]  # the config of trials but for what is chosen, as JSON
    compared: str  # the metric that trials are compared by
    seeds: int  # of a trial
    trial_seconds: float  # at most, without compilation
    until: float  # time of the clock when to stop
    most_trials: int | None
    seed: int
    jobs: int

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(known: dict[str, Any]) -> Orders:
        """What was written."""
        fields: dict[str, Any] = {**known, "models": tuple(known["models"])}
        return Orders(**fields)


def work(folder: Path, orders: Orders, number: int = 0, tick: Any = lambda: None) -> None:
    """Run trials one after the other; `tick` is called every now and then."""
    from gtjax.core.errors import UserError
    from gtjax.datasets import load
    from gtjax.runs.config import TrainConfig, from_mapping
    from gtjax.tuning import study as studies
    from gtjax.tuning.space import config_of, suggested
    from gtjax.tuning.traits import Traits
    from gtjax.tuning.trial import DoesNotFitError, Trials

    keep_compiled()
    graph = load(folder / GRAPH)
    trials, traits = Trials(graph, 1 / orders.jobs), Traits.of(graph)
    base = from_mapping(TrainConfig, orders.base, "base")
    base = dataclasses.replace(base, seeds=orders.seeds)
    study = studies.open_study(folder, orders.study, orders.seed, number)
    states = studies.optuna().trial.TrialState
    search = orders.study == studies.SEARCH
    while time.time() < orders.until:
        if search and orders.most_trials is not None and studies.begun(study) >= orders.most_trials:
            break
        if not search and not studies.waiting(study):
            break
        trial = study.ask()
        if search:
            params = suggested(trial, orders.models, traits)
            trial.set_user_attr(studies.SETTINGS, json.dumps(params))
        elif studies.SETTINGS not in trial.user_attrs:  # somebody else was faster
            study.tell(trial, state=states.FAIL)
            break
        else:
            params = json.loads(trial.user_attrs[studies.SETTINGS])

        def report(goodness: float, units: int, trial: Any = trial) -> bool:
            tick()
            trial.report(goodness, units)
            # Published recipes may be slow at first: they get all of their time.
            return search and studies.CALLED not in trial.user_attrs and trial.should_prune()

        left = max(1.0, orders.until - time.time())
        try:
            config = config_of(params, base)
            seconds = min(orders.trial_seconds, left)
            compared = orders.compared
            outcome = trials.run(config, seconds=seconds, compared=compared, report=report)
        except (DoesNotFitError, UserError, ValueError) as error:
            trial.set_user_attr(studies.FAILED, str(error) or "it does not fit in memory")
            study.tell(trial, state=states.FAIL)
            continue
        trial.set_user_attr(studies.OUTCOME, json.dumps(dataclasses.asdict(outcome)))
        if outcome.stopped:
            study.tell(trial, state=states.PRUNED)
        elif outcome.goodness == -float("inf"):
            study.tell(trial, state=states.FAIL)
        else:
            study.tell(trial, outcome.goodness)
        tick()


def take_cores(number: int, jobs: int) -> None:
    """Run on a share of the cores, before anybody counts them."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    own = cores[number * len(cores) // jobs : (number + 1) * len(cores) // jobs]
    os.sched_setaffinity(0, own or cores)


def main() -> None:
    """A worker process."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    orders = Orders.from_json(json.loads((folder / TOLD).read_text(encoding="utf-8")))
    take_cores(number, orders.jobs)
    parent = os.getppid()

    def tick() -> None:
        if os.getppid() != parent:  # it was killed: nobody waits for this any more
            os._exit(1)

    work(folder, orders, number, tick)


if __name__ == "__main__":
    main()
