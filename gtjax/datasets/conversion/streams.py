"""Which data is converted as a stream. A format that is not listed is read into memory first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gtjax.datasets import edge_list, gtjax_npz, ogb
from gtjax.datasets.conversion.edge_list_stream import edge_list_stream
from gtjax.datasets.conversion.npz_stream import npz_stream
from gtjax.datasets.conversion.ogb_stream import ogb_stream
from gtjax.datasets.conversion.stream import Stream
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.readers import READERS

# By the reader of the format; each gives the stream, or why there is none.
STREAMS: dict[Callable, Callable[[Path, ReadOptions, str], Stream | str]] = {
    edge_list.read: edge_list_stream,
    gtjax_npz.read: npz_stream,
    ogb.read: ogb_stream,
}


def stream_of(path: Path, options: ReadOptions, form: str) -> Stream | str:
    """The stream of what is at a path; why there is none, if that is so."""
    for reader in READERS:
        if reader.recognises(path):
            if reader.read not in STREAMS:
                return f"{reader.name} has no reader for streams"
            return STREAMS[reader.read](path, options, form)
    return "its format is not known"
