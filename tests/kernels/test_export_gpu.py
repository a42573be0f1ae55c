"""The GPU kernels lower to Triton on a machine without a GPU, forward and backward.

Lowering finds primitives and block shapes that Triton does not take. It does not find what the
compiler makes of them: that is `test_aot_gpu.py`.
"""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax._src.mesh import AbstractDevice

from pallas_kernels import build_edges, segment_attention
from pallas_kernels.dot_product.gpu import GPU
from tests.kernels.op_programs import FUSED_WITH_EDGES, both_passes, row_shapes

KERNELS = ("forward", "receivers", "senders")


def edges_with_hubs(nodes=301, count=4000, hubs=True):
    rng = np.random.default_rng(0)
    senders, receivers = rng.integers(0, nodes, (2, count))
    if hubs:
        senders[:1000], receivers[-1000:] = 3, 5
    order = np.argsort(receivers, kind="stable")
    return build_edges(
        senders[order],
        receivers[order],
        num_senders=nodes,
        num_receivers=nodes,
        forms=GPU.needs,
    )


def lowered(case, heads, width, dtype, edges, rate=0.3):
    """The whole op and its gradients as StableHLO for a GPU."""
    nodes = len(edges.offsets_r) - 1
    rows = row_shapes(case, nodes, edges.num_edges, heads, width, dtype)
    call = export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")
    step = jax.jit(both_passes(case, "gpu", rate))
    with _some_gpu():
        exporter = export.export(step, platforms=["cuda"], disabled_checks=[call])
        return exporter(rows, edges).mlir_module()


def _some_gpu() -> contextlib.AbstractContextManager:
    """jax 0.12 wants to know for which GPU; 0.10 takes one of its own accord."""
    if jax.__version_info__ < (0, 12):
        return contextlib.nullcontext()
    device = AbstractDevice("NVIDIA H100 80GB HBM3", 1, "cuda")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def assert_two_launches_a_pass(module, kernels=KERNELS):
    for kernel in kernels:
        for name in (kernel, f"{kernel}_merge"):
            assert module.count(f'name = "{name}"') == 1, name
    assert "scatter" not in module


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(("heads", "width"), [(8, 16), (3, 10), (1, 256)])
@pytest.mark.quick_every(3)
def test_forward_and_backward_lower_to_a_launch_for_pieces_and_one_for_hubs(heads, width, dtype):
    module = lowered("dot_product, bias", heads, width, dtype, edges_with_hubs())
    assert_two_launches_a_pass(module)


@pytest.mark.parametrize("case", FUSED_WITH_EDGES[1:])
@pytest.mark.parametrize(("heads", "width", "dtype"), [(8, 16, jnp.float32), (3, 10, jnp.bfloat16)])
@pytest.mark.quick_every(3)
def test_other_ops_lower(case, heads, width, dtype):
    module = lowered(case, heads, width, dtype, edges_with_hubs())
    kernels = ("forward", "senders") if case.startswith("sum") else KERNELS
    assert_two_launches_a_pass(module, kernels)
    if case.startswith("sum"):  # the gradient of weights has no rows to merge
        assert module.count('name = "receivers') == 1


def test_shard_map_knows_over_which_axis_its_results_vary():
    nodes, edges = 301, edges_with_hubs()
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.sharding.AbstractMesh((2,), ("node",), axis_types=auto)

    def attend(q, k, v, edges):
        return segment_attention(q, k, v, edges, kernel=GPU)

    by_node, whole = jax.sharding.PartitionSpec("node"), jax.sharding.PartitionSpec()
    sharded = jax.shard_map(
        attend, mesh=mesh, in_specs=(by_node, by_node, by_node, whole), out_specs=by_node
    )
    row = jax.ShapeDtypeStruct((2 * nodes, 4, 8), jnp.float32)
    assert jax.eval_shape(sharded, row, row, row, edges).shape == row.shape


def test_without_hubs_there_is_one_launch_a_pass():
    module = lowered("dot_product", 8, 16, jnp.float32, edges_with_hubs(hubs=False), rate=0.0)
    assert [module.count(f'name = "{name}') for name in KERNELS] == [1, 1, 1]
