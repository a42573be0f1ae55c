"""Kernels lower for their devices on any machine: no device and no compiler of its maker needed.

Lowering finds wrong block shapes and operations that a device does not have; layouts, spills and
memory are found by compiling (`test_aot_tpu.py`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractDevice, AbstractMesh

from pallas_kernels import build_edges
from pallas_kernels.dot_product.tpu import TPU
from pallas_kernels.passes.tpu_tables import TABLE_KERNEL
from tests.kernels.op_programs import FUSED_WITH_EDGES, both_passes, row_shapes
from tests.kernels.oracle import awkward_graphs

GRAPHS = awkward_graphs()


def abstract_tpu() -> AbstractMesh:
    """Tells Pallas which chip to lower for: v5e."""
    return AbstractMesh((1,), ("x",), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))


def lowered(case, heads, width, dtype, rate):
    """The whole op and its gradients as StableHLO for a TPU, and the shapes of its results."""
    senders, receivers, nodes = GRAPHS["hub receives half of all edges"]
    edges = build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes, forms=TPU.needs)
    rows = row_shapes(case, nodes, len(senders), heads, width, dtype)
    call = export.DisabledSafetyCheck.custom_call("tpu_custom_call")
    step = jax.jit(both_passes(case, "tpu", rate))
    with jax.sharding.use_abstract_mesh(abstract_tpu()):
        exported = export.export(step, platforms=["tpu"], disabled_checks=[call])(
            rows, edges, np.uint32(0)
        )
    out, *grads = (x.shape for x in exported.out_avals)
    assert out == (nodes, heads, width)
    assert grads == [x.shape for x in jax.tree.leaves(rows)]
    return exported.mlir_module()


def kernels(module):
    """How many there are, but for those that put tables together."""
    tables = module.count(f'kernel_name = "{TABLE_KERNEL}"')
    return module.count("@tpu_custom_call(") - tables


def assert_three_kernels(module):
    assert kernels(module) == 3  # forward, by receiver, by sender
    assert "stablehlo.scatter" not in module


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("heads", "width", "extras"), [(8, 16, False), (8, 16, True), (3, 100, False), (1, 256, False)]
)
@pytest.mark.quick_every(5)
def test_forward_and_backward_lower(dtype, heads, width, extras):
    case = "dot_product, bias" if extras else "dot_product"
    assert_three_kernels(lowered(case, heads, width, dtype, 0.1 if extras else 0.0))


@pytest.mark.parametrize("case", FUSED_WITH_EDGES[1:])
@pytest.mark.parametrize(("heads", "width", "dtype"), [(8, 16, jnp.float32), (3, 70, jnp.bfloat16)])
@pytest.mark.quick_every(3)
def test_other_ops_lower(case, heads, width, dtype):
    assert_three_kernels(lowered(case, heads, width, dtype, 0.1))


def test_a_sum_without_weights_has_nothing_to_do_by_receiver():
    assert kernels(lowered("sum", 1, 128, jnp.float32, 0.0)) == 2
