"""`plan`: what to do with a graph, a model and some devices, before anything is placed on them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gtjax.batching.prepare import MessageEdges, check_stored, message_edges
from gtjax.batching.row_cache import advised_rows, memory_bytes
from gtjax.batching.table import BATCHINGS
from gtjax.core.errors import UserError, one_of
from gtjax.core.progress import Progress, ignore_progress
from gtjax.datasets import load
from gtjax.graph import Graph, StoredGraph, log_gap, required_graph
from gtjax.hardware import HardwareProfile, preset, read_profile
from gtjax.hardware.measure import (
    known_profile,
    measured_profile,
    measuring_notice,
    memory_capacity,
)
from gtjax.hardware.ops import share_of_busiest
from gtjax.nn import config as configs
from gtjax.nn.config import setting_of
from gtjax.partition import EvenCut
from gtjax.partition.metis import is_installed
from gtjax.partition.partitioners import MOST_METIS_EDGES, check_partitioner
from gtjax.partition.store import is_stored_partition, open_partition
from gtjax.planner import (
    GraphCuts,
    Locality,
    Option,
    Plan,
    SupposedCuts,
    Work,
    make_plan,
    memory_of,
    one_device_seconds,
    options,
    refuse_what_does_not_fit,
)
from gtjax.planner.beyond import LEAST_CHUNKS, CacheAdvice, Way, chunks_way, told, ways
from gtjax.planner.candidates import exchange_of
from gtjax.planner.choose import SAFE
from gtjax.runs.abstract_step import Sizes, work_of
from gtjax.runs.config import TrainConfig, checked_config, with_model
from gtjax.runs.program import couples_nodes
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.kernels import kernels_in_use
from gtjax.sharding.mesh import available_devices, parse_mesh
from gtjax.strategies import STRATEGIES, MeshShape

SUPPOSED = "supposed"  # the partitioner of a graph of which only the sizes are known
# Between plans that are as fast and move as much, the first wins.
REMATS = ("elementwise", "none", "block")


def plan(
    graph: Graph | StoredGraph | Sizes | str | Path,
    model: Any = None,
    config: TrainConfig | None = None,
    *,
    hardware: HardwareProfile | None = None,
    progress: Progress = ignore_progress,
) -> Plan:
    """Price every way of training the model on the graph, and choose the fastest that fits.

    A name or a path is loaded (`gtjax.load`). What `config.parallel` names is not varied: a
    strategy, a mesh, a partitioner. `hardware` is by default what `config.parallel.hardware` says,
    or else the devices that jax finds, measured once and then remembered.
    """
    config = checked_config(config)
    if model is not None:
        config = with_model(config, model)
    if isinstance(graph, str | Path):
        graph = load(graph, split=config.split)
    if isinstance(graph, StoredGraph):
        check_stored(graph, config.preparation)
    known = graph if isinstance(graph, Sizes) else config.prepared(required_graph(graph, "plan"))
    return _plan(known, config, hardware, progress)


def _plan(
    graph: Graph | Sizes,
    config: TrainConfig,
    hardware: HardwareProfile | None,
    progress: Progress,
) -> Plan:
    parallel = config.parallel
    if hardware is None:
        hardware = hardware_of(parallel, lambda done, text: progress(0.6 * done, text))
    devices = _wanted(parallel) or hardware.devices
    works = works_of(config, graph, hardware.platform)
    choices = list(_options(config, devices, graph))
    if not choices:
        raise UserError(
            f"no candidate is a {parallel.strategy} on {parallel.mesh or f'{devices} devices'}: "
            "leave --strategy or --mesh out"
        )
    common: dict[str, Any] = {
        "kernel": config.kernel,
        "memory_bytes": None if parallel.memory is None else parallel.memory * 2**30,
    }
    if isinstance(graph, Sizes):
        best, usual, worst = (
            SupposedCuts(graph.nodes, graph.edges, graph.cut, bend) for bend in (0.0, 0.5, 1.0)
        )
        made = make_plan(choices, usual, works, hardware, bounds=(best, worst), **common)
        refused = _no_chunks(config)
        return _beside_one(made, works, graph.nodes, graph.edges, chunks_refused=refused)
    progress(0.6, "cutting the graph")
    prepared = message_edges(graph, config.preparation, setting_of(config.model, "hidden"))
    cuts = GraphCuts(
        prepared.edges, config.seed, lambda done, text: progress(0.6 + 0.3 * done, text)
    )
    locality = locality_of(prepared)
    common |= {"locality": locality, "prepared": prepared}
    made = make_plan(choices, cuts, works, hardware, **common)
    nodes, edges = prepared.edges.num_nodes, prepared.edges.num_edges
    cache = cache_advice(prepared.edges) if made.chosen is None else None
    return _beside_one(made, works, nodes, edges, locality, _no_chunks(config), cache)


def _no_chunks(config: TrainConfig) -> str | None:
    """Why a step of this config cannot run in chunks, as far as its settings tell."""
    return couples_nodes(config.model)


def _beside_one(
    made: Plan,
    works: dict[str, Work],
    nodes: int,
    edges: int,
    locality: Locality | None = None,
    chunks_refused: str | None = None,
    cache: CacheAdvice | None = None,
) -> Plan:
    """The plan, and what one device would take, where it is for more."""
    if made.chosen is None:
        found = ways(
            works,
            nodes,
            edges,
            made.hardware,
            made.memory_bytes,
            platform=made.hardware.platform,
            devices=made.devices,
            kernel=made.kernel,
            locality=locality,
            chunks_refused=chunks_refused,
            cache=cache,
        )
        made = dataclasses.replace(made, beyond=tuple(found))
    if made.devices == 1:
        return made
    capacity, kernel = made.memory_bytes, made.kernel
    alone = one_device_seconds(
        nodes, edges, works, made.hardware, capacity=capacity, kernel=kernel, locality=locality
    )
    return dataclasses.replace(made, one_device_seconds=alone)


def cache_advice(graph: Graph) -> CacheAdvice | None:
    """How many rows sampled batches should keep: a node is drawn as often as edges leave it."""
    row_bytes, degrees_n = 4 * graph.num_features, np.diff(graph.by_sender.offsets)
    rows = advised_rows(degrees_n, row_bytes, memory_bytes() // 4) if row_bytes else 0
    if not rows:
        return None
    most = np.partition(degrees_n, len(degrees_n) - rows)[len(degrees_n) - rows :]
    return CacheAdvice(rows, row_bytes, float(most.sum() / degrees_n.sum()))


def remats_of(config: TrainConfig) -> tuple[str, ...]:
    """What a plan may choose of, the first by preference: what the model leaves open."""
    asked = setting_of(config.model, "remat")
    return REMATS if asked == "auto" else (asked,)


def works_of(config: TrainConfig, graph: Graph | Sizes, platform: str) -> dict[str, Work]:
    """What a step does, for every rematerialisation that a plan may choose."""
    return {
        remat: work_of(with_remat(config, remat), graph, platform) for remat in remats_of(config)
    }


def is_planned(config: TrainConfig) -> bool:
    """Whether a run of this config asks the planner."""
    parallel = config.parallel
    batching = one_of(BATCHINGS, config.batches.batching, "--batching")
    if not batching.sees_all or batching.name == "chunks":
        return False  # a step needs no transport, and evaluation any
    return parallel.strategy == "auto" and available_devices(_wanted(parallel)) > 1


def decided(
    config: TrainConfig,
    graph: Graph,
    progress: Progress,
    hardware: HardwareProfile | None = None,
    made: Plan | None = None,
) -> tuple[TrainConfig, Plan | None]:
    """The config with everything that was left to the planner decided; refuses what cannot fit.

    On one device there is nothing to choose but how much to keep for the backward pass. `made` is
    a plan that is followed instead of making one.
    """
    kernels_in_use(config.kernel)  # refuses a name that stands for none
    if made is not None and made.prepared and made.prepared.graph != graph.fingerprint:
        raise UserError(
            f"this plan was made for another graph than {graph.name}: make one for it with "
            "gtjax.plan, or leave plan= out"
        )
    if made is None and is_planned(config):
        made = plan(graph, config=config, hardware=hardware, progress=progress)
    if made is not None:
        refuse_what_does_not_fit(made)
        assert made.chosen is not None
        return with_option(config, made.chosen.option), made
    batching = BATCHINGS[config.batches.batching]
    in_chunks = isinstance(graph, StoredGraph) or config.parallel.memory is not None
    if batching.name == "chunks" or (batching.reads_stored and in_chunks):
        return config, None  # what does not fit is on disk
    if config.parallel.strategy in ("auto", "single"):
        return _on_one_device(config, graph), None
    return config, None


def fits_side_by_side(config: TrainConfig, graph: Graph, share: float = 1.0) -> bool:
    """Whether steps of all seeds at once fit in a share of one device: about so many times one."""
    capacity = _capacity(config)
    if capacity is None:
        return True
    if _is_far_smaller(config, graph, share * capacity / config.seeds):
        return True
    return config.seeds * _needed(config, graph, remats_of(config)[0]) < share * capacity


def _is_far_smaller(config: TrainConfig, graph: Graph, capacity: float) -> bool:
    """Whether a step of one of our models surely fits: to trace it takes a second or two."""
    model = config.model
    if type(model).__module__ != configs.__name__:
        return False  # of somebody else's nothing is known
    width = setting_of(model, "hidden")
    channels = graph.num_features + 8 * width * (setting_of(model, "layers") + 2)
    passes = config.recipe.consistency_passes if config.recipe.consistency else 1
    edges = 2 * graph.num_edges * (width + 8 * setting_of(model, "heads"))
    return 16.0 * passes * (graph.num_nodes * channels + edges) < capacity / 4


def _capacity(config: TrainConfig) -> float | None:
    """Bytes that a step may take; None of a device that does not say. It will when it is full."""
    if config.parallel.memory is not None:
        return config.parallel.memory * 2**30
    try:
        return SAFE * memory_capacity(jax.devices()[:1])
    except UserError:
        return None


def _needed(config: TrainConfig, graph: Graph, remat: str) -> float:
    """Bytes of a step on one device, about."""
    platform, cut = jax.default_backend(), _one_part(config, graph)
    work = work_of(with_remat(config, remat), graph, platform)
    return memory_of(STRATEGIES["single"], cut, work, MeshShape(), platform, config.kernel).peak


def _one_part(config: TrainConfig, graph: Graph) -> EvenCut:
    """Edges are counted before they are made symmetric: at most twice as many, and loops."""
    both = 2 if config.prepare.symmetrise else 1
    return EvenCut(1, graph.num_nodes, both * graph.num_edges + graph.num_nodes, 0.0, 0.0)


def _on_one_device(config: TrainConfig, graph: Graph) -> TrainConfig:
    """Recompute whole blocks where keeping more does not fit; refuse where that does not either."""
    capacity, cut = _capacity(config), _one_part(config, graph)
    if capacity is None or _is_far_smaller(config, graph, capacity):
        return config
    remats = tuple(remat for remat in remats_of(config) if remat != "none") or ("none",)
    needed: dict[str, float] = {}
    for remat in remats:
        needed[remat] = _needed(config, graph, remat)
        if needed[remat] <= capacity:
            # The first is also what "auto" does unplanned.
            return config if remat == remats[0] else with_remat(config, remat)
    least = min(needed.values())
    nodes, edges = cut.num_nodes, cut.num_edges
    of_nodes = graph.graphs is None and graph.links is None and config.batches.batching == "full"
    if of_nodes and _no_chunks(config) is None and capacity >= LEAST_CHUNKS:
        # The only exact way on one device.
        batches = dataclasses.replace(config.batches, batching="chunks")
        return dataclasses.replace(config, batches=batches)
    found = ways(
        {remat: work_of(with_remat(config, remat), graph) for remat in remats},
        nodes,
        edges,
        _known_hardware(),
        capacity,
        platform=jax.default_backend(),
        kernel=config.kernel,
        chunks_refused=_no_chunks(config),
        cache=cache_advice(graph),
    )
    raise UserError(
        f"this step does not fit in {capacity / 2**30:.3g} GiB: it needs about "
        f"{least / 2**30:.3g}. Use about {math.ceil(least / capacity)} devices (--devices), or a "
        f"smaller --model.hidden or --model.layers; --memory says how much there is, if that is "
        f"wrong.\n{told(found)}"
    )


def _known_hardware() -> HardwareProfile | None:
    """What was measured of one device, if it was: for figures that are not worth a minute."""
    return known_profile(jax.devices()[:1])


def chunks_notice(config: TrainConfig, graph: Graph) -> str:
    """What to tell people whose step runs in chunks because nothing else fits."""
    memory = config.parallel.memory
    capacity = SAFE * memory_capacity(jax.devices()[:1]) if memory is None else memory * 2**30
    both = 2 if config.prepare.symmetrise else 1
    nodes, edges = graph.num_nodes, both * graph.num_edges + graph.num_nodes
    whole, way = in_memory_and_in_chunks(config, graph, nodes, edges, capacity)
    return f"in memory a step needs about {whole / 2**30:.3g} GiB; so it runs in chunks: {way}"


def in_memory_and_in_chunks(
    config: TrainConfig,
    graph: Graph | Sizes,
    nodes: int,
    edges: int,
    memory_bytes: float,
    hardware: HardwareProfile | None = None,
) -> tuple[float, Way]:
    """Bytes that a step takes in memory, and what it costs in chunks within so much memory."""
    platform = jax.default_backend()
    remat = "elementwise" if "elementwise" in remats_of(config) else remats_of(config)[0]
    work = work_of(with_remat(config, remat), graph, platform)
    cut = EvenCut(1, nodes, edges, 0.0, 0.0)
    whole = memory_of(STRATEGIES["single"], cut, work, MeshShape(), platform, config.kernel).peak
    hardware = hardware or _known_hardware()
    return whole, chunks_way(work, nodes, edges, hardware, memory_bytes, config.kernel)


def with_option(config: TrainConfig, option: Option) -> TrainConfig:
    """The config of a run that does just this."""
    mesh = f"node={option.mesh.node},feature={option.mesh.feature}"
    before = config.parallel
    parallel = dataclasses.replace(
        before,
        strategy=option.strategy.name,
        devices=option.mesh.devices,
        mesh=mesh,
        inner=option.inner or before.inner,
        exchange=exchange_of(option.strategy),
        partitioner=before.partitioner if option.partitioner == SUPPOSED else option.partitioner,
    )
    return with_remat(dataclasses.replace(config, parallel=parallel), option.remat)


def with_remat(config: TrainConfig, remat: str) -> TrainConfig:
    """A model that has no such setting recomputes what it always does."""
    if not hasattr(config.model, "remat"):
        return config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, remat=remat))


def hardware_of(parallel: ParallelConfig, progress: Progress) -> HardwareProfile:
    """The profile that is named: of the devices here, of a file, or a preset."""
    name = parallel.hardware
    if name is None:
        return measured_profile(_devices(parallel), progress=progress)
    if Path(name).suffix == ".json" or Path(name).exists():
        return read_profile(name)
    return preset(name)


def notice_of_measuring(parallel: ParallelConfig) -> str | None:
    """What to tell people before `hardware_of` takes its time; None if it does not."""
    return None if parallel.hardware is not None else measuring_notice(_devices(parallel))


def _devices(parallel: ParallelConfig) -> list[Any]:
    return jax.devices()[: available_devices(_wanted(parallel))]


def _wanted(parallel: ParallelConfig) -> int | None:
    return parallel.devices if parallel.mesh is None else parse_mesh(parallel.mesh).devices


def _options(config: TrainConfig, devices: int, graph: Graph | Sizes) -> Iterator[Option]:
    parallel, remats = config.parallel, remats_of(config)
    check_partitioner(parallel.partitioner)
    partitioners = (parallel.partitioner,)
    if isinstance(graph, Sizes):
        partitioners = (SUPPOSED,)
    elif parallel.partitioner == "auto" and graph.graphs is not None:
        partitioners = ("graphs",)
    elif parallel.partitioner == "auto":
        metis = is_installed() and graph.num_edges <= MOST_METIS_EDGES
        partitioners = (*(("metis",) if metis else ()), "streaming", "contiguous")
    strategies = None if parallel.strategy == "auto" else (parallel.strategy,)
    mesh = None if parallel.mesh is None else parse_mesh(parallel.mesh)
    able = None  # sizes of the node axis that the partition is for
    if is_stored_partition(parallel.partitioner):
        able = (1, open_partition(parallel.partitioner).num_parts)
    for option in options(devices, partitioners, remats, strategies, exchange=parallel.exchange):
        if mesh in (None, option.mesh) and (able is None or option.mesh.node in able):
            yield option


def locality_of(prepared: MessageEdges) -> Locality:
    """How far apart attention reads, in the order that training puts the nodes in."""
    edges, order_n = prepared.edges, prepared.order_n
    degrees_n = np.bincount(edges.senders_e, minlength=edges.num_nodes)
    return Locality(2.0 ** log_gap(edges, order_n), share_of_busiest(degrees_n))
