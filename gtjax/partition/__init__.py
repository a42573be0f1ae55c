"""Partitions of a graph: which part owns each node, and what that cuts.

| name | cuts | costs |
|---|---|---|
| `contiguous` | as well as the numbering of the nodes | a count of degrees |
| `random` | as badly as can be | a count of degrees |
"""

from gtjax.partition.cut import CutStats, cut_stats
from gtjax.partition.partition import Partition
from gtjax.partition.partitioners import PARTITIONERS, partition_graph

__all__ = ["PARTITIONERS", "CutStats", "Partition", "cut_stats", "partition_graph"]
