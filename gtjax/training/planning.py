"""`plan`: what to do with a graph, a model and some devices, before anything is placed on them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtjax.graph import Graph, UserError, log_gap
from gtjax.hardware import HardwareProfile, preset, read_profile
from gtjax.hardware.attention import share_of_busiest
from gtjax.hardware.measure import measured_profile, memory_capacity
from gtjax.nn import ModelConfig
from gtjax.partition import EvenCut
from gtjax.partition.metis import is_installed
from gtjax.partition.partitioners import MOST_METIS_EDGES, check_partitioner
from gtjax.planner import (
    REMATS,
    GraphCuts,
    Locality,
    ModelWork,
    Option,
    Plan,
    SupposedCuts,
    make_plan,
    options,
    refuse_what_does_not_fit,
)
from gtjax.planner.candidates import exchange_of
from gtjax.planner.choose import SAFE
from gtjax.planner.price import memory_bytes
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import available_devices, parse_mesh
from gtjax.strategies import STRATEGIES, MeshShape
from gtjax.training.config import TrainConfig
from gtjax.training.prepare import node_order, prepare_graph
from gtjax.training.step import model_shape
from gtjax.training.task import Task
from pallas_kernels.segment_attention.api import BACKENDS, backend_name

Progress = Callable[[float, str], None]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A graph of which only numbers are known."""

    nodes: int
    edges: int  # that messages flow along, each direction counted
    features: int = 128
    classes: int = 40
    edge_features: int = 0
    cut: float | None = None  # share of edges between parts, in as many parts as devices

    def __post_init__(self) -> None:
        for name in ("nodes", "edges"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is at least 1; found {getattr(self, name)}")
        if self.cut is not None and not 0 <= self.cut <= 1:
            raise UserError(f"--cut is a share of the edges in 0..1; found {self.cut}")


def plan(
    graph: Graph | Sizes,
    model: ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    hardware: HardwareProfile | None = None,
    progress: Progress = lambda done, text: None,
) -> Plan:
    """Price every way of training the model on the graph, and choose the fastest that fits.

    What `config.parallel` names is not varied: a strategy, a mesh, a partitioner. `hardware` is by
    default what `config.parallel.hardware` says, or else the devices that jax finds, measured once
    and then remembered.
    """
    config = config or TrainConfig()
    if model is not None:
        config = dataclasses.replace(config, model=model)
    parallel = config.parallel
    if hardware is None:
        hardware = hardware_of(parallel, lambda done, text: progress(0.6 * done, text))
    devices = _wanted(parallel) or hardware.devices
    work = model_work(config, graph)
    platform = hardware.platform
    choices = list(_options(config, devices, graph))
    if not choices:
        raise UserError(
            f"no candidate is a {parallel.strategy} on {parallel.mesh or f'{devices} devices'}: "
            "leave --strategy or --mesh out"
        )
    common: dict[str, Any] = {
        "kernel": kernel_for(config.kernel, platform),
        "memory_bytes": None if parallel.memory is None else parallel.memory * 2**30,
    }
    if isinstance(graph, Sizes):
        best, usual, worst = (
            SupposedCuts(graph.nodes, graph.edges, graph.cut, bend) for bend in (0.0, 0.5, 1.0)
        )
        return make_plan(choices, usual, work, hardware, bounds=(best, worst), **common)
    progress(0.6, "cutting the graph")
    edges = prepare_graph(graph, config.prepare)
    cuts = GraphCuts(edges, config.seed, lambda done, text: progress(0.6 + 0.3 * done, text))
    return make_plan(choices, cuts, work, hardware, locality=locality_of(edges, config), **common)


def is_planned(config: TrainConfig) -> bool:
    """Whether a run of this config asks the planner."""
    parallel = config.parallel
    return parallel.strategy == "auto" and available_devices(_wanted(parallel)) > 1


def decided(
    config: TrainConfig,
    graph: Graph,
    progress: Progress,
    hardware: HardwareProfile | None = None,
) -> tuple[TrainConfig, Plan | None]:
    """The config with everything that was left to the planner decided; refuses what cannot fit.

    On one device there is nothing to choose but how much to keep for the backward pass.
    """
    if is_planned(config):
        made = plan(graph, config=config, hardware=hardware, progress=progress)
        refuse_what_does_not_fit(made)
        assert made.chosen is not None
        return with_option(config, made.chosen.option), made
    if config.parallel.strategy in ("auto", "single"):
        return _on_one_device(config, graph), None
    return config, None


def _on_one_device(config: TrainConfig, graph: Graph) -> TrainConfig:
    """Recompute whole blocks where keeping more does not fit; refuse where that does not either."""
    model, memory = config.model, config.parallel.memory
    try:
        capacity = SAFE * memory_capacity(jax.devices()[:1]) if memory is None else memory * 2**30
    except UserError:  # a device that does not say; it will when it is full
        return config
    work = model_work(config, graph)
    # Edges are counted before they are made symmetric: at most twice as many, and a loop a node.
    both = 2 if config.prepare.symmetrise else 1
    cut = EvenCut(1, graph.num_nodes, both * graph.num_edges + graph.num_nodes, 0.0, 0.0)
    remats = ("elementwise", "block") if model.remat == "auto" else (model.remat,)
    settings = (STRATEGIES["single"], cut, work, MeshShape())
    platform = jax.default_backend()
    needed = {remat: memory_bytes(*settings, remat, platform)[0] for remat in remats}
    for remat, peak in needed.items():
        if peak <= capacity and remat == remats[0]:  # which is also what "auto" does unplanned
            return config
        if peak <= capacity:
            return dataclasses.replace(config, model=dataclasses.replace(model, remat=remat))
    least = min(needed.values())
    raise UserError(
        f"this step does not fit in {capacity / 2**30:.3g} GiB: it needs about "
        f"{least / 2**30:.3g}. Use about {math.ceil(least / capacity)} devices (--devices), or a "
        f"smaller --model.hidden or --model.layers; --memory says how much there is, if that is "
        f"wrong."
    )


def with_option(config: TrainConfig, option: Option) -> TrainConfig:
    """The config of a run that does just this."""
    mesh = f"node={option.mesh.node},feature={option.mesh.feature}"
    parallel = dataclasses.replace(
        config.parallel,
        strategy=option.strategy.name,
        devices=option.mesh.devices,
        mesh=mesh,
        inner=option.inner or config.parallel.inner,
        exchange=exchange_of(option.strategy),
        partitioner=option.partitioner,
    )
    model = dataclasses.replace(config.model, remat=option.remat)
    return dataclasses.replace(config, parallel=parallel, model=model)


def hardware_of(parallel: ParallelConfig, progress: Progress) -> HardwareProfile:
    """The profile that is named: of the devices here, of a file, or a preset."""
    name = parallel.hardware
    if name is None:
        count = available_devices(_wanted(parallel))
        return measured_profile(jax.devices()[:count], progress=progress)
    if Path(name).suffix == ".json" or Path(name).exists():
        return read_profile(name)
    return preset(name)


def _wanted(parallel: ParallelConfig) -> int | None:
    return parallel.devices if parallel.mesh is None else parse_mesh(parallel.mesh).devices


def kernel_for(kernel: str, platform: str) -> str:
    """The attention back end on such devices, which need not be here."""
    if kernel == "auto" and platform != jax.default_backend():
        return next(name for name, b in BACKENDS.items() if platform in b.platforms)
    return backend_name(kernel, platform)


def _options(config: TrainConfig, devices: int, graph: Graph | Sizes) -> Any:
    parallel, model = config.parallel, config.model
    remats = REMATS if model.remat == "auto" else (model.remat,)
    if model.architecture == "decoupled":  # which recomputes nothing, whatever it is told
        remats = ("elementwise" if model.remat == "auto" else model.remat,)
    # Between plans that are as fast and move as much, the first wins.
    remats = tuple(sorted(remats, key=("elementwise", "none", "block").index))
    check_partitioner(parallel.partitioner)
    partitioners = (parallel.partitioner,)
    if isinstance(graph, Sizes):
        partitioners = ("supposed",)
    elif parallel.partitioner == "auto":
        able = is_installed() and graph.num_edges <= MOST_METIS_EDGES
        partitioners = (*(("metis",) if able else ()), "streaming", "contiguous")
    strategies = None if parallel.strategy == "auto" else (parallel.strategy,)
    mesh = None if parallel.mesh is None else parse_mesh(parallel.mesh)
    for option in options(devices, partitioners, remats, strategies, exchange=parallel.exchange):
        if mesh is None or option.mesh == mesh:
            yield option


def model_work(config: TrainConfig, graph: Graph | Sizes) -> ModelWork:
    """What the planner has to know of the model and its inputs."""
    model = config.model
    if isinstance(graph, Sizes):
        features, classes, edge_features = graph.features, graph.classes, graph.edge_features
        feature_bytes, multilabel = 4, False
    else:
        features, edge_features = graph.num_features, graph.num_edge_features
        classes = Task.of(graph, config.metric).num_classes
        feature_bytes, multilabel = graph.x_nf.dtype.itemsize, graph.is_multilabel
    return ModelWork(
        shape=model_shape(model, edge_features),
        features=features,
        classes=classes,
        wide=round(model.hidden * model.feed_forward),
        feature_bytes=min(4, feature_bytes),
        edge_features=edge_features,
        positional=model.positional_size if model.positional != "none" else 0,
        label_input=model.label_input,
        multilabel=multilabel,
        global_attention=model.global_attention,
        decoupled=model.architecture == "decoupled",
        norm=model.norm,
        dropout=model.dropout > 0,
        averages=config.optim.average > 0,
    )


def locality_of(edges: Graph, config: TrainConfig) -> Locality:
    """How far apart attention reads, in the order that training puts the nodes in."""
    order_n = node_order(edges, config.prepare, config.model)
    degrees_n = np.bincount(edges.senders_e, minlength=edges.num_nodes)
    return Locality(2.0 ** log_gap(edges, order_n), share_of_busiest(degrees_n))
