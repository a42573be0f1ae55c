"""A graph of two tables with names for ids and classes: train on it, and get the names back."""

import numpy as np
import pandas as pd

import gtjax

rng = np.random.default_rng(0)
names = [f"user-{number}" for number in range(400)]
likes = rng.integers(0, 2, 400)  # what people like, and so do most of their friends
nodes = pd.DataFrame(
    {"id": names, "age": rng.normal(30 + 5 * likes, 8), "posts": rng.poisson(9, 400)}
)
nodes["label"] = np.where(likes, "dogs", "cats")
first, second = rng.integers(0, 400, (2, 9000))
friends = (likes[first] == likes[second]) | (rng.random(9000) < 0.15)
edges = pd.DataFrame(
    {"source": nodes["id"].values[first[friends]], "target": nodes["id"].values[second[friends]]}
)

graph = gtjax.from_pandas(edges, nodes).with_random_splits(train=0.3, val=0.2, test=0.5, seed=1)
print(graph)
result = gtjax.fit(graph, "sage", gtjax.TrainConfig(steps=60), show_progress=False)
answers = gtjax.load_run(result.folder).predict(nodes=["user-7", "user-8"])
print(f"accuracy {result['test_accuracy']:.3f}; {answers.nodes} like {answers.chosen_names_n}")
assert result["test_accuracy"] > 0.8
