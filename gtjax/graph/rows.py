"""Arrays that belong to a graph but have no row a node: pairs of nodes, labels of whole graphs.

What a task asks for (`Task.targets`) has a row a node unless it says otherwise with a `Table`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of something other than nodes."""

    values: np.ndarray
    nodes: bool = False
    """Whether the values are numbers of nodes: on devices they are the rows where those stand."""
    spread: bool = False
    """Whether its rows are shared out over the devices, with rows of -1 at the end as padding;
    else every device has all of them."""
