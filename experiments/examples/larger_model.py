"""A deeper model in less memory: recompute in the backward pass instead of keeping."""

import gtjax

graph = gtjax.load("synthetic-citation:nodes=3000,seed=7")
peaks = {}
for remat in ("none", "block"):
    model = gtjax.TransformerConfig(hidden=64, layers=3, heads=4, remat=remat)
    peaks[remat] = gtjax.step_cost(graph, gtjax.TrainConfig(model=model)).peak_bytes
    print(f"remat={remat}: {peaks[remat] / 1e6:.0f} MB")
assert peaks["block"] < 0.7 * peaks["none"]

# Left to itself ("auto"), training recomputes as much as it has to: here to fit in 32 MB.
parallel = gtjax.ParallelConfig(memory=0.03)
config = gtjax.TrainConfig(steps=2, parallel=parallel)
result = gtjax.fit(graph, gtjax.TransformerConfig(layers=3), config, show_progress=False)
print("chosen:", result["config"]["model"]["remat"])
