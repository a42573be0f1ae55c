"""Everything that could be done: strategies, meshes, partitioners, rematerialisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gtjax.graph.errors import UserError
from gtjax.strategies import NODE, STRATEGIES, MeshShape, ModelShape, NodeByFeature, Strategy
from gtjax.strategies.node_halo import NodeHalo

INNER = ("node_halo", "node_all_gather", "node_ring")


@dataclass(frozen=True)
class Option:
    """One way of running a step."""

    strategy: Strategy
    mesh: MeshShape
    partitioner: str
    remat: str

    @property
    def name(self) -> str:
        """As people read it."""
        name = self.strategy.name + (f"({self.inner})" if self.inner else "")
        return name + (" ragged" if exchange_of(self.strategy) == "ragged" else "")

    @property
    def inner(self) -> str | None:
        """The node strategy within node_by_feature."""
        if isinstance(self.strategy, NodeByFeature) and NODE in self.strategy.mesh_axes:
            return self.strategy.inner.name
        return None


def exchange_of(strategy: Strategy) -> str:
    """How its halos travel."""
    inner = strategy.inner if isinstance(strategy, NodeByFeature) else strategy
    return inner.exchange if isinstance(inner, NodeHalo) else "rounds"


def options(
    devices: int,
    partitioners: Sequence[str],
    remats: Sequence[str],
    strategies: Sequence[str] | None = None,
    *,
    exchange: str = "rounds",
) -> Iterator[Option]:
    """Every strategy on every mesh of so many devices, with every partitioner.

    strategies: only these; if not given, all whose gradients are those of one device.
    """
    for mesh in meshes(devices):
        for strategy in _strategies(mesh, exchange):
            if not (strategy.exact if strategies is None else strategy.name in strategies):
                continue
            names = partitioners if mesh.node > 1 else partitioners[:1]
            for partitioner in names:
                for remat in remats:
                    yield Option(strategy, mesh, partitioner, remat)


def meshes(devices: int) -> list[MeshShape]:
    """Every node x feature that makes up so many devices."""
    return [MeshShape(devices // f, f) for f in range(1, devices + 1) if devices % f == 0]


def _strategies(mesh: MeshShape, exchange: str) -> Iterator[Strategy]:
    """Those that spread over exactly the axes on which the mesh has more than one device."""
    axes = {axis for axis in ("node", "feature") if getattr(mesh, axis) > 1}
    for strategy in STRATEGIES.values():
        if set(strategy.mesh_axes) != axes:
            continue
        if isinstance(strategy, NodeByFeature) and NODE in strategy.mesh_axes:
            for inner in INNER:
                yield dataclasses.replace(strategy, inner=_travelling(STRATEGIES[inner], exchange))
        else:
            yield _travelling(strategy, exchange)


def _travelling(strategy: Strategy, exchange: str) -> Strategy:
    if isinstance(strategy, NodeHalo):
        return dataclasses.replace(strategy, exchange=exchange)
    return strategy


def why_not(option: Option, model: ModelShape) -> str | None:
    """What keeps it from running, if anything."""
    try:
        option.strategy.check(model, option.mesh)
    except UserError as error:
        text = str(error)
        return text.split(": ", 1)[-1].split(". ")[0] if "heads" in text else text.split(". ")[0]
    return None
