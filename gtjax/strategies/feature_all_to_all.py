"""Heads or channels spread over devices for ops, nodes for all else; all-to-all in between.

Tensor parallelism over features (NeutronTP, Ai et al. 2024): every device works on the whole
graph for its share of the heads or channels, so the work is perfectly balanced however the graph
cuts. Of attention it moves `4 N d (P-1)/P^2` values a layer forward and as many backward, each
device's share of queries, keys, values and outputs, and holds all edges on every device. Choose it
for graphs that cut badly. The decoupled model exchanges only twice, however many rounds it has.
"""

from __future__ import annotations

from gtjax.strategies.base import FEATURE
from gtjax.strategies.node_by_feature import NodeByFeature
from gtjax.strategies.single import Single

FEATURE_ALL_TO_ALL = NodeByFeature(inner=Single(), name="feature_all_to_all", mesh_axes=(FEATURE,))
