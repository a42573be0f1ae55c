"""The trials of a tuning in a journal on disk, which processes share and a kill leaves whole.

Optuna's journal is a file of JSON lines; nothing in it is unpickled. Two studies are in it: the
search, and the finalists, which are the best of the search trained again on more seeds.
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.tuning.space import Params, as_suggested
from gtjax.tuning.trial import UNITS

JOURNAL = "journal.jsonl"
SEARCH, FINALISTS = "search", "finalists"
FACTOR = 3  # one in so many trials goes on at each rung
# What a trial is told to remember.
SETTINGS, OUTCOME, CALLED, FAILED = "settings", "outcome", "called", "failed"


def optuna() -> Any:
    """The library, or what to do to have it."""
    try:
        library = import_module("optuna")
    except ImportError as error:
        raise UserError(
            'optuna is not installed, and gtjax tune needs it. Run: pip install "gtjax[tune]"'
        ) from error
    library.logging.set_verbosity(library.logging.ERROR)
    warnings.filterwarnings("ignore", category=library.exceptions.ExperimentalWarning)
    return library


def open_study(folder: Path, name: str, seed: int = 0, worker: int = 0) -> Any:
    """One of the two studies, made if it is not there yet.

    Its sampler draws by the seed, the number of the worker, and how many trials there are.
    """
    library = optuna()
    backend = library.storages.journal.JournalFileBackend(str(folder / JOURNAL))
    storage = library.storages.JournalStorage(backend)
    study = library.create_study(
        study_name=name, storage=storage, direction="maximize", load_if_exists=True
    )
    study.sampler = library.samplers.TPESampler(
        n_startup_trials=8,
        multivariate=True,
        group=True,
        constant_liar=True,
        seed=seed + 1000 * worker + len(study.get_trials(deepcopy=False)),
    )
    study.pruner = library.pruners.SuccessiveHalvingPruner(
        min_resource=UNITS // FACTOR**2, reduction_factor=FACTOR
    )
    return study


def enqueue(study: Any, called: str, params: Params) -> None:
    """Have a trial with these settings run next, unless there is or was one."""
    study.enqueue_trial(as_suggested(params), user_attrs={CALLED: called}, skip_if_exists=True)


def enqueue_finalist(study: Any, of: int, params: Params) -> None:
    """Have these settings of a trial run again on more seeds."""
    study.enqueue_trial({}, user_attrs={"of": of, SETTINGS: json.dumps(params)})


def give_up_running(study: Any) -> None:
    """Trials that a killed process has left: what was asked of them is asked again."""
    states = optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        attrs = {
            name: value
            for name, value in trial.user_attrs.items()
            if name in (CALLED, "of", SETTINGS)
        }
        fixed = trial.system_attrs.get("fixed_params")
        study.tell(trial.number, state=states.FAIL)
        if fixed is not None:
            study.enqueue_trial(fixed, user_attrs=attrs)


def waiting(study: Any) -> int:
    """How many trials nobody has begun."""
    states = optuna().trial.TrialState
    return len(study.get_trials(deepcopy=False, states=(states.WAITING,)))


def begun(study: Any) -> int:
    """How many trials have run or are running, without those that a kill has ended."""
    states = optuna().trial.TrialState

    def counts(trial: Any) -> bool:
        if trial.state == states.FAIL:
            return FAILED in trial.user_attrs or OUTCOME in trial.user_attrs
        return trial.state != states.WAITING

    return sum(map(counts, study.get_trials(deepcopy=False)))


def finished(study: Any) -> list[Any]:
    """Trials that ran as long as they were to, the best first."""
    states = optuna().trial.TrialState
    done = study.get_trials(deepcopy=False, states=(states.COMPLETE,))
    return sorted(done, key=lambda trial: (-trial.value, trial.number))


def ended(study: Any) -> list[Any]:
    """All trials that have an outcome, those that were stopped included."""
    return [each for each in study.get_trials(deepcopy=False) if OUTCOME in each.user_attrs]


def settings_of(trial: Any) -> Params:
    """The model and settings of a trial."""
    return json.loads(trial.user_attrs[SETTINGS])


def outcome_of(trial: Any) -> dict[str, Any]:
    """What came of a trial."""
    return json.loads(trial.user_attrs[OUTCOME])
