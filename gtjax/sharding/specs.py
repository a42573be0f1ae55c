"""How arrays lie on the mesh: everywhere, a part a device of the node axis, or rows over all."""

from __future__ import annotations

from jax.sharding import PartitionSpec

from gtjax.strategies import FEATURE, NODE

EVERYWHERE = PartitionSpec()
BY_PART = PartitionSpec(NODE)
BY_ROW = PartitionSpec((NODE, FEATURE))
