"""`verify`: compiles the step that a plan chose, for hardware that need not be there.

The compilers of TPUs and GPUs run on any machine and say what memory a program takes, so a plan is
held to what will really be asked of the device, before one is rented. Needs the extra "aot". It
takes as long as compiling does: minutes for large graphs on TPUs.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from gtjax.batching.prepare import abstract_batch, prepare, whole_layout
from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS, Graph
from gtjax.planner import Plan
from gtjax.runs.abstract_step import Sizes
from gtjax.runs.config import TrainConfig
from gtjax.runs.planning import with_option
from gtjax.runs.program import Program
from gtjax.runs.step_cost import peak_bytes

MOST_EDGES = 50_000_000  # that a graph is drawn with where only numbers are known

# Before libtpu is loaded: compile only, without looking for a chip or for the machine's name.
COMPILE_ONLY = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
# Chips as libtpu names them, and the axes of their torus.
SLICES = {"tpu-v4": ("v4", 3), "tpu-v5e": ("v5e", 2), "tpu-v5p": ("v5p", 3)}
SLICES |= {"tpu-v6e": ("v6e", 2), "tpu-7x": ("tpu7x", 3)}


def verify(
    plan: Plan, graph: Graph | Sizes, config: TrainConfig, *, target: Path | None = None
) -> dict[str, Any]:
    """Compile the chosen step, and compare its memory with what the plan says."""
    if plan.chosen is None or plan.chosen.price is None:
        raise UserError("there is nothing to verify: no candidate fits")
    devices, name = described_devices(plan, target)
    drawn = config.prepared(_drawn(graph) if isinstance(graph, Sizes) else graph)
    config = with_option(config, plan.chosen.option)
    parallel = config.parallel
    if plan.supposed:  # a graph of the same numbers is drawn: any partition of it will do
        parallel = dataclasses.replace(parallel, partitioner="contiguous")
    config = dataclasses.replace(config, parallel=parallel, kernel=plan.kernel)
    program = Program(config, drawn, config.task_of(drawn), devices)
    host = prepare(drawn, program.settings)
    layout, partition = whole_layout(
        host, program.settings, program.spread, partition=plan.partition
    )
    batch = abstract_batch(host, layout, program.spread)
    started = time.perf_counter()
    try:
        compiled = program.compiled(program.abstract_state(), batch, 1)
    except Exception as error:  # the compiler's own kinds: it names what does not fit
        raise UserError(
            f"the chosen step does not compile for {name}: {str(error).strip().splitlines()[0]}"
        ) from error
    predicted, compiled_bytes = plan.chosen.price.peak_bytes, peak_bytes(compiled)
    return {
        "compiled_for": name,
        "compile_seconds": time.perf_counter() - started,
        "cut": partition.cut(host.edges).cut,
        "peak_bytes": compiled_bytes,
        "predicted_bytes": predicted,
        "ratio": compiled_bytes / predicted,
    }


def described_devices(plan: Plan, target: Path | None) -> tuple[Sequence[Any] | None, str]:
    """Devices of the plan's hardware, described to a compiler if they are not here."""
    hardware = plan.hardware
    if not hardware.preset:
        return None, f"{plan.devices} devices here ({hardware.device_kind})"
    from jax.experimental import topologies

    try:
        if hardware.platform == "tpu":
            for variable, value in COMPILE_ONLY.items():
                os.environ.setdefault(variable, value)
            name = slice_name(hardware.name, plan.devices)
            chips = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
            return chips[: plan.devices], name
        if target is None:
            raise UserError(
                "--verify for a GPU needs --target FILE: the device's description as XLA reads it "
                "(a GpuTargetConfigProto in text form)"
            )
        text = target.read_text(encoding="utf-8")
        shape = f"1x1x{plan.devices}"
        described = topologies.get_topology_desc(
            platform="cuda", target_config=text, topology=shape
        )
        return described.devices, f"{hardware.device_kind} x {plan.devices}"
    except OSError as error:
        raise UserError(f"--target {target}: cannot read: {error.strerror}") from error
    except (RuntimeError, ImportError, ValueError, jax.errors.JaxRuntimeError) as error:
        raise UserError(
            f"no compiler for {hardware.name} here ({str(error).splitlines()[0][:200]}). "
            'Install it with pip install "gtjax[aot]".'
        ) from error


def slice_name(preset: str, devices: int) -> str:
    """Such as v5e:4x8: as square as it goes, and no more chips than are needed."""
    chip, axes = SLICES[preset]
    if devices & (devices - 1) or devices < 2**axes:
        devices = max(2**axes, 1 << (devices - 1).bit_length())
    sides = [1] * axes
    left = devices
    while left > 1:  # doubles the shortest side
        sides[sides.index(min(sides))] *= 2
        left //= 2
    return f"{chip}:{'x'.join(map(str, sorted(sides)))}"


def _drawn(sizes: Sizes) -> Graph:
    if sizes.edges > MOST_EDGES:
        raise UserError(
            f"--verify draws a graph of these numbers, of at most {MOST_EDGES:,} edges; "
            f"found {sizes.edges:,}. Give a data set, or verify a smaller one."
        )
    return GENERATORS["uniform"](
        nodes=sizes.nodes, edges=sizes.edges, features=sizes.features, classes=sizes.classes
    )
