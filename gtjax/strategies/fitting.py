"""Whether a mesh fits a strategy; what does not is a mistake of the user that says what would."""

from __future__ import annotations

from gtjax.graph import UserError
from gtjax.strategies.base import FEATURE, NODE, MeshShape, ModelShape, Strategy


def only_axes(strategy: Strategy, mesh: MeshShape) -> None:
    """Refuse a mesh with more than one device along an axis that the strategy does not use."""
    for axis in (NODE, FEATURE):
        size = getattr(mesh, axis)
        if size > 1 and axis not in strategy.mesh_axes:
            raise UserError(
                f"{strategy.name} spreads over {' and '.join(strategy.mesh_axes)} alone; the mesh "
                f"has {axis}={size}. Use node_by_feature, or --mesh with {axis}=1."
            )


def heads_divide(strategy: Strategy, model: ModelShape, mesh: MeshShape) -> None:
    """Refuse heads that cannot be spread evenly."""
    if model.heads % mesh.feature:
        raise UserError(
            f"{strategy.name} splits heads evenly: {model.heads} heads do not divide over "
            f"{mesh.feature} devices. Use fewer devices along the feature axis, a node strategy, "
            f"or change model.heads."
        )
