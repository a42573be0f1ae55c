"""Kernels lower for their devices on any machine: no device and no compiler of its maker needed.

Lowering finds wrong block shapes and operations that a device does not have; layouts, spills and
memory are found by compiling (`test_aot_tpu.py`).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractDevice, AbstractMesh

from pallas_kernels.segment_attention import BACKENDS, Dropout, build_edges, segment_attention
from tests.kernels.oracle import awkward_graphs

GRAPHS = awkward_graphs()


def abstract_tpu() -> AbstractMesh:
    """Tells Pallas which chip to lower for: v5e."""
    return AbstractMesh((1,), ("x",), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))


# Back end, platform to export for, what stands for its device, calls that the export may contain.
KERNELS = [pytest.param("tpu", "tpu", abstract_tpu, ["tpu_custom_call"], id="tpu")]


@pytest.mark.parametrize(("name", "platform", "mesh", "targets"), KERNELS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("heads", "width", "extras"), [(8, 16, False), (8, 16, True), (3, 100, False), (1, 256, False)]
)
def test_forward_and_backward_lower(name, platform, mesh, targets, dtype, heads, width, extras):
    senders, receivers, nodes = GRAPHS["hub receives half of all edges"]
    backend = BACKENDS[name]
    edges = build_edges(
        senders, receivers, num_senders=nodes, num_receivers=nodes, layouts=backend.layouts
    )

    def both(q, k, v, bias, dout, edges, seed):
        dropout = Dropout(0.1, seed) if extras else None
        attend = partial(segment_attention, edges=edges, dropout=dropout, kernel=backend)
        out, pullback = jax.vjp(lambda q, k, v, b: attend(q, k, v, bias_eh=b), q, k, v, bias)
        return out, pullback(dout)

    x = jax.ShapeDtypeStruct((nodes, heads, width), dtype)
    bias = jax.ShapeDtypeStruct((len(senders), heads), jnp.float32) if extras else None
    arguments = (x, x, x, bias, x, edges, np.uint32(0))
    with jax.sharding.use_abstract_mesh(mesh()):
        checks = [export.DisabledSafetyCheck.custom_call(target) for target in targets]
        exported = export.export(jax.jit(both), platforms=[platform], disabled_checks=checks)(
            *arguments
        )
    module = exported.mlir_module()
    assert sum(module.count(f"@{target}(") for target in targets) == 3  # forward, dQ, dK and dV
    assert "stablehlo.scatter" not in module
    shapes = [out.shape for out in exported.out_avals]
    assert shapes[:4] == [(nodes, heads, width)] * 4
