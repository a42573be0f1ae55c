"""What is counted in a traced step, against what can be counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from gtjax.hardware.arithmetic import bend_values
from gtjax.nn.recompute import recomputed
from gtjax.planner.price import BEND_OPERATIONS
from gtjax.planner.trace import operations_of, trace_step
from tests.planner.tiny_models import CLASSES, FEATURES, MODELS, Step

HIDDEN = 32


def flops_a_node(work):
    return sum(flops.node for _, flops in work.products)


def test_products_are_those_of_the_layers():
    """Forward and both gradients, but none of the features; each with its narrower side."""
    work = Step(MODELS["sums"]).work()
    first, second, head = FEATURES * HIDDEN, HIDDEN * HIDDEN, HIDDEN * CLASSES
    assert flops_a_node(work) == 2 * (2 * first + 3 * second + 3 * head)
    assert dict(work.products)[CLASSES].node == 2 * 3 * head
    assert all(flops.edge == 0 for _, flops in work.products)


def test_ops_are_those_that_are_called():
    (call,) = Step(MODELS["sums"]).work().calls
    assert (call.op.name, call.forwards, call.backwards) == ("weighted_sum", 2, 2)
    assert call.work.sender_bytes == 4 * HIDDEN
    assert not call.rereads  # the gradient of a sum needs nothing of what was summed
    (call,) = Step(MODELS["additive"]).work().calls
    assert call.rereads
    assert call.work.edge_gradient_bytes == 16
    assert call.work.split(4) == "heads"


def test_gradients_are_summed_over_all_devices():
    """Every parameter once, a shared one too, and the two sums of the loss."""
    for make in MODELS.values():
        work = Step(make).work()
        unused = 2 * 4 * HIDDEN if make is MODELS["gated"] else 0  # biases of the gates
        assert sum(work.sums) == work.parameter_bytes - unused + 8


def test_inputs_are_those_that_are_read():
    sums, additive = (Step(MODELS[name]).work().inputs for name in ("sums", "additive"))
    assert (sums.node, sums.edge) == (4 * FEATURES + 4 + 1, 0)
    assert additive.edge == 12


def test_what_is_kept_of_a_chain_of_sums():
    """Of each layer what it sums, for its ReLU, and what the next product reads."""
    work = Step(MODELS["sums"], layers=4).work()
    less = Step(MODELS["sums"], layers=3).work()
    assert work.kept.node - less.kept.node == 2 * 4 * HIDDEN
    assert work.kept.edge == 0


def test_nothing_of_an_op_is_kept_by_edge():
    assert Step(MODELS["gated"]).work().kept.edge == 0
    # But biases of edges are the model's own, and those of all layers are there at once.
    assert Step(MODELS["additive"]).work().kept.edge == 2 * 16


class Block(nnx.Module):
    """Attention of a product, recomputed as a whole or not."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.qkv = nnx.Linear(HIDDEN, 3 * HIDDEN, rngs=rngs)

    def __call__(self, x_nf, neighbours, late=0.0):
        """As wide as it came."""
        q, k, v = (
            part.reshape(-1, 4, HIDDEN // 4)
            for part in jnp.split(self.qkv(jnp.tanh(x_nf + late)), 3, axis=1)
        )
        return x_nf + neighbours.attend(q, k, v).reshape(x_nf.shape)


@pytest.mark.parametrize("again", [False, True])
def test_recomputation_is_counted_because_it_is_there(again):
    blocks = nnx.List([Block(rngs=nnx.Rngs(0)) for _ in range(5)])
    graphdef, params = nnx.split(blocks)

    def loss(params, x_nf, neighbours):
        for block in nnx.merge(graphdef, params):
            if again:
                run = lambda block, x_nf, late: block(x_nf, neighbours, late)  # noqa: E731
                x_nf = recomputed(run, block, x_nf, strict=True)
            else:
                x_nf = block(x_nf, neighbours)
        return jnp.square(x_nf).mean()

    shape = lambda nodes, edges: jax.ShapeDtypeStruct((nodes, HIDDEN), jnp.float32)  # noqa: E731
    work = trace_step(loss, params, shape)
    # Forward passes whose rows nobody needs again are apart from those that have a backward pass.
    ways = ("forwards", "backwards")
    forwards, backwards = ([getattr(call, way) for call in work.calls] for way in ways)
    assert (sum(forwards), sum(backwards)) == ((10, 5) if again else (5, 5))
    product = 2 * HIDDEN * 3 * HIDDEN
    times = 5 * (4 if again else 3) - 1  # the first block's input has no gradient
    assert flops_a_node(work) == times * product
    inputs = 5 * 4 * HIDDEN
    assert work.kept.node <= 1.5 * inputs if again else work.kept.node > 4 * inputs
    opened = max(max(moment.open) for moment in work.moments)
    assert opened <= 1 if again else opened == 5


def test_sizes_of_nodes_and_edges_do_not_matter():
    step = Step(MODELS["additive"])
    from tests.planner.tiny_models import shapes

    other = trace_step(step.loss, step.params, shapes, nodes=1_000_033, edges=3_000_017)
    assert other.products == step.work().products
    assert other.moments == step.work().moments


def test_a_bend_is_as_many_operations_as_the_price_takes_it_for():
    rows = jax.ShapeDtypeStruct((1000, 128), jnp.float32)
    assert operations_of(bend_values, rows) / 128e3 == pytest.approx(BEND_OPERATIONS, rel=0.02)
