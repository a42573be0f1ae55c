"""The ways of batching: one file a way, and one line each in `BATCHINGS`."""

from gtjax.batching.base import Batching
from gtjax.batching.chunks import Chunks
from gtjax.batching.clusters import Clusters
from gtjax.batching.full import Full
from gtjax.batching.graphs import Graphs
from gtjax.batching.neighbours import Neighbours

WAYS = (Full(), Clusters(), Graphs(), Neighbours(), Chunks())
BATCHINGS: dict[str, Batching] = {each.name: each for each in WAYS}
