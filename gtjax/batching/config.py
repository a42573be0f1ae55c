"""What a step sees, as it is configured; free of jax, so that `--help` is instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from gtjax.batching.features import Scaling
from gtjax.sharding.config import ParallelConfig


@dataclass(frozen=True)
class PrepareConfig:
    """What is done to the graph before training."""

    symmetrise: bool = True
    """Let messages flow both ways along every edge."""
    reverse: Literal["auto", "same", "opposite"] = "auto"
    """Edge features of the reverse edges that are added: those of the edge, or of "opposite" sign,
    which gives each edge type a type for the way back. "auto" is opposite for models that tell the
    two apart (relational), and the same for all others."""
    self_loops: bool = True
    """Let every node attend to itself."""
    features: Literal["auto", "none", "row", "standard"] = "auto"
    """Scale each row to sum 1 ("row"), or each column to zero mean and unit variance ("standard").
    "auto" takes "row" for mostly zero, non-negative features such as bags of words."""
    reorder: Literal["auto", "always", "never"] = "auto"
    """Let neighbours stand close together in memory, for speed: "auto" does where the graph is too
    large for a cache. What comes out is in the graph's own order all the same."""
    sparse: Literal["auto", "always", "never"] = "auto"
    """Multiply node features that are mostly zero, such as bags of words, without their zeros:
    the same numbers in less time and memory. "auto" does where it is faster, with --batching full
    and a model that can ("standard" features are never zero)."""


BY_SIZE = ("graphs", "neighbours", "clusters")  # ways of batching that have a batch_size


@dataclass(frozen=True)
class BatchesConfig:
    """What a training step sees of the graph."""

    batching: str = "full"
    """ "full": all of it. "clusters": each device its clusters, without the edges between devices,
    so that nothing but gradients travels; approximate, evaluation stays exact. "graphs": some of
    many graphs, whole. "neighbours": some training nodes, and of their neighbourhoods what they
    draw; approximate, evaluation stays exact. "chunks": all of it, a chunk at a time with the rest
    on disk; exact."""
    batch_size: int | None = None
    """With graphs: how many of the training graphs a step sees; 128 unless said otherwise. With
    neighbours: how many training nodes it asks, over all devices; 1024 unless said otherwise. With
    clusters: how many of them it sees, over all devices; all unless said otherwise."""
    fan_out: str = "10"
    """With neighbours: how many in-edges a node draws, "15,10,5" hop by hop from the nodes that are
    asked, one a layer; "all" takes every edge; one number is for every layer."""
    sampler_threads: int | None = None
    """With neighbours: threads that draw batches; 2 unless said otherwise."""
    prefetch: int = 2
    """With neighbours and graphs: batches that are made ahead, while the devices compute."""
    cache: Literal["scored", "degree", "lru"] = "scored"
    """With neighbours: which rows of features are kept in memory, where they are read from a file:
    "scored" learns which are asked for, "degree" keeps hubs, "lru" what was asked for last."""
    cache_rows: int | None = None
    """With neighbours: how many of them; unless said otherwise as many as find 90 % of what some
    batches ask for, within a quarter of the memory."""
    repartition: int = 10
    """With clusters: steps between draws of new parts; 0 keeps the same parts."""
    clusters: int = 8
    """With clusters: into how many times the devices the graph is cut; without a batch_size each
    draw deals out so many to a device."""
    coverage: Literal["none", "importance", "distance", "shrinkage"] = "importance"
    """With clusters: how gradients of parts are weighted by what their nodes see of the graph."""

    scratch: str | None = None
    """With chunks: folder for what does not fit in --memory, emptied at the end; by default the
    system's temporary folder."""

    @property
    def is_drawn_every_step(self) -> bool:
        """Whether every step has a batch, and a dispatch, of its own."""
        return self.batching == "neighbours" or self.batch_size is not None

    def __post_init__(self) -> None:
        if self.repartition < 0:
            raise ValueError(f"repartition is not negative; found {self.repartition}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is at least 1; found {self.batch_size}")
        if self.batch_size is not None and self.batching not in BY_SIZE:
            raise ValueError(
                f"batch_size goes with --batching {' or '.join(BY_SIZE)} alone; --batching is "
                f"{self.batching}"
            )
        for each in self.fan_out.split(","):
            if each != "all" and not (each.isdecimal() and int(each) > 0):
                raise ValueError(
                    f'fan_out is positive numbers or "all", as in 15,10,5; found {self.fan_out!r}'
                )
        if self.sampler_threads is not None and self.sampler_threads < 1:
            raise ValueError(f"sampler_threads is at least 1; found {self.sampler_threads}")
        if self.cache_rows is not None and self.cache_rows < 0:
            raise ValueError(f"cache_rows is not negative; found {self.cache_rows}")
        if self.prefetch < 0:
            raise ValueError(f"prefetch is not negative; found {self.prefetch}")
        if self.clusters < 1:
            raise ValueError(f"clusters is at least 1; found {self.clusters}")


@dataclass(frozen=True)
class BatchingSettings:
    """All that batches depend on, of the configuration of a run; see `TrainConfig.batching`."""

    hidden: int
    """Width of the model: how much is gathered along edges, and whether order matters."""
    layers: int | None = None
    """How far a node sees: ops along edges one after the other; None where nobody knows."""
    positional: str = "none"
    """Encoding of positions that the model reads, or "none"."""
    positional_size: int = 0
    """Columns of it."""
    forms: tuple[Any, ...] = ()
    """Forms of the edges that the kernels of the model's ops work on."""
    sparse_forms: tuple[Any, ...] | None = None
    """Forms of sparse features that the model's first layer works on; None: it reads arrays."""
    label_input: bool = False
    """Whether the model reads known labels."""
    task: str = ""
    """What is asked of the graph, in words that differ where its targets do."""
    targets: Callable[[Any], dict[str, Any]] = lambda graph: {}
    """Arrays of a graph that this task asks for (`Task.targets`)."""
    scaling: Scaling | None = None
    """Of the features, as fitted in training; None: fitted on the graph at hand."""
    seed: int = 0
    """Seed of partitions."""
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    batches: BatchesConfig = field(default_factory=BatchesConfig)
