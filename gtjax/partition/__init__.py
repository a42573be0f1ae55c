"""Partitions of a graph: which part owns each node, and what that cuts.

| name | cuts | costs |
|---|---|---|
| `metis` | best | some 100 bytes an edge; needs pymetis |
| `streaming` | 1.1 to 1.25 times as much as `metis` | some 500 bytes a node; 7 reads of the edges |
| `contiguous` | as well as the numbering of the nodes | a count of degrees |
| `random` | as badly as can be | a count of degrees |
"""

from gtjax.partition.cut import Cut, CutStats, EvenCut, cut_stats
from gtjax.partition.partition import Partition
from gtjax.partition.partitioners import PARTITIONERS, partition_graph
from gtjax.partition.regroup import Regrouping
from gtjax.partition.store import (
    StoredPartition,
    is_stored_partition,
    open_partition,
    read_owners,
    save_partition,
)
from gtjax.partition.streaming import stream_partition

__all__ = [
    "PARTITIONERS",
    "Cut",
    "CutStats",
    "EvenCut",
    "Partition",
    "Regrouping",
    "StoredPartition",
    "cut_stats",
    "is_stored_partition",
    "open_partition",
    "partition_graph",
    "read_owners",
    "save_partition",
    "stream_partition",
]
