"""Batches that are drawn anew for every step, on threads of their own, in the same shapes.

What is drawn is a sampler's business (`sampler.py`, `induced.py`), what is asked of it that of the
seeds (`seeds.py`); here a draw becomes a batch: features are gathered, everything is placed, and
the next batches are made while the devices compute. Batches are functions of the seed and the step.
Their shapes are those of the largest of some that are drawn first, and some room; a batch that
exceeds them makes all shapes grow and the step compile again, which is counted, and changes no
number.
"""

from __future__ import annotations

import enum
import os
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.experimental import multihost_utils

from gtjax.batching.base import Whole
from gtjax.batching.config import BatchingSettings
from gtjax.batching.prefetch import Prefetch
from gtjax.batching.prepare import Batch, Prepared
from gtjax.batching.row_cache import RowCache, advised_rows, memory_bytes
from gtjax.batching.sampler import Bounds, DoesNotFitError, Draw, Marks, gather_rows
from gtjax.batching.seeds import Seeds, padded_rows
from gtjax.core.errors import UserError
from gtjax.nn import Inputs
from gtjax.sharding.hops import Hops
from gtjax.sharding.mesh import Spread
from gtjax.sharding.place import place_local
from gtjax.sharding.specs import BY_PART, BY_ROW
from pallas_kernels.edges import EdgeList, Edges, TooLargeError, build_stacked_edges

FIRST_DRAWS = 8  # that shapes are measured on, of each part
ROOM = 1.05  # times the largest of them: sizes of draws differ by a percent or two
FORMS_ROOM = 1.3  # for what kernels derive from the edges of the first draw
MULTIPLE = 128  # of rows of a hop, and of edges
TABLE_BYTES = 2**30  # up to which features in memory are scaled once instead of batch by batch


class Drawing(Protocol):
    """Draws a part of the graph around some nodes."""

    @property
    def num_nodes(self) -> int:
        """Of the graph."""
        ...

    @property
    def hops(self) -> int:
        """How far it goes; 0 if all edges are between the seeds."""
        ...

    def marks(self) -> Marks:
        """Scratch memory for one thread."""
        ...

    def draw(self, seeds: np.ndarray, step: int, bounds: Bounds, marks: Marks) -> Draw:
        """The graph that a step sees, the seeds first; `DoesNotFitError` if it exceeds."""
        ...


class _Exceeds(enum.IntEnum):
    """What of the shapes a batch is too large for; the greatest is what all agree on."""

    NOTHING = 0
    FORMS = 1
    BOUNDS = 2


class _Shapes(NamedTuple):
    """What all batches have in common."""

    bounds: Bounds
    like: Edges | None  # the edges of a part with the forms that kernels need; None: no forms


@dataclass(frozen=True, eq=False)
class _Part:
    """One part of a batch, on the host."""

    edges: Edges
    rows: dict[str, Any]


class SampledBatches:
    """A batch a step, as a function of the seed and the step's number."""

    def __init__(
        self,
        whole: Whole,
        settings: BatchingSettings,
        spread: Spread,
        sampler: Drawing,
        seeds: Seeds,
        size: int,
    ):
        self._whole, self._settings, self._spread = whole, settings, spread
        host, asked = whole.host, settings.batches
        self._host = host
        self._seeds, self._sampler = seeds, sampler
        self._count = len(self._seeds.answers_k)
        self._parts = spread.shape.node
        size = min(size, self._count)
        if size < self._parts:
            raise UserError(
                f"--batch-size is shared out over {self._parts} devices; found {size}. Use a "
                "larger one, or fewer devices."
            )
        self._steps = -(-self._count // size)  # of an epoch
        per_step = -(-self._count // self._steps)
        self._items = -(-per_step // self._parts)  # of a part, at most
        self._threads = threading.local()
        self._table = None if asked.cache_rows is not None else _scaled_table(host)
        self.partition_id = settings.batches.batching
        self.grown = 0  # how often shapes had to grow
        self._order = (-1, np.zeros(0, np.int64))
        self._own_parts = _own_parts(spread)
        self._uses_n = np.zeros(self._sampler.num_nodes if self._table is None else 0, np.int32)
        self._shapes = self._first_shapes()
        self.cache = None if self._table is not None else self._row_cache()
        count = asked.sampler_threads or min(2, os.cpu_count() or 1)
        self._prefetch = Prefetch(self._made, ahead=asked.prefetch, threads=count)
        self._at, self._batch = -1, None

    @property
    def whole(self) -> Batch:
        """All of the graph, placed when it is first asked for."""
        return self._whole.batch

    @property
    def bounds(self) -> Bounds:
        """Room for nodes and edges of each hop, of every part."""
        return self._shapes.bounds

    @property
    def steps_per_epoch(self) -> int:
        """Batches that ask every training node once."""
        return self._steps

    def at(self, step: int) -> Batch:
        """The batch of this step; those of the next are begun."""
        if self._batch is None or self.changes(step):
            self._batch, self._at = None, step
            self._batch = self._fitting(step)
        return self._batch

    def changes(self, step: int) -> bool:
        """In every step."""
        return step != self._at

    def span(self, step: int) -> int | None:
        """One."""
        return 1

    def facts(self, step: int) -> dict[str, float]:
        """How far it is, how often shapes had to grow, and what the cache found."""
        facts = {"epoch": step / self._steps, "shapes_grown": float(self.grown)}
        if self.cache is not None:
            counts = self.cache.counts
            facts |= {"cache_rows": self.cache.capacity, "cache_hit_rate": counts.hit_rate}
            facts["feature_bytes_read"] = counts.bytes_read
        return facts

    def items(self, step: int) -> np.ndarray:
        """What a step asks, by number: all training nodes, or pairs, in an epoch of some order."""
        epoch, number = divmod(step, self._steps)
        known, order = self._order
        if known != epoch:
            order = np.random.default_rng([self._settings.seed, epoch]).permutation(self._count)
            self._order = (epoch, order)
        start, end = (len(order) * each // self._steps for each in (number, number + 1))
        return order[start:end]

    def _fitting(self, step: int) -> Batch:
        while True:
            batch, exceeds = None, _Exceeds.NOTHING
            try:
                batch = self._prefetch(step)
            except DoesNotFitError:
                exceeds = _Exceeds.BOUNDS
            except TooLargeError:
                exceeds = _Exceeds.FORMS
            exceeds = _most_of_all_processes(exceeds)
            if exceeds is _Exceeds.NOTHING:
                assert batch is not None
                return batch
            self._prefetch.forget()
            self._grow(step, exceeds)

    def _grow(self, step: int, exceeds: _Exceeds) -> None:
        """What every process finds alike, since a draw is a function of step and part."""
        self.grown += 1
        bounds = self._shapes.bounds
        if exceeds is _Exceeds.BOUNDS:
            needed = self._needed_by_all(step, bounds)
            bounds = bounds.with_room_for(_with_room(needed, self._sampler))
        self._shapes = self._shapes_for(bounds, step)

    def _needed_by_all(self, step: int, room: Bounds) -> Bounds:
        for part in range(self._parts):
            room = room.with_room_for(self._needed(self._part_seeds(step, part), step, room))
        return room

    def _first_shapes(self) -> _Shapes:
        """Of some draws that do not depend on where a run is: a resumed one finds the same."""
        most = self._seeds.least_room(self._items, self._sampler.hops)
        for step in range(min(FIRST_DRAWS, self._steps)):
            for part in range(self._parts):
                most = most.with_room_for(self._needed(self._part_seeds(step, part), step, most))
        return self._shapes_for(_with_room(most, self._sampler), 0)

    def _row_cache(self) -> RowCache:
        """Of features that are not all in memory as the model reads them."""
        asked, host = self._settings.batches, self._host
        rows = asked.cache_rows
        if rows is None:
            row_bytes = host.scale(host.graph.x_nf[:1]).nbytes
            rows = advised_rows(self._uses_n, row_bytes, memory_bytes() // 4)
        degrees_n = np.diff(host.edges.by_sender.offsets)
        self._uses_n = np.zeros(0, np.int32)
        return RowCache(host.graph.x_nf, rows, degrees_n, asked.cache, host.scale)

    def _needed(self, seeds: np.ndarray, step: int, room: Bounds) -> Bounds:
        """What a draw takes, found by giving it more and more room."""
        while True:
            try:
                draw = self._draw(seeds, step, room)
                if len(self._uses_n):
                    self._uses_n[np.unique(draw.nodes_r[draw.nodes_r >= 0])] += 1
                return draw.needed
            except DoesNotFitError as error:
                room = room.with_room_for(_with_room(error.needed, self._sampler))

    def _shapes_for(self, bounds: Bounds, step: int) -> _Shapes:
        forms = self._settings.forms
        if not forms:
            return _Shapes(bounds, None)
        draws = [
            self._draw(self._part_seeds(step, part), step, bounds) for part in range(self._parts)
        ]
        made = self._with_forms(draws, bounds, room=FORMS_ROOM)
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), made)
        return _Shapes(bounds, like)

    def _with_forms(self, draws: list[Draw], bounds: Bounds, **fit: Any) -> Edges:
        lists = [
            EdgeList(
                draw.senders_e[: draw.num_edges],
                np.repeat(np.arange(bounds.rows), np.diff(draw.offsets_r)),
                self._edge_ids(draw),
            )
            for draw in draws
        ]
        rows = bounds.rows
        return build_stacked_edges(
            lists,
            num_senders=rows,
            num_receivers=rows,
            forms=self._settings.forms,
            num_edges=bounds.num_edges,
            **fit,
        )

    def _part_items(self, step: int, part: int) -> np.ndarray:
        items = self.items(step)
        start, end = (len(items) * each // self._parts for each in (part, part + 1))
        return items[start:end]

    def _part_seeds(self, step: int, part: int) -> np.ndarray:
        return self._seeds.nodes(self._part_items(step, part), (self._settings.seed, step, part))

    def _draw(self, seeds: np.ndarray, step: int, bounds: Bounds) -> Draw:
        marks: Marks | None = getattr(self._threads, "marks", None)
        if marks is None:
            marks = self._threads.marks = self._sampler.marks()
        return self._sampler.draw(seeds, step, bounds, marks)

    def _made(self, step: int) -> Batch:
        """Draw, gather and place the parts of this process's devices."""
        shapes, weight = self._shapes, self._weight(step)
        parts = {part: self._part(step, part, shapes, weight) for part in self._own_parts}
        mesh, bounds = self._spread.mesh, shapes.bounds

        def placed(spec: Any, by_part: dict[int, Any]) -> Any:
            return place_local(mesh, spec, self._parts, by_part)

        rows = placed(BY_ROW, {number: part.rows for number, part in parts.items()})
        edges = placed(BY_PART, {number: part.edges for number, part in parts.items()})
        hops = Hops(
            self._parts,
            tuple(np.cumsum(bounds.nodes).tolist()),
            tuple(np.cumsum(bounds.edges).tolist()) if self._sampler.hops else (),
        )
        inputs = Inputs(**rows["inputs"])
        return Batch(inputs, edges, rows["targets"], rows["weight"], rows["sum_scale"], hops)

    def _weight(self, step: int) -> float:
        """Of the batch's labels, so that the mean over an epoch's batches is that over labels."""
        answers_k = self._seeds.answers_k
        return float(answers_k[self.items(step)].sum() * self._steps / answers_k.sum())

    def _part(self, step: int, part: int, shapes: _Shapes, weight: float) -> _Part:
        bounds, host = shapes.bounds, self._host
        draw = self._draw(self._part_seeds(step, part), step, bounds)
        if shapes.like is None:
            edges = Edges(
                offsets_r=draw.offsets_r[None],
                senders_e=draw.senders_e[None],
                edge_ids_e=padded_rows(self._edge_ids(draw), bounds.num_edges).astype(np.uint32)[
                    None
                ],
                sender_offsets_s=draw.sender_offsets_r[None],
                receivers_by_sender_e=draw.receivers_by_sender_e[None],
                sender_order_e=draw.sender_order_e[None],
            )
        else:
            edges = self._with_forms([draw], bounds, like=shapes.like)
        there_r = draw.nodes_r >= 0
        rows, seeds = bounds.rows, bounds.nodes[0]
        nodes = draw.nodes_r[there_r]
        drawn_r = np.maximum(np.diff(draw.offsets_r), 1)
        scale_r = np.where(np.diff(draw.offsets_r) > 0, draw.degrees_r / drawn_r, 1)

        def of_nodes(some: np.ndarray) -> np.ndarray:
            out = np.zeros((rows, *some.shape[1:]), some.dtype)
            out[there_r] = some
            return out

        positional, edge_x = host.positional_np, host.edges.edge_x_ef
        inputs = {
            "x_nf": self._features(nodes, there_r, of_nodes, bounds),
            "positional_np": None if positional is None else of_nodes(positional[nodes]),
            "edge_x_ef": (
                None
                if edge_x is None
                else padded_rows(edge_x[self._edge_ids(draw)], bounds.num_edges)
            ),
            "shown_labels_n": self._shown_labels(nodes, there_r, seeds),
            "valid_n": there_r,
            "degree_n": draw.degrees_r.astype(np.float32),
            "node_ids_n": np.where(there_r, draw.nodes_r, host.graph.num_nodes).astype(np.uint32),
        }
        targets = self._seeds.targets(
            self._part_items(step, part),
            (self._settings.seed, step, part),
            (seeds, self._items),
            part * seeds,
        )
        known = {
            "inputs": inputs,
            "targets": targets,
            "weight": np.full(seeds, weight, np.float32),
            "sum_scale": scale_r.astype(np.float32),
        }
        return _Part(edges, known)

    def _features(
        self, nodes: np.ndarray, there_r: np.ndarray, of_nodes: Any, bounds: Bounds
    ) -> np.ndarray:
        if self._table is None:
            assert self.cache is not None
            distinct, place = np.unique(nodes, return_inverse=True)
            return of_nodes(self.cache.rows(distinct)[place])
        out = np.zeros((len(there_r), *self._table.shape[1:]), self._table.dtype)
        start, ends = 0, np.cumsum(bounds.nodes)
        # Rows of padding end each hop: every hop's are one stretch.
        for first, end in zip([0, *ends[:-1]], ends, strict=True):
            count = int(there_r[first:end].sum())
            gather_rows(self._table, nodes[start : start + count], out[first:end])
            start += count
        return out

    def _shown_labels(
        self, nodes: np.ndarray, there_r: np.ndarray, seeds: int
    ) -> np.ndarray | None:
        """Training labels of all nodes but those that are asked, wherever these are met again.

        Where all nodes of a batch are asked, the task hides some of them instead.
        """
        if not self._settings.label_input or not self._sampler.hops:
            return None
        known: dict[str, Any] = self._host.targets
        asked = nodes[: int(there_r[:seeds].sum())]
        shown = known["train"][nodes] & ~np.isin(nodes, asked)
        labels = known["labels"][nodes]
        out = np.full((len(there_r), *labels.shape[1:]), -1, np.int32)
        out[there_r] = np.where(shown if labels.ndim == 1 else shown[:, None], labels, -1)
        return out

    def _edge_ids(self, draw: Draw) -> np.ndarray:
        """Numbers of the edges in the graph, by which dropout draws: as in a full batch."""
        ids_e = self._host.edges.by_receiver.edge_ids_e
        places_e = draw.positions_e[: draw.num_edges]
        return places_e if ids_e is None else ids_e[places_e]


def _scaled_table(host: Prepared) -> np.ndarray | None:
    """The features as the model reads them, where they are in memory anyway and not too many."""
    x_nf = host.graph.x_nf
    plain = type(x_nf) is np.ndarray and x_nf.size * 4 <= TABLE_BYTES
    return np.ascontiguousarray(host.scale(x_nf)) if plain else None


def _with_room(needed: Bounds, sampler: Drawing) -> Bounds:
    """Some more of each, in multiples; no more nodes of a hop than there are."""

    def more(counts: tuple[int, ...], most: int) -> tuple[int, ...]:
        roomy = (-(-int(ROOM * each + 1) // MULTIPLE) * MULTIPLE for each in counts)
        return tuple(min(each, most) for each in roomy)

    most = sampler.num_nodes
    return Bounds((needed.nodes[0], *more(needed.nodes[1:], most)), more(needed.edges, 2**31 - 1))


def _most_of_all_processes(exceeds: _Exceeds) -> _Exceeds:
    """Shapes are those of one program: where one process has to let them grow, all do."""
    if jax.process_count() == 1:
        return exceeds
    return _Exceeds(int(multihost_utils.process_allgather(np.int32(exceeds)).max()))


def _own_parts(spread: Spread) -> list[int]:
    """Parts whose device is of this process."""
    here = jax.process_index()
    devices = spread.mesh.devices.reshape(spread.shape.node, -1)
    return [part for part, some in enumerate(devices) if some[0].process_index == here]
