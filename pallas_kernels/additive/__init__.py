"""Additive attention of nodes over their in-edges: GAT and GATv2."""

from pallas_kernels.additive.op import gat, gatv2, segment_gat, segment_gatv2

__all__ = ["gat", "gatv2", "segment_gat", "segment_gatv2"]
