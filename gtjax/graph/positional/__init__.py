"""Positional encodings: extra node features that say where a node is, since attention does not.

| kind | says | cost |
|---|---|---|
| `random_walk` | local structure: triangles, cycles, hubs | `steps / 2` products with the matrix |
| `laplacian` | place in the graph as a whole | some hundred products with the matrix |

`encode` computes one by its name and keeps it on disk, since it depends on the edges alone.
"""

from gtjax.graph.positional.cache import ENCODINGS, encode
from gtjax.graph.positional.laplacian_eigenvectors import laplacian
from gtjax.graph.positional.random_walks import random_walk

__all__ = ["ENCODINGS", "encode", "laplacian", "random_walk"]
