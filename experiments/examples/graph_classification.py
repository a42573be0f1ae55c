"""Many small graphs: does each have a triangle more than a tree would? Batches of whole graphs."""

import networkx as nx
import numpy as np

import gtjax

rng = np.random.default_rng(0)
graphs, labels = [], []
for number in range(120):
    tree = nx.random_labeled_tree(int(rng.integers(8, 16)), seed=number)
    if number % 2:  # some triangles
        for node in list(tree.nodes)[:5]:
            tree.add_edges_from([(u, v) for u in tree[node] for v in tree[node] if u < v])
    pairs = [*tree.edges, *(edge[::-1] for edge in tree.edges)]
    graphs.append(gtjax.from_edges(pairs, num_nodes=len(tree)))
    labels.append("triangles" if number % 2 else "tree")

many = gtjax.many_graphs(graphs, labels).with_random_splits(train=0.6, val=0.2, test=0.2, seed=0)
config = gtjax.TrainConfig(
    steps=80,
    eval_every=20,
    asked=gtjax.TaskConfig(pool="mean"),
    batches=gtjax.BatchesConfig(batching="graphs", batch_size=24),
)
result = gtjax.fit(many, gtjax.GINConfig(hidden=32, layers=3), config, show_progress=False)
print(many, f"accuracy {result['test_accuracy']:.3f}")
assert result["test_accuracy"] > 0.8
