"""Graphs by name or path: `load`, what there is to load, and how to store a graph.

Nothing in here unpickles anything, and no file is believed about its size: see `npz_archive`,
`tables` and `archives`. What is malformed raises one `GraphFormatError` that names the file.
"""

from gtjax.datasets.frames import from_pandas
from gtjax.datasets.gtjax_npz import save_npz
from gtjax.datasets.inventory import DatasetInfo, listing
from gtjax.datasets.limits import Limits
from gtjax.datasets.loading import load

__all__ = ["DatasetInfo", "Limits", "from_pandas", "listing", "load", "save_npz"]
