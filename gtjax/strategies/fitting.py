"""Whether a mesh fits a strategy; what does not is refused with what would."""

from __future__ import annotations

from gtjax.strategies.base import FEATURE, NODE, MeshShape, Refusal


def only_axes(name: str, mesh_axes: tuple[str, ...], mesh: MeshShape) -> Refusal | None:
    """Refuse a mesh with more than one device along an axis that the strategy does not use."""
    for axis in (NODE, FEATURE):
        size = getattr(mesh, axis)
        if size > 1 and axis not in mesh_axes:
            return Refusal(
                f"{name} spreads over {' and '.join(mesh_axes)} alone; the mesh has {axis}={size}",
                f"Use node_by_feature, or --mesh with {axis}=1",
            )
    return None
