"""Train on a large graph, carry the weights over in a file, fine-tune on a small one."""

import tempfile
from pathlib import Path

import numpy as np

import gtjax

whole = gtjax.load("synthetic-citation:nodes=1500,classes=5,signal=2,seed=8")


def part(start, end):
    """The nodes of a range, and the edges among them."""
    inside = [(start <= ends) & (ends < end) for ends in (whole.senders_e, whole.receivers_e)]
    kept = np.logical_and(*inside)
    ends = (whole.senders_e[kept] - start, whole.receivers_e[kept] - start)
    rows = (whole.x_nf[start:end], whole.labels_n[start:end])
    return gtjax.Graph(*ends, *rows).with_random_splits(0.2, 0.3, 0.5)


model, weights = gtjax.SAGEConfig(hidden=32, layers=2), Path(tempfile.mkdtemp()) / "w.safetensors"
first = gtjax.fit(part(0, 1200), model, gtjax.TrainConfig(steps=40), show_progress=False)
gtjax.load_run(first.folder).save_weights(weights)
scores = {}
for name, start in (("from nothing", None), ("fine-tuned", weights)):
    optim = gtjax.OptimConfig(learning_rate=1e-3)
    config = gtjax.TrainConfig(steps=10, eval_every=5, weights=start, optim=optim)
    scores[name] = gtjax.fit(part(1200, 1500), model, config, show_progress=False)["test_accuracy"]
    print(f"{name}: {scores[name]:.3f}")
assert scores["fine-tuned"] > scores["from nothing"]
