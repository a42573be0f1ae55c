"""Ways of spreading attention over devices: one file each, and one line each in `STRATEGIES`."""

from gtjax.strategies.base import (
    FEATURE,
    NODE,
    Demand,
    Layout,
    MeshShape,
    ModelShape,
    Strategy,
    Transfer,
)
from gtjax.strategies.feature_all_to_all import FEATURE_ALL_TO_ALL
from gtjax.strategies.isolated import Isolated, TooLargeError
from gtjax.strategies.node_all_gather import NodeAllGather
from gtjax.strategies.node_by_feature import NodeByFeature
from gtjax.strategies.node_halo import NodeHalo
from gtjax.strategies.node_ring import NodeRing
from gtjax.strategies.numbering import PADDING, Numbering
from gtjax.strategies.single import Single

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Single(),
        NodeAllGather(),
        NodeHalo(),
        NodeRing(),
        FEATURE_ALL_TO_ALL,
        NodeByFeature(),
        Isolated(),
    )
}

__all__ = [
    "FEATURE",
    "NODE",
    "PADDING",
    "STRATEGIES",
    "Demand",
    "Isolated",
    "Layout",
    "MeshShape",
    "ModelShape",
    "NodeByFeature",
    "Numbering",
    "Strategy",
    "TooLargeError",
    "Transfer",
]
