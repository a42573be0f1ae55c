"""What may have been meant by an option that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# What others call it, by what an option is called here, without the group that it is in.
SYNONYMS = {
    "learning-rate": "lr learningrate step-size",
    "weight-decay": "wd l2 decay",
    "steps": "epochs num-epochs n-epochs iterations iters num-steps max-steps max-epochs",
    "hidden": "hidden-dim hidden-size hidden-channels num-hidden d-model dim width embed-dim",
    "layers": "num-layers n-layers depth",
    "heads": "num-heads n-heads nhead attention-heads",
    "devices": "gpus num-gpus n-gpus ngpus gpu num-devices n-devices world-size tpus",
    "processes": "nproc nproc-per-node num-processes nprocs",
    "batching": "batch-size batchsize batch bs mini-batch minibatch",
    "data": "dataset data-set data-path input graph",
    "out": "output output-dir out-dir save-dir log-dir save",
    "patience": "early-stopping early-stop",
    "seed": "random-seed random-state",
    "clip": "grad-clip clip-norm max-grad-norm clip-grad-norm gradient-clip",
    "warmup": "warmup-steps num-warmup-steps",
    "average": "ema ema-decay",
    "schedule": "scheduler lr-scheduler lr-schedule",
    "model": "arch architecture model-name gnn",
    "eval-every": "eval-steps eval-interval val-every",
    "checkpoint-steps": "save-every save-steps checkpoint-every",
    "partitioner": "partition how partition-method",
    "parts": "num-parts n-parts k",
}
_MEANT = {word: name for name, words in SYNONYMS.items() for word in words.split()}
LIKE = 0.7  # from 0 to 1, how like it a name has to be


def suggestion(option: str, options: Sequence[str]) -> str | None:
    """The option that is meant most likely, of those that there are; None if none is like it."""
    word = option.partition("=")[0].lstrip("-").replace("_", "-").lower()
    own = word.rpartition(".")[2]
    by_name = {name.lstrip("-").rpartition(".")[2]: name for name in reversed(options)}
    for name in (own, _MEANT.get(own)):
        if name in by_name:
            return by_name[name]
    whole = {name.lstrip("-"): name for name in options}
    for names, asked in ((whole, word), (by_name, own)):
        if near := difflib.get_close_matches(asked, names, n=1, cutoff=LIKE):
            return names[near[0]]
    return None
