"""A toy op: the root of the mean square of neighbours' rows, of which the root is taken outside."""

from __future__ import annotations

from flax import nnx

from pallas_kernels.op import Op
from pallas_kernels.reductions import MEAN


def squares(receiver, x_f, edge, shared):
    return x_f**2


MEAN_SQUARE = Op("mean_square", squares, MEAN, splits=("channels",))


class SquareModel(nnx.Module):
    """A model that uses the op by its name."""

    def __init__(self, sizes, *, rngs):
        self.dense = nnx.Linear(sizes.features, 8, rngs=rngs)

    def __call__(self, inputs, neighbours):
        return (neighbours.apply("mean_square", sender=self.dense(inputs.x_nf)) + 1e-6) ** 0.5
