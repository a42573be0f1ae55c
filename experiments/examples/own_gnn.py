"""A GNN of one's own, with an edge function that no library has, under two strategies."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import gtjax

jax.config.update("jax_num_cpu_devices", 4)


class Distances(nnx.Module):
    """Neighbours count by how near their rows are: exp(-scale |x_i - x_j|^2)."""

    def __init__(self, sizes, *, rngs):
        self.first = nnx.Linear(sizes.features, 32, rngs=rngs)
        self.scale = nnx.Param(jnp.full((), 0.1))

    def __call__(self, inputs, neighbours):
        """Embeddings of all nodes."""

        def message(receiver, sender, edge, scale):
            return -scale * jnp.square(receiver - sender).sum(), sender

        h_nf = nnx.relu(self.first(inputs.noise.drop(inputs.x_nf, 0.3)))
        rows = {"receiver": h_nf, "sender": h_nf, "shared": self.scale[...]}
        return neighbours.aggregate(message, **rows, reduce="softmax")


graph = gtjax.load("synthetic-citation:nodes=800,seed=2")
losses = []
for parallel in (gtjax.ParallelConfig(), gtjax.ParallelConfig(devices=4, strategy="node_ring")):
    config = gtjax.TrainConfig(steps=20, parallel=parallel)
    losses.append(gtjax.fit(graph, Distances, config, show_progress=False)["losses"])
print("largest difference of losses:", np.abs(np.subtract(*losses)).max())
assert np.allclose(*losses, rtol=2e-5)
