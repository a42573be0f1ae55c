"""The table of file formats. A new format is one file beside this one and one line below."""

from __future__ import annotations

from gtjax.datasets import edge_list, gnn_benchmark, gtjax_npz, linqs, ogb, refused, stored_graph
from gtjax.datasets.reader import Reader

# The first reader that recognises a path reads it.
READERS = (
    Reader("pickle (refused)", refused.recognises, refused.read),
    Reader("stored graph", stored_graph.recognises, stored_graph.read),
    Reader("OGB folder", ogb.recognises, ogb.read),
    Reader("LINQS .content and .cites", linqs.recognises, linqs.read),
    Reader("gnn-benchmark .npz", gnn_benchmark.recognises, gnn_benchmark.read),
    Reader("gtjax .npz", gtjax_npz.recognises, gtjax_npz.read),
    Reader("edge list .csv or .parquet", edge_list.recognises, edge_list.read),
)
