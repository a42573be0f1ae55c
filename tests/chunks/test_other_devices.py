"""The programs of a chunk and of a block lower for GPUs and TPUs, which are not here.

What is lowered is what would run there: gathered tables, and edges in the forms of their kernels.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from gtjax.chunks import ArrayRows, ChunkedFunction, Edged, Given, Scratch, Sizes
from gtjax.chunks.ops import OpRun, op_of
from pallas_kernels.dot_product.gpu import GPU
from pallas_kernels.dot_product.tpu import TPU
from tests.chunks.small_graphs import NODES, awkward
from tests.kernels.test_export_gpu import _some_gpu as some_gpu
from tests.kernels.test_export_tpu import abstract_tpu

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def layer(shared, nodes, edges, neighbours):
    q_nhd, k_nhd, v_nhd = (nodes["x"] @ w for w in shared)
    by_head = (x.reshape(-1, 8, 16) for x in (q_nhd, k_nhd, v_nhd))
    return jnp.tanh(neighbours.attend(*by_head).reshape(-1, 128))


@pytest.mark.parametrize(("kernel", "platform"), [(GPU, "cuda"), (TPU, "tpu")])
def test_segments_and_ops_lower(kernel, platform):
    graph = awkward()
    sizes = Sizes(64, 64, 64, 256)
    edged = Edged(graph.by_receiver, graph.by_sender, sizes, Scratch(None, 1e12))
    degree_n = np.diff(graph.by_receiver.offsets).astype(np.float32)
    nodes = {"x": Given(ArrayRows(graph.x_nf), (6,)), "degree": Given(ArrayRows(degree_n))}
    weights = [np.ones((6, 128), np.float32)] * 3
    function = ChunkedFunction(layer, weights, nodes, {}, edged)
    calls = ("__gpu$xla.gpu.triton", "tpu_custom_call")
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in calls]

    def lower(program, *given):
        tpu = jax.sharding.use_abstract_mesh(abstract_tpu())
        with some_gpu() if platform == "cuda" else tpu:
            made = export.export(program, platforms=[platform], disabled_checks=checks)
            return made(*given).mlir_module()

    (before,), (after,) = function.plan.segments
    rows = [np.ones((64, 6), np.float32)]
    assert "dot" in lower(before.forward, weights, rows)
    out = [np.ones((64, 128), np.float32)]
    sums = [np.zeros((6, 128), np.float32)] * 3
    gradients = [np.ones((64, 128), np.float32)] * 3
    assert "dot" in lower(before.backward, weights, rows, gradients, sums)
    assert "tanh" in lower(after.forward, [], out)

    op = op_of(function.flow, 0, kernel)
    table = ArrayRows(np.ones((NODES, 128), np.float32))
    run = OpRun(op, [table] * 3, [], np.uint32(0), None, 0.0)
    blocks = edged.receivers
    far = run._far(op.sender, blocks)
    edges, leaves, _ = run._load(blocks.list[0], blocks, far, {0, 1, 2})
    assert "custom_call" in lower(op.forward, edges, leaves, np.uint32(0))
    lse = [np.ones((blocks.rows, 8), np.float32)]
    counts = (blocks.rows, far.count, blocks.list[0].capacity)
    rows = np.ones((blocks.rows, 128), np.float32)

    @jax.jit
    def backward(edges, leaves, rows, lse):
        return op.backward("receiver", counts, edges, leaves, rows, lse, rows, np.uint32(0), [])

    assert "custom_call" in lower(backward, edges, leaves, rows, lse)
