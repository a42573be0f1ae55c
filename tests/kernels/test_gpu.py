"""The GPU back end picks sizes that Triton takes, and says where it cannot run."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import DOT_PRODUCT, build_edges
from pallas_kernels.dot_product.gpu import GPU
from pallas_kernels.passes.gpu import block_sizes


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("warps", [1, 4])
def test_every_shape_of_heads_fits_a_program(dtype, warps):
    for heads in (1, 3, 8, 12, 64):
        for width in (1, 7, 8, 10, 16, 64, 100, 255, 256, 512, 1000, 1024):
            block = block_sizes(heads, width, dtype, warps)
            sizes = (block.pieces, block.heads, block.width, block.warps)
            assert all(size >= 1 and size & (size - 1) == 0 for size in sizes)
            assert block.width >= width
            assert block.heads < 2 * heads
            channels_of_thread = block.pieces * block.heads * block.width / (32 * block.warps)
            assert 1 <= channels_of_thread <= 8  # more of them would not stay in registers


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (SimpleNamespace(compute_capability="9.0"), None),
        (SimpleNamespace(compute_capability="7.0"), "capability 8.0 and up; this one has 7.0"),
        (SimpleNamespace(compute_capability="gfx942", device_kind="MI300"), "this is MI300"),
    ],
)
def test_auto_takes_it_on_the_gpus_it_is_for(device, reason, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert DOT_PRODUCT.kernel().name == ("xla" if reason else "gpu")
    if reason:
        with pytest.raises(ValueError, match=reason):
            DOT_PRODUCT.kernel("gpu")


def test_without_pallas_triton_auto_takes_xla(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("pallas_kernels.passes.gpu.triton", None)
    assert DOT_PRODUCT.kernel().name == "xla"


def test_it_asks_for_the_layout_that_it_lacks():
    ones = np.ones((1, 1, 8), np.float32)
    node = np.zeros(1, np.int32)
    edges = build_edges(node, node, num_senders=1, num_receivers=1, forms=["tiles"])
    with pytest.raises(ValueError, match="works on pieces"):
        GPU.forward(DOT_PRODUCT, ones, (ones, ones), None, edges, None, None)
