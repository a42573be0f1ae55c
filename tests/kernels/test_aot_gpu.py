"""The GPU kernels compile to machine code that spills nothing and has no atomics; XLA's way too.

For A100 and H100, without either: by XLA's compiler and NVIDIA's assembler, which the extra
`gtjax[aot]` brings. Whether they are fast, and right on the device itself, this cannot say.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = ("jax_cuda12_plugin", "nvidia.cuda_nvcc", "absl")
SHAPES = ("8x16", "8x8", "4x64", "1x256", "2x100", "6x24", "1x512", "1x1024")
ATTENTION = ("dot_product", "dot_product, bias")
# GATv2 with rows of edges is left out: it spills up to 24 bytes in some shapes.
OTHERS = ("gat", "gat, bias", "gatv2", "sum", "sum, weights")
# Machine instructions in a loop over two edges of 8 heads of 16 in float32: at most so many.
LOOPS = {"forward": 90, "receivers": 96, "senders": 120}


# GAT's scores with a bias, on an H100: four registers too many, where 64 are the most.
KNOWN_SPILLS = {("sm_90a", "bfloat16", "gat, bias", "8x16", "senders"): 16}


def missing():
    def found(module):
        package = module.split(".")[0]  # find_spec imports it, so it must be there
        return importlib.util.find_spec(package) and importlib.util.find_spec(module)

    return [module for module in NEEDED if not found(module)]


pytestmark = [
    pytest.mark.aot,
    pytest.mark.skipif(bool(missing()), reason=f"needs gtjax[aot]: {missing()} not installed"),
]


@pytest.mark.parametrize(
    ("ops", "shapes"),
    [
        pytest.param(ATTENTION, SHAPES, id="attention"),
        pytest.param(OTHERS, ("8x16", "1x256", "2x100"), id="others"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_kernels_stay_in_registers_and_use_no_atomics(architecture, dtype, ops, shapes):
    command = [sys.executable, "-m", "tests.kernels.gpu_compiler", architecture, dtype]
    run = subprocess.run(
        [*command, *shapes, *ops],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert set(report) == set(ops)
    for case in ops:
        assert set(report[case]) == set(shapes)
        for shape, kernels in report[case].items():
            # Three passes: pieces, merging. A sum has no rows of receivers.
            expected = {"sum": 4, "sum, weights": 5}.get(case, 6)
            assert len(kernels) == expected, (case, shape, list(kernels))
            for name, kernel in kernels.items():
                where = (case, shape, name, kernel)
                known = KNOWN_SPILLS.get((architecture, dtype, case, shape, name), 0)
                assert kernel["spilled bytes"] <= known, where
                assert kernel["atomics"] == 0, where
                assert kernel["registers"] <= 128, where  # 16 warps on a multiprocessor, or more
            if (case, shape, dtype) == ("dot_product", "8x16", "float32"):
                for name, most in LOOPS.items():
                    assert kernels[name]["loops"][0] <= most, (name, kernels[name])
            if shape in ("8x16", "8x8", "4x64", "1x256") and case in ATTENTION:
                # Rows of both ends of an edge, for each of the two that are in flight
                assert all(kernels[name]["wide loads"] >= 4 for name in ("forward", "senders"))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_what_runs_without_the_kernels_compiles_soon_and_takes_little_memory(architecture):
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.gpu_fallback", architecture],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found = {each["program"]: each for each in map(json.loads, run.stdout.splitlines())}
    assert found["attention"]["seconds"] < 20
    assert found["propagation"]["seconds"] < 40  # weights, rounds forward and backward
    assert found["attention"]["temporary"] < 100 * 2**20
    # At 99 million edges: a few numbers a head of every node, and nothing of the size of its row.
    assert found["attention, larger"]["temporary"] < 2**30
    assert found["attention, larger, more nodes"]["temporary"] < 1.2 * 2**30
