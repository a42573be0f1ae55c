"""How a run is spread over devices; free of jax, so that `--help` is instant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from gtjax.core.errors import UserError

MOST_SIMULATED = 64  # devices of one processor: more take minutes to start, and teach nothing


@dataclass(frozen=True)
class ParallelConfig:
    """Devices, and what each of them does."""

    strategy: str = "auto"
    """How rows reach the devices that need them: "single", "node_all_gather", "node_halo",
    "node_ring", "feature_all_to_all" or "node_by_feature"; "auto" is what the planner finds to be
    the fastest that fits. All give the gradients of one device. "isolated" is short for
    --batching clusters."""
    devices: int | None = None
    """Devices to use, by default all accelerators or one CPU; on a CPU so many are simulated."""
    mesh: str | None = None
    """Devices along the axes of the mesh, such as "node=4,feature=2"; by default the strategy's."""
    inner: Literal["node_all_gather", "node_halo", "node_ring"] = "node_halo"
    """With node_by_feature: the strategy along the node axis."""
    exchange: Literal["rounds", "ragged"] = "rounds"
    """How halos travel: in rounds of messages, or on a TPU or GPU at once and without padding."""
    partitioner: str = "auto"
    """How nodes are shared out: "auto", "metis", "streaming", "contiguous" or "random"; or a
    folder that `gtjax partition --out` wrote, as in ./parts."""
    wire: str = "plain"
    """The form of rows on their way: "plain", or "int8", which is a quarter of the bytes and
    approximate."""
    hardware: str | None = None
    """What the planner plans for: a preset or the file of a profile; by default the devices here,
    measured once."""
    memory: float | None = None
    """GiB that each device may use; by default nine tenths of what it has."""
    replan: bool = False
    """With auto: if steps take 1.5 times as long as planned, try the runner-up; keep the faster."""

    def __post_init__(self) -> None:
        if self.devices is not None and self.devices < 1:
            raise ValueError(f"devices is at least 1; found {self.devices}")
        if self.memory is not None and self.memory <= 0:
            raise ValueError(f"memory is positive; found {self.memory}")


def check_simulated(count: int, option: str) -> None:
    """Refuse to simulate more devices than is sensible, unless jax itself was told to."""
    flags = os.environ.get("XLA_FLAGS", "")
    told = "JAX_NUM_CPU_DEVICES" in os.environ or "force_host_platform_device_count" in flags
    if count > MOST_SIMULATED and not told:
        raise UserError(
            f"{option} simulates at most {MOST_SIMULATED} devices on a CPU; found {count}. Use "
            f"fewer; plan for devices that are not here with gtjax plan --hardware NAME; or set "
            f"JAX_NUM_CPU_DEVICES={count} to simulate so many all the same."
        )
