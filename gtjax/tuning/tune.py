"""`tune`: looks for a model and settings by validation alone, and tests what it chose once.

Search: recipes that suit the graph, then what optuna suggests, on two seeds at once, with
successive halving of those that promise less (Li et al. 2018). Finalists: the best, on five seeds.
The choice is trained for good, and only then are test labels looked at. All of it within a budget
of time, and in a folder that a later call goes on with.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from gtjax.core.compiled_programs import keep_compiled
from gtjax.core.errors import UserError
from gtjax.core.progress import progress, say
from gtjax.datasets import load, save_npz
from gtjax.graph import Graph, StoredGraph, required_graph
from gtjax.recipes.base import is_one_class
from gtjax.recipes.config import SmoothConfig
from gtjax.remote.address import address_of, shown
from gtjax.runs.config import RuntimeConfig, TrainConfig, to_mapping
from gtjax.runs.loop import fit
from gtjax.runs.result import Result
from gtjax.runs.run_folder import RunFolder, new_run_path, versions
from gtjax.runs.trained import load_run
from gtjax.tuning import study as studies
from gtjax.tuning import table
from gtjax.tuning.baselines import Baseline, baselines, scored
from gtjax.tuning.config import TuneConfig, seconds_of
from gtjax.tuning.hidden_labels import without_test
from gtjax.tuning.processes import run_workers
from gtjax.tuning.space import Params, config_of, families, recipes
from gtjax.tuning.toml_file import write_config
from gtjax.tuning.traits import LARGE, Traits
from gtjax.tuning.trial import EVALUATIONS
from gtjax.tuning.worker import GRAPH, Orders, work

ASKED, ELAPSED, RESULT, BEST = "asked.json", "elapsed.json", "result.json", "best.toml"
SEARCH_SHARE, FINALISTS_SHARE = 0.6, 0.85  # of the budget, at whose ends these are over
FULL_TRIALS = 8  # that there is time for in the search, if none is stopped
TRIAL_SEEDS, FINALIST_SEEDS, FINALISTS = 2, 5, 3
# Steps; twice as many where labels are few, or neighbours not alike: GRAND and deep GCNs need them.
LONGEST = 1000
SHORT = 20.0  # seconds of a search in which one seed has to do


def tune(
    graph: Graph | str | Path,
    config: TuneConfig | None = None,
    *,
    budget: str | None = None,
    show_progress: bool = True,
) -> Result:
    """Choose a model and its settings for a graph, or for the data set of that name or path.

    The result holds the test metric of what was chosen (`test_...`, `ensemble_test_...`), and its
    folder `best.toml`, the model (`final/`, for `gtjax.load_run`), all trials and a picture.
    """
    studies.optuna()  # refuses where it is not there
    config = config or TuneConfig()
    if budget is not None:
        config = dataclasses.replace(config, budget=budget)
    data = None
    if isinstance(graph, str | Path):
        data = str(Path(graph).resolve()) if Path(graph).exists() else str(graph)
        graph = load(graph, split=config.split)
    if isinstance(graph, StoredGraph):
        raise UserError("gtjax tune reads a graph into memory; use gtjax train for a stored one")
    return Tuning(required_graph(graph, "tune"), data, config, show_progress).run()


class Tuning:
    """One tuning, from its first trial to its result."""

    def __init__(self, graph: Graph, data: str | None, config: TuneConfig, show: bool):
        self.graph, self.seen, self.config, self.show = graph, without_test(graph), config, show
        self.traits = Traits.of(self.seen)
        self.models = families(self.traits, config.models)
        self.base = TrainConfig(
            data=data or graph.name,
            split=config.split,
            task=config.task,
            metric=config.metric,
            seed=config.seed,
            **_lengths(self.traits),
        )
        self.task = self.base.task_of(self.seen)
        if self.traits.few_labels and self.task.metric == "accuracy":
            # Of few labels' noisy curves the luckiest step is not the best: the loss chooses it.
            self.base = dataclasses.replace(self.base, metric="cross_entropy")
        self.smaller = self.task.metric in self.task.SMALLER
        self.folder = self._opened()
        self.jobs = config.jobs or _usual_jobs(self.traits)
        self._before = (self.folder.read_json(ELAPSED) or {}).get("seconds", 0.0)
        self._began = time.monotonic()
        self.total = seconds_of(config.budget)
        self.baselines: list[Baseline] = []

    def _opened(self) -> RunFolder:
        """A new folder, or that of a tuning of the same graph."""
        path = self.config.out or new_run_path(
            dataclasses.replace(self.base, data=f"tune-{Path(self.base.data).stem}")
        )
        if address_of(path) is not None:
            raise UserError(
                f"gtjax tune writes to a folder of this machine; found --out {shown(path)}. Name "
                "one, and copy it when it is finished."
            )
        asked = {"fingerprint": self.graph.fingerprint, "config": to_mapping(self.config)}
        folder = RunFolder(path)
        if (path / ASKED).is_file():
            if folder.read_json(ASKED)["fingerprint"] != asked["fingerprint"]:
                raise UserError(f"{path} holds the tuning of another graph: name a new --out")
        elif (path / "config.json").exists():
            raise UserError(f"--out names a new folder, or one of a tuning; {path} holds a run.")
        else:
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"--out {path}: cannot write there: {error.strerror}") from error
            save_npz(self.seen, path / GRAPH)
        folder.write_json(ASKED, asked)
        return folder

    @property
    def elapsed(self) -> float:
        """Seconds so far, those of earlier calls included."""
        return self._before + time.monotonic() - self._began

    def run(self) -> Result:
        """All of it."""
        known = self.folder.read_json(RESULT)
        if known is not None:
            self._say(f"{self.folder.path} is finished; for another tuning name another --out")
            return Result(self.folder.path, known)
        self._say(
            f"{self.traits.text}\nmodels: {', '.join(self.models)}; {self.jobs} trials side by "
            f"side\nfolder: {self.folder.path}"
        )
        keep_compiled()
        try:
            self._search()
            self._finals()
            return self._finish()
        except KeyboardInterrupt:
            self._note()
            self._say(f"stopped; continue with the same command and --out {self.folder.path}")
            raise

    # Search and finalists.

    def _search(self) -> None:
        study = studies.open_study(self.folder.path, studies.SEARCH, self.config.seed)
        studies.give_up_running(study)
        if not study.get_trials(deepcopy=False):
            for called, params in recipes(self.traits, self.models):
                studies.enqueue(study, called, params)
        left = SEARCH_SHARE * self.total - self.elapsed
        if studies.finished(study) and left <= 0:
            return
        left = max(left, 1.0)
        seeds = 1 if left < SHORT or self.traits.size > LARGE else TRIAL_SEEDS
        self._work(study, studies.SEARCH, seeds, left, left * self.jobs / FULL_TRIALS)
        if not studies.finished(study):
            self._explain_nothing(study)

    def _finals(self) -> None:
        search = studies.finished(
            studies.open_study(self.folder.path, studies.SEARCH, self.config.seed)
        )
        study = studies.open_study(self.folder.path, studies.FINALISTS, self.config.seed)
        studies.give_up_running(study)
        left = FINALISTS_SHARE * self.total - self.elapsed
        best = [studies.outcome_of(each) for each in search]
        if self._cut(best[0]):
            return  # to train it for longer is worth more than to know better which is the best
        count, seeds = self._affordable(best, left)
        if count < 2:
            return  # there is nothing to compare, or no time to do it better than the search did
        if not study.get_trials(deepcopy=False):
            for trial in search[:count]:
                studies.enqueue_finalist(study, trial.number, studies.settings_of(trial))
        self._work(study, studies.FINALISTS, seeds, left, left / -(-count // self.jobs))

    def _affordable(self, best: list[dict[str, Any]], seconds: float) -> tuple[int, int]:
        """How many finalists, on how many seeds, there is time for: on more than in the search."""
        for count in range(min(FINALISTS, len(best)), 1, -1):
            of_one = seconds / -(-count // self.jobs)
            costs = [_seed_seconds(each) for each in best[:count]]
            compiling = max(each["compile_seconds"] for each in best[:count])
            seeds = min(FINALIST_SEEDS, int((of_one - compiling) / max(costs)))
            if seeds > len(best[0]["each"]):
                return count, seeds
        return 0, 0

    def _work(self, study: Any, name: str, seeds: int, seconds: float, of_trial: float) -> None:
        """Have workers run trials of a study for so long."""
        orders = Orders(
            study=name,
            models=self.models,
            base=to_mapping(self.base),
            compared=self.task.metric,
            seeds=seeds,
            trial_seconds=of_trial,
            until=time.time() + seconds,
            most_trials=self.config.trials,
            seed=self.config.seed,
            jobs=self.jobs,
        )
        with progress(f"tuning ({name})", self.total, show=self.show) as update:

            def tick() -> None:
                self._note()
                update(min(self.elapsed, self.total), self._summary(study))

            if self.jobs == 1:
                self._compare()
                work(self.folder.path, orders, tick=tick)
            else:
                for said in run_workers(self.folder, orders, study, self._compare, tick):
                    self._say(said)
        self._write_trials()

    def _compare(self) -> None:
        if not self.baselines:
            seconds = min(60.0, 0.05 * self.total)
            self.baselines = baselines(self.seen, self.task.metric, seconds)

    # The choice, and what is told of it.

    def _chosen(self) -> tuple[Any, str]:
        """The trial that is best: of the finalists, or where there are none of the search."""
        for name in (studies.FINALISTS, studies.SEARCH):
            study = studies.open_study(self.folder.path, name, self.config.seed)
            if found := studies.finished(study):
                return found[0], name
        raise UserError("no trial was finished: give a larger --budget")

    def _finish(self) -> Result:
        self._compare()  # a tuning that goes on here has not
        trial, _ = self._chosen()
        params, outcome = studies.settings_of(trial), studies.outcome_of(trial)
        seeds, steps = self._final_size(outcome)
        final = dataclasses.replace(
            config_of(params, self.base), steps=steps, smooth=self._smoothing()
        )
        counts = self._counts()
        write_config(
            self.folder.path / BEST,
            final,
            f"chosen by gtjax tune: validation {self.task.metric} {outcome['metric']:.4f}, mean of "
            f"{len(outcome['each'])} seeds, the best of {counts['trials']} trials",
        )
        with progress("training what was chosen", 1.0, show=self.show) as update:
            update(0.0, f"{params['model']}, {steps} steps, {seeds} seeds")
            run = self._trained(final, seeds)
        # The one and only look at test labels.
        tested = run.evaluate(self.graph)
        values = self._values(params, outcome, final, counts, tested)
        self.folder.write_json(RESULT, values)
        self._write_trials()
        if self.show:
            self._tell(values)
        return Result(self.folder.path, values)

    def _smoothing(self) -> SmoothConfig:
        """Correct & Smooth where many labels are known and neighbours are alike.

        Validation says how far. Of few labels validation is too noisy to choose it by.
        """
        traits = self.traits
        if traits.few_labels or traits.heterophilous or not is_one_class(self.task):
            return SmoothConfig()
        return SmoothConfig(method="correct_and_smooth", choose=True)

    def _cut(self, outcome: dict[str, Any]) -> bool:
        """Whether only its time has ended a trial, which might have learned more."""
        since_best = outcome["steps"] - max(outcome["best_steps"])
        return outcome["steps"] < self.base.steps and since_best < self.base.patience

    def _final_size(self, outcome: dict[str, Any]) -> tuple[int, int]:
        """Seeds and steps of the choice, as many as there is time for.

        Steps are those that the trial took. If its time has cut them, more of them come before
        more seeds.
        """
        taken, every, asked = max(outcome["steps"], 1), self.base.eval_every, self.config.ensemble
        left = (self.total - self.elapsed - outcome["compile_seconds"]) * self.jobs
        able = left / (_seed_seconds(outcome) / taken)  # steps of one seed
        steps = taken
        if self._cut(outcome):
            steps = int(able / (asked or 1)) // every * every
            steps = min(self.base.steps, max(taken, steps, every))
        return asked or max(1, min(FINALIST_SEEDS, int(able / steps))), steps

    def _trained(self, config: TrainConfig, seeds: int) -> Any:
        out = self.folder.path / "final"
        if out.exists() and not (out / RESULT).exists():  # of a call that was killed
            import shutil

            shutil.rmtree(out)
        if not out.exists():
            runtime = RuntimeConfig(keep_graph="never", checkpoint_seconds=300)
            config = dataclasses.replace(config, seeds=seeds, out=out, runtime=runtime)
            fit(self.seen, config=config, show_progress=False)
        return load_run(out)

    def _values(
        self,
        params: Params,
        outcome: dict[str, Any],
        config: TrainConfig,
        counts: dict[str, int],
        tested: dict[str, float],
    ) -> dict[str, Any]:
        metric = self.task.metric
        known = of_answers({name: value for name, value in tested.items() if "train_" not in name})
        labels_n, test_n = self.graph.labels_n, self.graph.split_n.get("test")
        simple = [
            {
                "name": each.name,
                "val": each.val,
                "test": None
                if test_n is None
                else scored(each.scores_nc, labels_n, test_n, metric),
            }
            for each in self.baselines
        ]
        best = max((each["val"] for each in simple), default=None)
        return {
            "metric": metric,
            "model": params["model"],
            "settings": params,
            "validation": outcome["metric"],
            "validation_deviation": outcome["deviation"],
            "validation_seeds": len(outcome["each"]),
            **known,
            "baselines": simple,
            "beaten": best is None or outcome["metric"] >= best,
            **counts,
            "seconds": self.elapsed,
            "budget": self.config.budget,
            "jobs": self.jobs,
            "traits": self.traits.to_json(),
            "config": to_mapping(config),
            "data": {"name": self.graph.name, "fingerprint": self.graph.fingerprint},
            "versions": versions() | {"optuna": studies.optuna().__version__},
        }

    def _counts(self) -> dict[str, int]:
        study = studies.open_study(self.folder.path, studies.SEARCH, self.config.seed)
        ended = studies.ended(study)
        stopped = sum(studies.outcome_of(each)["stopped"] for each in ended)
        return {"trials": len(ended), "trials_stopped_early": stopped}

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for name in (studies.SEARCH, studies.FINALISTS):
            study = studies.open_study(self.folder.path, name, self.config.seed)
            rows += table.rows_of(study, name)
        return rows

    def _write_trials(self) -> None:
        rows, path = self._rows(), self.folder.path
        simple = [{"name": each.name, "val": each.val} for each in self.baselines]
        table.write_table(path / "trials.csv", rows)
        table.draw(path / "trials.svg", rows, simple, self.task.metric, self.smaller)

    def _tell(self, values: dict[str, Any]) -> None:
        metric = values["metric"]
        stopped = values["trials_stopped_early"]
        self._say(
            f"validation {metric} of the best of {values['trials']} trials ({stopped} stopped "
            f"early), and of simple models:"
        )
        self._say(table.told(self._rows(), values["baselines"], self.smaller))
        if not values["beaten"]:
            self._say(
                "warning: a simple model validates better than what was chosen. The graph may need "
                "a longer --budget, or no more than that simple model."
            )
        self._say(f"test {metric}, looked at once: {told_test(values)}")
        self._say(f"settings: {self.folder.path / BEST}; model: {self.folder.path / 'final'}")

    def _explain_nothing(self, study: Any) -> None:
        why = [
            each.user_attrs[studies.FAILED]
            for each in study.get_trials()
            if studies.FAILED in each.user_attrs
        ]
        logs = [path.read_text(errors="replace") for path in self.folder.path.glob("worker-*.log")]
        said = why[:1] or [log.strip().splitlines()[-1] for log in logs if log.strip()][:1]
        raise UserError(
            f"no trial was finished: {said[0] if said else 'there was no time'}. Give a larger "
            f"--budget, or look into {self.folder.path}"
        )

    def _summary(self, study: Any) -> str:
        ended = studies.ended(study)
        if not ended:
            return "first trials"
        best = max(ended, key=lambda each: studies.outcome_of(each)["goodness"])
        model, value = studies.settings_of(best)["model"], studies.outcome_of(best)["metric"]
        return f"{len(ended)} trials, best val {self.task.metric} {value:.4f} ({model})"

    def _note(self) -> None:
        self.folder.write_json(ELAPSED, {"seconds": self.elapsed})

    def _say(self, text: str) -> None:
        if self.show:
            say(text)


def _seed_seconds(outcome: dict[str, Any]) -> float:
    """What a seed of a trial took, on the cores of a worker and without compilation."""
    return max(outcome["seconds"] - outcome["compile_seconds"], 1e-3) / len(outcome["each"])


def told_test(values: dict[str, Any]) -> str:
    """The test metric of the choice, of the mean prediction of its seeds, and of simple models."""
    name = f"test_{values['metric']}"
    if values.get(name) is None or values[name] != values[name]:
        return "there are no labelled test nodes"
    deviation = values.get(f"{name}_deviation")
    said = [f"{values[name]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")]
    if (before := values.get(f"test_unsmoothed_{values['metric']}")) is not None:
        said.append(f"before Correct & Smooth {before:.4f}")
    if f"ensemble_{name}" in values:
        said.append(f"mean prediction {values[f'ensemble_{name}']:.4f}")
    said += [f"{each['name']} {each['test']:.4f}" for each in values["baselines"] if each["test"]]
    return "; ".join(said)


def of_answers(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics of what is predicted: after smoothing where there is one; those before it beside."""
    known = {name: value for name, value in metrics.items() if "_smoothed_" not in name}
    for name in metrics.keys() - known.keys():
        plain = name.replace("_smoothed_", "_")
        known |= {plain: metrics[name], name.replace("_smoothed_", "_unsmoothed_"): metrics[plain]}
    return known


def _lengths(traits: Traits) -> dict[str, Any]:
    """Steps of a trial, and how often and how long it is looked at."""
    longest = LONGEST * (2 if traits.few_labels or traits.heterophilous else 1)
    every = max(1, longest // EVALUATIONS)
    return {"steps": longest // every * every, "eval_every": every, "patience": LONGEST // 4}


def _usual_jobs(traits: Traits) -> int:
    """A process a core where steps are short, on the CPU; else one with everything."""
    import jax

    if jax.default_backend() != "cpu" or traits.size > LARGE:
        return 1
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(there or 1, 8)
