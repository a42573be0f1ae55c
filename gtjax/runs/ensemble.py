"""What several seeds say together: metrics as means with deviations, and the mean of predictions.

The mean of probabilities is a model of its own (an ensemble), usually better than its members: its
metrics are told apart from theirs, as `ensemble_...`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gtjax.runs.program import Outputs, Params, Program
from gtjax.runs.several_seeds import member
from gtjax.runs.stepper import Evaluator

SPLITS = ("train", "val", "test")


def measured(
    program: Program, measure: Evaluator, params: Params, steps: Any = None
) -> tuple[Outputs, dict[str, Any]]:
    """Outputs and metrics of parameters; of several seeds, if the run has them, together.

    `steps` are those that the parameters are of, to be told with each seed.
    """
    config = program.config
    if config.seeds == 1:
        outputs, metrics = measure.predict(params)
        return outputs, {name: float(value) for name, value in metrics.items()}
    found = [measure.predict(member(params, number)) for number in range(config.seeds)]
    seeds: list[dict[str, Any]] = [
        {"seed": config.seed + number, **{name: float(value) for name, value in metrics.items()}}
        for number, (_, metrics) in enumerate(found)
    ]
    if steps is not None:
        for each, step in zip(seeds, np.asarray(steps), strict=True):
            each["best_step"] = int(step)
    together = program.task.ensemble([outputs.outputs for outputs, _ in found])
    targets, smoothed = measure.batch.targets, None
    of_all = program.metrics_of(together, targets, SPLITS)
    if found[0][0].smoothed is not None:
        smoothed = program.task.ensemble([outputs.smoothed for outputs, _ in found])
        of_all |= program.metrics_of(smoothed, targets, ("val", "test"), called="smoothed_")
    # Embeddings of different seeds have nothing in common: side by side, and not added up.
    beside_nf: Any = np.concatenate([np.asarray(each.embeddings_nf) for each, _ in found], axis=1)
    return Outputs(together, beside_nf, smoothed), {
        **means(seeds),
        "seeds": seeds,
        **{f"ensemble_{name}": float(value) for name, value in of_all.items()},
    }


def means(seeds: list[dict[str, Any]]) -> dict[str, float]:
    """Of every metric the mean over seeds, and its deviation, that of a sample."""
    known: dict[str, float] = {}
    for name in seeds[0]:
        if name.partition("_")[0] in SPLITS:
            values = [each[name] for each in seeds]
            known[name] = float(np.mean(values))
            known[f"{name}_deviation"] = float(np.std(values, ddof=1))
    return known
