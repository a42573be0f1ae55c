"""Whether features stay sparse, and how a model reads them then.

Multiplying without zeros gathers a row of the matrix for each value, where a dense product streams:
it does a quarter to a tenth as many operations a second on a CPU, so that it pays where fewer than
about a tenth of the values are there. Features as an array also take 4 bytes for each zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from gtjax.batching.config import BatchingSettings, PrepareConfig
from gtjax.batching.features import ROWS, Scaling
from gtjax.core.errors import UserError
from gtjax.nn import Inputs
from gtjax.nn.sparse import SparseRows
from gtjax.sharding.sparse import SpreadRows
from pallas_kernels import WEIGHTED_SUM

# Share of values that are not zero up to which it pays: 1.8 times as fast at 0.09 (745 channels to
# 64), 0.8 at 0.27, forward and backward on 2 cores with AVX2; and channels that are worth it.
MOST_FILLED = 0.1
LEAST_CHANNELS = 64


def sparse_forms(
    settings: BatchingSettings, kernel: str, platform: str, *, reads_sparse: bool
) -> tuple[Any, ...] | None:
    """Forms that sparse features need for this kernel; None where they cannot be or do not pay.

    reads_sparse: what the model and the recipes say.
    """
    always, batching = settings.prepare.sparse == "always", settings.batches.batching
    if always and not reads_sparse:
        raise UserError(
            "--prepare.sparse always is for models that say reads_sparse and recipes that do not "
            "move features; this one reads them as an array: use --prepare.sparse auto"
        )
    if always and batching != "full":
        raise UserError(
            f"--prepare.sparse always goes with --batching full alone; --batching is {batching}: "
            "use --prepare.sparse auto"
        )
    chosen = WEIGHTED_SUM.kernel(kernel, platform)
    pays = always or (settings.prepare.sparse == "auto" and chosen.name == "cpu")
    return chosen.needs if pays and reads_sparse and batching == "full" else None


def keeps_sparse(x_nf: np.ndarray, config: PrepareConfig, scaling: Scaling | None = None) -> bool:
    """Whether these features stay sparse for a model that can read them so.

    scaling: of the features, where it is known already.
    """
    always = config.sparse == "always"
    if config.sparse == "never" or not x_nf.size:
        return False
    if not always:
        if x_nf.shape[1] < LEAST_CHANNELS:
            return False
        # Nothing but zeros stands for features that are not known yet.
        if not 0 < count_values(x_nf) <= MOST_FILLED * x_nf.size:
            return False
    how = Scaling.of(x_nf, config.features).how if scaling is None else scaling.how
    if how == "standard" and always:
        raise UserError(
            "--prepare.sparse always keeps zeros, and these features are scaled to zero mean: "
            "use --prepare.features row or none, or --prepare.sparse auto"
        )
    return how != "standard"


def count_values(x_nf: np.ndarray) -> int:
    """How many values are not zero."""
    return sum(
        int(np.count_nonzero(x_nf[start : start + ROWS])) for start in range(0, len(x_nf), ROWS)
    )


def readable(
    inputs: Inputs, times: Callable[[SpreadRows, jax.Array, jax.Array], jax.Array]
) -> Inputs:
    """The inputs as a model reads them: sparse features as rows to multiply with a matrix.

    times: (rows, their values, matrix) -> the product; see `SpreadRows.times`.
    """
    placed: Any = inputs.x_nf
    if not isinstance(placed, SpreadRows):
        return inputs
    rows, channels = placed.shape
    sparse: Any = SparseRows(
        rows,
        channels,
        placed.values_pe,
        placed.edges.senders_e,
        placed.edges.edge_ids_e,
        partial(times, placed),
    )
    return inputs._replace(x_nf=sparse)
