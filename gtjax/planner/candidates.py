"""Everything that could be done: strategies, meshes, partitioners, rematerialisation, wires."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gtjax.strategies import (
    NODE,
    PLAIN,
    STRATEGIES,
    MeshShape,
    NodeByFeature,
    OpWork,
    Refusal,
    Strategy,
    Wire,
)
from gtjax.strategies.node_halo import NodeHalo

INNER = ("node_halo", "node_all_gather", "node_ring")


@dataclass(frozen=True)
class Option:
    """One way of running a step."""

    strategy: Strategy
    mesh: MeshShape
    partitioner: str
    remat: str
    wire: Wire = PLAIN

    @property
    def name(self) -> str:
        """As people read it."""
        name = self.strategy.name + (f"({self.inner})" if self.inner else "")
        name += " ragged" if exchange_of(self.strategy) == "ragged" else ""
        return name if self.wire.exact else f"{name} {self.wire.name}"

    @property
    def inner(self) -> str | None:
        """The node strategy within node_by_feature."""
        if isinstance(self.strategy, NodeByFeature) and NODE in self.strategy.mesh_axes:
            return self.strategy.inner.name
        return None

    def refusal(self, works: Sequence[OpWork]) -> Refusal | None:
        """What keeps it from running ops such as these, if anything."""
        return self.strategy.refusal(works, self.mesh)


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
    wires: Sequence[Wire] = (PLAIN,),
) -> Iterator[Option]:
    """Every strategy on every mesh of so many devices, with every partitioner.

    strategies: only these, if given.
    wires:      that rows may travel by; those that are not exact only where the user allows it.
    """
    for mesh in meshes(devices):
        for strategy in _strategies(mesh, exchange):
            if strategies is not None and strategy.name not in strategies:
                continue
            names = partitioners if mesh.node > 1 else partitioners[:1]
            # Only rows that cross parts travel by wire.
            able = wires if mesh.node > 1 else wires[:1]
            for partitioner in names:
                for remat in remats:
                    for wire in able:
                        yield Option(strategy, mesh, partitioner, remat, wire)


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
