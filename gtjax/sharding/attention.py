"""Attention of a model, bound to a mesh: what the model receives as `attend`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from gtjax.sharding.mesh import Spread
from gtjax.strategies import FEATURE, NODE
from pallas_kernels.segment_attention import Backend, Dropout

EVERYWHERE = PartitionSpec()
BY_PART = PartitionSpec(NODE)
BY_ROW = PartitionSpec((NODE, FEATURE))


@dataclass(frozen=True)
class Attention:
    """Attention over a graph that is laid out on a mesh."""

    spread: Spread
    arrays: Any  # `Layout.arrays`, placed
    kernel: str | Backend = "auto"

    def __call__(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: tuple[float, jax.Array] | None = None,
    ) -> jax.Array:
        """Attention of every node over its in-edges."""
        return self._run(self.spread.strategy.attend, (q_nhd, k_nhd, v_nhd, bias_eh), dropout)

    def propagate(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        rounds: int,
        restart: float,
        dropout: tuple[float, jax.Array] | None = None,
    ) -> jax.Array:
        """Rounds of attention with the same weights."""
        method = partial(self.spread.strategy.propagate, rounds=rounds, restart=restart)
        return self._run(method, (q_nhd, k_nhd, v_nhd, bias_eh), dropout)

    def _run(
        self,
        method: Callable[..., jax.Array],
        tables: tuple[jax.Array | None, ...],
        dropout: tuple[float, jax.Array] | None,
    ) -> jax.Array:
        backend = self.spread.backend(self.kernel)
        rate = 0.0 if dropout is None else dropout[0]
        seed = jnp.uint32(0) if dropout is None else jnp.asarray(dropout[1], jnp.uint32)

        def on_device(arrays: Any, tables: tuple[jax.Array | None, ...], seed: jax.Array):
            own = jax.tree.map(lambda x: x.reshape(x.shape[1:]), arrays)  # of the one part
            return method(own, *tables, dropout=Dropout(rate, seed), kernel=backend)

        everywhere = jax.shard_map(
            on_device,
            mesh=self.spread.mesh,
            in_specs=(BY_PART, BY_ROW, EVERYWHERE),
            out_specs=BY_ROW,
            check_vma=False,  # kernels do not say along which axes their results vary
        )
        return everywhere(self.arrays, tables, seed)
