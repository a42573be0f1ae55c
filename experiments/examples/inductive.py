"""Train on a part of a graph, and answer for nodes that were not there."""

import dataclasses

import numpy as np

import gtjax

whole = gtjax.load("synthetic-citation:nodes=1200,classes=4,signal=4,seed=5")
known = np.arange(whole.num_nodes) < 800  # nodes 800 and on arrive after training
inside = known[whole.senders_e] & known[whole.receivers_e]
part = dataclasses.replace(
    whole,
    senders_e=whole.senders_e[inside],
    receivers_e=whole.receivers_e[inside],
    x_nf=whole.x_nf[known],
    labels_n=whole.labels_n[known],
    split_n={},
).with_random_splits(train=0.5, val=0.25, test=0.25, seed=0)

result = gtjax.fit(part, "sage", gtjax.TrainConfig(steps=60), show_progress=False)
answers = gtjax.load_run(result.folder).predict(whole)
right = answers.answers_nc[~known].argmax(axis=1) == whole.labels_n[~known]
print(f"seen graph {result['test_accuracy']:.3f}, nodes that came later {right.mean():.3f}")
assert right.mean() > 0.5
