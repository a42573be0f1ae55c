"""How far a model sees, for those whose settings do not say: a NaN on a path shows it.

Sampling draws a hop for each op that follows another, so too few hops would give wrong numbers
without a word. On a path of nodes, one after the other, the first gets a NaN for its features; it
arrives, in evaluation, at the nodes that depend on the first. Costs the compilation of the model
for a tiny graph.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gtjax.batching.config import BatchesConfig, BatchingSettings, PrepareConfig
from gtjax.batching.prepare import make_batch
from gtjax.graph import Graph
from gtjax.nn.config import TransformerConfig
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import spread
from gtjax.sharding.neighbours import BoundNeighbours

if TYPE_CHECKING:
    from gtjax.nn.models import Sizes

MOST = 16  # hops beyond which nobody samples


def says_how_far(model: Any) -> bool:
    """Whether the settings are of a model here, whose layers are its hops."""
    return type(model).__module__ == TransformerConfig.__module__


def receptive_field(encoder: Any, sizes: Sizes, settings: BatchingSettings) -> int | None:
    """Hops that an encoder sees; None if it reads no features, or sees more than `MOST`."""
    if not sizes.features:
        return None
    nodes = MOST + 2
    edge_x = np.zeros((nodes - 1, sizes.edge_features), np.float32)
    path = Graph(
        np.arange(nodes - 1),
        np.arange(1, nodes),
        np.ones((nodes, sizes.features), np.float32),
        np.zeros(nodes, np.int32),
        edge_x_ef=edge_x if sizes.edge_features else None,
    )
    plain = PrepareConfig(symmetrise=False, self_loops=False, features="none", reorder="never")
    settings = dataclasses.replace(
        settings,
        positional="none",
        sparse_forms=None,
        targets=lambda graph: {},
        scaling=None,
        prepare=plain,
        batches=BatchesConfig(),
    )
    over = spread(ParallelConfig(), (), jax.local_devices()[:1])
    batch = make_batch(path, settings, over)
    x_nf = batch.inputs.x_nf.at[0].set(jnp.nan)
    positional = jnp.zeros((nodes, sizes.positional)) if sizes.positional else None
    inputs = batch.inputs._replace(x_nf=x_nf, positional_np=positional)
    assert inputs.degree_n is not None
    neighbours = BoundNeighbours(over, batch.layout, inputs.degree_n)
    graphdef, state = nnx.split(encoder)
    run = jax.jit(lambda state, *seen: nnx.merge(graphdef, state)(*seen))
    found_nf = np.asarray(run(state, inputs.live(None)._replace(randomness=None), neighbours))
    reached = np.flatnonzero(np.isnan(found_nf.reshape(nodes, -1)).any(axis=1))
    far = int(reached.max(initial=0))
    return far if far <= MOST else None
