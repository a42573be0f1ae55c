"""Ways of transport between devices: one file each, and one line each in `STRATEGIES`."""

from gtjax.strategies.base import (
    FEATURE,
    NODE,
    Demand,
    Layout,
    MeshShape,
    Refusal,
    Strategy,
    Transfer,
)
from gtjax.strategies.feature_all_to_all import FEATURE_ALL_TO_ALL
from gtjax.strategies.node_all_gather import NodeAllGather
from gtjax.strategies.node_by_feature import NodeByFeature
from gtjax.strategies.node_halo import NodeHalo
from gtjax.strategies.node_ring import NodeRing
from gtjax.strategies.numbering import PADDING, Numbering, number_nodes
from gtjax.strategies.op_work import OpWork, op_work
from gtjax.strategies.single import Single
from gtjax.strategies.wire import PLAIN, WIRES, Wire

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Single(),
        NodeAllGather(),
        NodeHalo(),
        NodeRing(),
        FEATURE_ALL_TO_ALL,
        NodeByFeature(),
    )
}

__all__ = [
    "FEATURE",
    "NODE",
    "PADDING",
    "PLAIN",
    "STRATEGIES",
    "WIRES",
    "Demand",
    "Layout",
    "MeshShape",
    "NodeByFeature",
    "Numbering",
    "OpWork",
    "Refusal",
    "Strategy",
    "Transfer",
    "Wire",
    "number_nodes",
    "op_work",
]
