"""How a run is spread over devices; free of jax, so that `--help` is instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ParallelConfig:
    """Devices, and what each of them does."""

    strategy: Literal[
        "auto",
        "single",
        "node_all_gather",
        "node_halo",
        "node_ring",
        "feature_all_to_all",
        "node_by_feature",
        "isolated",
    ] = "auto"
    """Way of spreading attention; "auto" is what the planner finds to be the fastest that fits. All
    are exact but isolated, which leaves out the edges between parts in training."""
    devices: int | None = None
    """Devices to use, by default all accelerators or one CPU; on a CPU so many are simulated."""
    mesh: str | None = None
    """Devices along the axes of the mesh, such as "node=4,feature=2"; by default the strategy's."""
    inner: Literal["node_all_gather", "node_halo", "node_ring"] = "node_halo"
    """With node_by_feature: the strategy along the node axis."""
    exchange: Literal["rounds", "ragged"] = "rounds"
    """How halos travel: in rounds of messages, or on a TPU or GPU at once and without padding."""
    partitioner: str = "auto"
    """How nodes are shared out: "auto", "metis", "streaming", "contiguous" or "random"."""
    repartition: int = 10
    """With isolated: steps between draws of new parts; 0 keeps the same parts."""
    clusters: int = 8
    """With isolated: clusters that each draw deals out to a part."""
    coverage: Literal["none", "importance", "distance", "shrinkage"] = "importance"
    """With isolated: how gradients of parts are weighted by what their nodes see of the graph."""
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
        if self.repartition < 0:
            raise ValueError(f"repartition is not negative; found {self.repartition}")
        if self.clusters < 1:
            raise ValueError(f"clusters is at least 1; found {self.clusters}")
