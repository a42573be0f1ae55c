"""Which papers should cite each other? Edges are held out, never seen, and found again."""

import numpy as np

import gtjax

graph = gtjax.load("synthetic-citation:nodes=1000,signal=4,seed=4")
asked = gtjax.TaskConfig(decoder="dot", val_links=0.05, test_links=0.1)
config = gtjax.TrainConfig(task="link", steps=100, eval_every=20, asked=asked)
result = gtjax.fit(graph, gtjax.GCNConfig(hidden=64, layers=1), config, show_progress=False)
print(f"ROC-AUC {result['test_roc_auc']:.3f}, hits@50 {result['test_hits@50']:.3f}")

run = gtjax.load_run(result.folder)
candidates = np.random.default_rng(0).integers(0, graph.num_nodes, (500, 2))
probability = run.predict(pairs=candidates).answers_nc[:, 0]
best = probability.argsort()[::-1][:3]
for (first, second), chance in zip(candidates[best], probability[best], strict=True):
    print(f"{first} - {second}: {chance:.2f}")
assert result["test_roc_auc"] > 0.7
