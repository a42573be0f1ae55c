"""Eight devices, here simulated on one CPU: what the planner chooses, why, and that it is exact."""

import jax
import numpy as np

import gtjax

jax.config.update("jax_num_cpu_devices", 8)
graph = gtjax.load("synthetic-citation:nodes=1000,seed=6")
losses = {}
for strategy in ("single", "node_halo", "node_by_feature"):
    parallel = gtjax.ParallelConfig(devices=1 if strategy == "single" else 8, strategy=strategy)
    model = gtjax.TransformerConfig(hidden=32, layers=1, heads=4)
    config = gtjax.TrainConfig(steps=5, parallel=parallel)
    result = gtjax.fit(graph, model, config, show_progress=False)
    losses[strategy] = result["losses"]
    megabytes = result["peak_bytes_per_device"] / 1e6
    print(f"{strategy}: mesh {result['mesh']}, {megabytes:.1f} MB a device")
for strategy, found in losses.items():
    assert np.allclose(found, losses["single"], rtol=2e-5), strategy

sizes = gtjax.Sizes(nodes=111_000_000, edges=1_600_000_000, features=128, classes=172, cut=0.3)
parallel = gtjax.ParallelConfig(devices=512, hardware="tpu-v5e")
plan = gtjax.plan(sizes, config=gtjax.TrainConfig(parallel=parallel))
print(plan.flip)
