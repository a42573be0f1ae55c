"""A toy strategy: every part puts its rows into a table of all parts, which are added up."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from gtjax.strategies.base import NODE, Demand, Held, Layout, Transfer, op_pass, part_rows
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import padded
from gtjax.strategies.part_edges import edges_by_part, stacked
from pallas_kernels.driver import Stage


@dataclass(frozen=True)
class NodeBroadcast:
    name: str = "node_broadcast"
    mesh_axes: tuple[str, ...] = (NODE,)
    refetches: bool = False

    def refusal(self, works, mesh):
        return only_axes(self.name, self.mesh_axes, mesh)

    def layout(self, graph, senders, receivers, mesh, *, forms=()):
        parts = edges_by_part(graph, senders, receivers)
        lists = [part.from_senders(part.senders_e) for part in parts]
        sizes = (senders.parts * senders.rows, receivers.rows, mesh.feature)
        return Layout(senders, receivers, *stacked(lists, *sizes, forms))

    def stages(self, arrays):
        def fetch(rows, zero):
            def everywhere(x):
                table = jnp.zeros((jax.lax.axis_size(NODE), *x.shape), x.dtype)
                table = jax.lax.psum(table.at[jax.lax.axis_index(NODE)].set(x), NODE)
                return table.reshape(-1, *x.shape[1:])

            return jax.tree.map(everywhere, rows)

        def bring_back(totals, grads):
            def own(x):
                size = x.shape[0] // jax.lax.axis_size(NODE)
                start = jax.lax.axis_index(NODE) * size
                return jax.lax.dynamic_slice_in_dim(jax.lax.psum(x, NODE), start, size)

            return jax.tree.map(own, grads)

        return (Stage(arrays, fetch, bring_back),)

    def demand(self, cut, work, mesh):
        rows = part_rows(cut, mesh)
        every = 2.0 * (cut.num_parts - 1) * rows
        transfers = (
            Transfer("all-reduce", NODE, every * work.sender_bytes, forward=1.0),
            Transfer("all-reduce", NODE, every * work.gradient_bytes, forward=0.0),
        )
        passes = (op_pass(work, cut.edges_p, rows, cut.num_parts * rows),)
        return Demand(transfers, passes, Held(every * work.sender_bytes))

    def padded_edges(self, cut, mesh):
        return padded(cut.edges_p.max(), mesh.feature)
