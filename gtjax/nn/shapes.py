"""What a model gives, learned by running it on shapes: nothing is computed.

`embedding_width` is how the rest of gtjax finds out how wide the head of a task has to be, and the
first to notice a model that does not do what a model does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours

NODES, EDGES = 6, 5  # any, and not the same


def shape_inputs(sizes: Sizes, *, multilabel: bool = False) -> Inputs:
    """Inputs of these sizes, of a few nodes and edges."""
    float32 = jnp.float32
    return Inputs(
        x_nf=jnp.zeros((NODES, sizes.features), float32),
        positional_np=jnp.zeros((NODES, sizes.positional), float32) if sizes.positional else None,
        edge_x_ef=jnp.zeros((EDGES, sizes.edge_features), float32) if sizes.edge_features else None,
        shown_labels_n=jnp.zeros((NODES, sizes.classes) if multilabel else NODES, jnp.int32),
        degree_n=jnp.zeros(NODES, float32),
        node_ids_n=jnp.zeros(NODES, jnp.uint32),
    )


def embedding_width(
    model: nnx.Module,
    sizes: Sizes,
    neighbours: Callable[[jax.Array], Neighbours],
    *,
    training: bool = False,
    multilabel: bool = False,
) -> int:
    """Columns of what a model gives, which may be of shapes; a ValueError if that is no embedding.

    It is run on shapes with `neighbours(degree_n)`, as in evaluation or as in training.
    """

    graphdef, state = nnx.split(model)

    def run(state: Any) -> Any:
        key = jax.random.key(0) if training else None
        inputs = shape_inputs(sizes, multilabel=multilabel).live(key)
        assert inputs.degree_n is not None
        return nnx.merge(graphdef, state)(inputs, neighbours(inputs.degree_n))

    made = jax.eval_shape(run, state)
    rule = f"a model gives embeddings [nodes, width] as floats: {type(model).__name__} gave"
    if not isinstance(made, jax.ShapeDtypeStruct):
        raise ValueError(f"{rule} {type(made).__name__}")
    if made.ndim != 2 or made.shape[0] != NODES or not jnp.issubdtype(made.dtype, jnp.floating):
        raise ValueError(f"{rule} {made.dtype}{list(made.shape)} for {NODES} nodes")
    return made.shape[1]
