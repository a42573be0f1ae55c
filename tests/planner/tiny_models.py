"""Models that the planner has never seen, their loss, and the step that is compiled of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding

from gtjax.graph import Graph
from gtjax.planner.step_work import Work
from gtjax.planner.trace import trace_step
from gtjax.sharding.specs import BY_ROW, EVERYWHERE
from tests.strategies.on_devices import OnDevices

FEATURES, CLASSES, EDGE_FEATURES = 48, 7, 3


class Sums(nnx.Module):
    """Linear layers and sums of neighbours, as in a GCN."""

    def __init__(self, hidden: int = 32, layers: int = 2, *, rngs: nnx.Rngs):
        widths = [FEATURES, *[hidden] * layers]
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.head = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Logits."""
        h_nf = inputs["x"]
        for layer in self.layers:
            h_nf = jax.nn.relu(neighbours.sum(layer(h_nf)))
        return self.head(h_nf)


class Additive(nnx.Module):
    """Additive attention with a bias of edge features, as in a GAT."""

    def __init__(self, hidden: int = 32, heads: int = 4, layers: int = 2, *, rngs: nnx.Rngs):
        self.heads = heads
        widths = [FEATURES, *[hidden] * layers]
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.ends = nnx.List([nnx.Linear(hidden, 2 * heads, rngs=rngs) for _ in range(layers)])
        self.edges = nnx.List([nnx.Linear(EDGE_FEATURES, heads, rngs=rngs) for _ in range(layers)])
        self.head = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Logits."""
        h_nf = inputs["x"]
        for layer, ends, edges in zip(self.layers, self.ends, self.edges, strict=True):
            values_nf = layer(h_nf)
            own_nh, other_nh = jnp.split(ends(values_nf), 2, axis=1)
            by_head = values_nf.reshape(values_nf.shape[0], self.heads, -1)
            out = neighbours.attend_additive(own_nh, other_nh, by_head, edges(inputs["edge_x"]))
            h_nf = jax.nn.elu(out.reshape(values_nf.shape))
        return self.head(h_nf)


class Gated(nnx.Module):
    """A message of its own: sender's row, gated by both ends and a shared matrix."""

    def __init__(self, hidden: int = 32, layers: int = 2, *, rngs: nnx.Rngs):
        widths = [FEATURES, *[hidden] * layers]
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.gates = nnx.List([nnx.Linear(hidden, hidden, rngs=rngs) for _ in range(layers)])
        self.head = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Logits."""
        h_nf = inputs["x"]
        for layer, gate in zip(self.layers, self.gates, strict=True):
            h_nf = layer(h_nf)
            mixed_nf = neighbours.aggregate(
                _gated, receiver=h_nf, sender=h_nf, shared=gate.kernel[...], reduce="mean"
            )
            h_nf = jax.nn.gelu(h_nf + mixed_nf)
        return self.head(h_nf)


def _gated(receiver: jax.Array, sender: jax.Array, edge: None, weights: jax.Array) -> jax.Array:
    return jax.nn.sigmoid((receiver + sender) @ weights) * sender


class Attending(nnx.Module):
    """Dot-product attention and feed-forward layers, each normalised and added to its input."""

    def __init__(self, hidden: int = 32, heads: int = 4, layers: int = 2, *, rngs: nnx.Rngs):
        self.heads = heads
        self.first = nnx.Linear(FEATURES, hidden, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(hidden, rngs=rngs) for _ in range(2 * layers)])
        self.qkv = nnx.List([nnx.Linear(hidden, 3 * hidden, rngs=rngs) for _ in range(layers)])
        self.up = nnx.List([nnx.Linear(hidden, 2 * hidden, rngs=rngs) for _ in range(layers)])
        self.down = nnx.List([nnx.Linear(2 * hidden, hidden, rngs=rngs) for _ in range(layers)])
        self.head = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Logits."""
        h_nf = self.first(inputs["x"])
        norms = iter(self.norms)
        for qkv, up, down in zip(self.qkv, self.up, self.down, strict=True):
            parts = jnp.split(qkv(next(norms)(h_nf)), 3, axis=1)
            q, k, v = (x.reshape(x.shape[0], self.heads, -1) for x in parts)
            h_nf = h_nf + neighbours.attend(q, k, v).reshape(h_nf.shape)
            h_nf = h_nf + down(jax.nn.gelu(up(next(norms)(h_nf))))
        return self.head(h_nf)


class Twice(nnx.Module):
    """Two ops on the same rows, of which one has them as receivers' rows too."""

    def __init__(self, hidden: int = 32, layers: int = 2, *, rngs: nnx.Rngs):
        widths = [FEATURES, *[hidden] * layers]
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(widths)])
        self.head = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Logits."""
        h_nf = inputs["x"]
        for layer in self.layers:
            h_nf = layer(h_nf)
            closest_nf = neighbours.aggregate(
                _similar, receiver=h_nf, sender=h_nf, splits="channels"
            )
            h_nf = jax.nn.relu(closest_nf + neighbours.sum(h_nf))
        return self.head(h_nf)


def _similar(receiver: jax.Array, sender: jax.Array, edge: None, shared: None) -> jax.Array:
    return receiver * sender


MODELS = {"sums": Sums, "additive": Additive, "gated": Gated, "attending": Attending}
MODELS |= {"twice": Twice}


class Step:
    """A model's loss and training step, to trace and to compile."""

    def __init__(self, make: Any, **options: Any):
        def drawn() -> Any:
            return nnx.split(make(**options, rngs=nnx.Rngs(0)))

        self.graphdef, self.params = drawn()
        self.optimiser = optax.adam(1e-3)

    def loss(self, params: Any, inputs: dict[str, Any], neighbours: Any) -> jax.Array:
        """Mean cross entropy of the nodes that count."""
        logits_nc = nnx.merge(self.graphdef, params)(inputs, neighbours)
        losses_n = optax.softmax_cross_entropy_with_integer_labels(logits_nc, inputs["y"])
        counted_n = inputs["train"]
        return jnp.where(counted_n, losses_n, 0.0).sum() / jnp.maximum(counted_n.sum(), 1)

    def work(self) -> Work:
        """As the planner sees it."""
        return trace_step(self.loss, self.params, shapes)

    def compiled(self, graph: Graph, on: OnDevices) -> Any:
        """The whole step as a program for the mesh."""
        mesh = on.spread.mesh
        real = {"x": graph.x_nf, "y": graph.labels_n.astype(np.int32)}
        real["train"] = np.ones(graph.num_nodes, bool)
        edges = on.layout.edge_pe.size
        shape = {
            name: jax.ShapeDtypeStruct(
                (on.layout.senders.node_pr.size, *x.shape[1:]),
                x.dtype,
                sharding=NamedSharding(mesh, BY_ROW),
            )
            for name, x in real.items()
        }
        shape["edge_x"] = jax.ShapeDtypeStruct(
            (edges, EDGE_FEATURES), np.float32, sharding=NamedSharding(mesh, BY_ROW)
        )
        everywhere = NamedSharding(mesh, EVERYWHERE)
        state = jax.eval_shape(lambda p: (p, self.optimiser.init(p)), self.params)
        state = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), state
        )

        def step(state: Any, inputs: Any, neighbours: Any) -> Any:
            params, moments = state
            value, grads = jax.value_and_grad(self.loss)(params, inputs, neighbours)
            updates, moments = self.optimiser.update(grads, moments, params)
            return (optax.apply_updates(params, updates), moments), value

        run = jax.jit(step, donate_argnums=0, out_shardings=everywhere)
        return run.lower(state, shape, on.neighbours).compile()


def shapes(nodes: int, edges: int) -> dict[str, Any]:
    """Inputs of so many nodes and edges."""
    return {
        "x": jax.ShapeDtypeStruct((nodes, FEATURES), jnp.float32),
        "y": jax.ShapeDtypeStruct((nodes,), jnp.int32),
        "train": jax.ShapeDtypeStruct((nodes,), jnp.bool_),
        "edge_x": jax.ShapeDtypeStruct((edges, EDGE_FEATURES), jnp.float32),
    }
