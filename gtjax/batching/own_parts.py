"""Each process lays out and writes the parts of its own devices, from a partition that is stored.

Choose it where the graph is too much for one process, or one process too slow for all parts: of the
graph, a process reads the files of its own parts (`gtjax.partition.store`) and the node map, part
after part, and never more than one part at a time. What parts have to agree on goes through files
in the folder that is being written, and through the team: which rows each wants of each other, and
the largest size of every array. The shards are the same to the bit as those of one process
that lays out the whole graph in its own order (`prepare.reorder` "never").

Node strategies whose rows travel in rounds or by all-gather can (`gtjax.strategies.by_part`), alone
or inside node_by_feature, for kernels that need no tiles (those of CPU, GPU and TPU do not; XLA's
does). Edge features, positional encodings, sparse features and targets that are not one row a node
need the whole graph: for these the first process writes all (`gtjax.batching.store`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gtjax.batching.config import BatchingSettings
from gtjax.batching.prepare import Prepared, batch_for_store, holds
from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderWriter
from gtjax.distributed.exits import ToldError
from gtjax.distributed.team import Team
from gtjax.partition.store import StoredPart, StoredPartition
from gtjax.sharding.mesh import Spread
from gtjax.sharding.stored import FORMAT, StoreWriter
from gtjax.sharding.tree_json import to_json
from gtjax.strategies import Layout, number_nodes
from gtjax.strategies.by_part import ByPart, StageEdges, part_strategy
from gtjax.strategies.exchange import Exchange, exchange_of, remote_senders
from gtjax.strategies.part_edges import PartEdges, edges_of_part, stacked
from pallas_kernels.edges import Edges

BLOCK = 1 << 16  # edges whose receivers are counted together


def why_not(settings: BatchingSettings, spread: Spread, stored: StoredPartition) -> str | None:
    """Why one process has to write all parts, if it has to."""
    first = stored.part(0)
    if settings.prepare.reorder == "always":
        return "the order of all nodes is asked for"
    if part_strategy(spread.strategy) is None:
        return f"{spread.strategy.name} lays out all parts together"
    if "tiles" in settings.forms:
        return "tiles are as wide as suits all parts together"
    if settings.positional != "none":
        return "positional encodings are of the whole graph"
    if settings.sparse_forms is not None:
        return "sparse features are spread over all devices together"
    if first.edge_x_ef is not None:
        return "edges have features"
    if settings.scaling is None and settings.prepare.features != "none":
        return "features are scaled by what all of them are"
    view: Any = _view(first, stored.partition.num_nodes)
    try:
        targets = settings.targets(view)
    except AttributeError as error:
        return f"the task asks for more than a row a node ({error})"
    if not all(isinstance(each, OwnRows | np.ndarray) for each in targets.values()):
        return "the task asks for more than a row a node"
    return None


def parts_of(mesh: Mesh, process: int) -> list[int]:
    """The parts whose first device a process has."""
    first_p = mesh.devices.reshape(mesh.devices.shape[0], -1)[:, 0]
    return [part for part, device in enumerate(first_p) if device.process_index == process]


def write_own_parts(
    team: Team,
    folder: Path,
    stored: StoredPartition,
    settings: BatchingSettings,
    spread: Spread,
    own: Sequence[int],
    *,
    about: Mapping[str, Any],
) -> None:
    """Write what `store_batch` would, all processes together, each the parts of its `own`.

    Every process calls this; `folder` is new, or empty, and seen by all of them.
    """
    if reason := team.from_first(lambda: why_not(settings, spread, stored)):
        said = f"parts cannot be laid out one by one: {reason}."
        raise UserError(said) if team.is_first else ToldError(said)
    with team.mistakes_shared():
        if stored.num_parts != spread.shape.node:
            raise UserError(
                f"{stored.folder} holds {stored.num_parts} parts; the mesh is {spread.shape}. "
                f"Partition the graph into {spread.shape.node}."
            )
    with contextlib.ExitStack() as stack:
        whole = None  # of the first process: what the folder will be

        def begin() -> str:
            nonlocal whole
            whole = stack.enter_context(FORMAT.written(folder))
            return str(whole.folder)

        temporary = Path(team.from_first(begin))
        writing = _Writing(team, temporary, stored, settings, spread)
        tree = writing.write(own)
        hashes = temporary / f"hashes-{team.index}.json"
        with team.mistakes_shared(), _told(folder):
            hashes.write_text(json.dumps(writing.to.hashes), encoding="utf-8")
        if whole is not None:
            whole.content |= {
                "holds": holds(spread),
                "about": dict(about),
                "mesh": dict(spread.mesh.shape),
                "tree": to_json(tree),
            }
            for index in range(team.count):
                path = temporary / f"hashes-{index}.json"
                whole.hashes |= json.loads(path.read_text(encoding="utf-8"))
            for path in [*temporary.glob("hashes-*"), *temporary.glob("wanted*")]:
                path.unlink()
        stack.close()  # here, so that others find it
    team.from_first(lambda: None)


class _Writing:
    """One process while it writes."""

    def __init__(
        self,
        team: Team,
        temporary: Path,
        stored: StoredPartition,
        settings: BatchingSettings,
        spread: Spread,
    ):
        self._team, self._folder, self._stored = team, temporary, stored
        self._settings, self._spread = settings, spread
        strategy = part_strategy(spread.strategy)
        assert strategy is not None, "see why_not"
        self._strategy: ByPart = strategy
        self._nodes = number_nodes(stored.partition, None, spread.shape.feature)
        self.to = FolderWriter(temporary, FORMAT.mode)

    def write(self, own: Sequence[int]) -> Any:
        """All of the own parts; gives the tree of what is stored, or None without any."""
        halo_pq = self._agreed_halos(own) if self._strategy.wants_rows else None
        sizes, shapes = self._agreed_sizes(own, halo_pq)
        tree = None
        with self._team.mistakes_shared(), _told(self._folder):
            for part in own:
                tree = self._write_part(part, *self._built(part, halo_pq, sizes, shapes))
        return tree

    def _edges(self, part: int) -> PartEdges:
        here = self._stored.part(part)
        return edges_of_part(
            here.senders_e, here.receivers_e, here.edge_ids_e, part, self._nodes, self._nodes
        )

    def _agreed_halos(self, own: Sequence[int]) -> np.ndarray:
        """Leave which rows the own parts want, and learn how many every part wants of each."""
        bounds = np.arange(self._nodes.parts + 1) * self._nodes.rows
        with self._team.mistakes_shared(), _told(self._folder):
            for part in own:
                wanted = remote_senders(self._edges(part).senders_e, part, self._nodes)
                np.save(self._wanted(part), wanted)
                np.save(self._folder / f"wanted-first-{part:05d}.npy", wanted.searchsorted(bounds))
        together = self._folder / "wanted-first.npy"

        def join(_: Any) -> None:
            names = [f"wanted-first-{part:05d}.npy" for part in range(self._nodes.parts)]
            with _told(self._folder):
                np.save(together, np.stack([np.load(self._folder / name) for name in names]))

        self._team.gathered(None, join)
        self._first_pq = np.load(together, mmap_mode="r")
        return np.diff(self._first_pq, axis=1)

    def _wanted(self, part: int) -> Path:
        return self._folder / f"wanted-{part:05d}.npy"

    def _stages(self, part: int, halo_pq: np.ndarray | None) -> tuple[list[StageEdges], Exchange]:
        exchange = Exchange((), [[]])
        if halo_pq is not None:
            exchange = exchange_of(halo_pq, self._wanted_of, self._nodes.rows, [part])
        messages = [each.messages for each in exchange.rounds]
        stages = self._strategy.stage_edges(
            self._edges(part), part, self._nodes, exchange.arrivals[0], messages
        )
        return stages, exchange

    def _wanted_of(self, target: int, source: int) -> np.ndarray:
        first, last = self._first_pq[target, source : source + 2]
        return np.load(self._wanted(target), mmap_mode="r")[first:last]

    def _agreed_sizes(
        self, own: Sequence[int], halo_pq: np.ndarray | None
    ) -> tuple[list[int], list[list[list[int]]] | None]:
        """The most edges of any part in each stage, and the largest shapes of their forms."""
        sizes: list[list[int]] = []
        with self._team.mistakes_shared():
            for part in own:
                stages, _ = self._stages(part, halo_pq)
                sizes.append([len(each.edges.edge_ids_e) for each in stages])
        most = self._team.gathered(_largest(sizes), _largest)
        if not self._settings.forms:
            return most, None
        shapes: list[Any] = []
        with self._team.mistakes_shared():
            for part in own:
                for_all = self._stacked(self._stages(part, halo_pq)[0], most, None)
                shapes.append([[list(x.shape) for x in jax.tree.leaves(e)] for e, _ in for_all])
        return most, self._team.gathered(_largest(shapes), _largest)

    def _stacked(
        self, stages: list[StageEdges], sizes: list[int], like: list[Edges] | None
    ) -> list[tuple[Edges, np.ndarray]]:
        return [
            stacked(
                [stage.edges],
                stage.senders,
                self._nodes.rows,
                self._spread.shape.feature,
                self._settings.forms,
                at_least=size,
                **({} if like is None else {"like": like[number]}),
            )
            for number, (stage, size) in enumerate(zip(stages, sizes, strict=True))
        ]

    def _built(
        self,
        part: int,
        halo_pq: np.ndarray | None,
        sizes: list[int],
        shapes: list[list[list[int]]] | None,
    ) -> tuple[Any, np.ndarray]:
        stages, exchange = self._stages(part, halo_pq)
        like = None
        if shapes is not None:  # what these would be by themselves, in the shapes of the largest
            own = [edges for edges, _ in self._stacked(stages, sizes, None)]
            like = [_shaped(edges, each) for edges, each in zip(own, shapes, strict=True)]
        built = self._stacked(stages, sizes, like)
        arrays = self._strategy.joined([edges for edges, _ in built], exchange.rounds, self._nodes)
        return arrays, np.concatenate([numbers_1e for _, numbers_1e in built], axis=1)

    def _write_part(self, part: int, arrays: Any, edge_1e: np.ndarray) -> Any:
        """The shards of one part; nothing is repeated where an array seems to hold all parts."""
        parts = self._nodes.parts

        def of_all(x_1: np.ndarray) -> np.ndarray:
            return np.broadcast_to(x_1, (parts, *x_1.shape[1:]))

        arrays = jax.tree.map(of_all, arrays)
        layout = Layout(self._nodes, self._nodes, arrays, of_all(edge_1e))
        view: Any = _view(self._stored.part(part), self._stored.partition.num_nodes)
        scale = self._settings.scaling or (lambda rows: rows)
        host = Prepared(view, view, scale, None, None, self._settings.targets(view))
        return batch_for_store(host, layout, self._spread, StoreWriter(self.to, part))


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows of some nodes, asked for by the numbers that these have in the whole graph."""

    nodes_n: np.ndarray  # ascending
    rows_n: np.ndarray
    count: int  # nodes of the whole graph

    @property
    def shape(self) -> tuple[int, ...]:
        """As if all rows were here."""
        return (self.count, *self.rows_n.shape[1:])

    @property
    def ndim(self) -> int:
        """Axes."""
        return self.rows_n.ndim

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return self.rows_n.dtype

    def __len__(self) -> int:
        return self.count

    def astype(self, dtype: Any) -> OwnRows:
        """The same rows in another type."""
        return OwnRows(self.nodes_n, self.rows_n.astype(dtype), self.count)

    def __getitem__(self, some: Any) -> np.ndarray:
        if isinstance(some, slice):
            if some != slice(0) and some != slice(None, 0):
                raise IndexError("own rows are asked for by the numbers of nodes")
            return self.rows_n[:0]
        numbers = np.asarray(some)
        if not len(self.nodes_n):  # all of them are padding
            return np.zeros((len(numbers), *self.rows_n.shape[1:]), self.dtype)
        index = np.minimum(np.searchsorted(self.nodes_n, numbers), len(self.nodes_n) - 1)
        # Who asks for padding asks for node 0, and does not look at what comes.
        if (numbers[self.nodes_n[index] != numbers] != 0).any():
            raise IndexError("these are the rows of another part")
        return np.asarray(self.rows_n[index])


def _view(part: StoredPart, count: int) -> SimpleNamespace:
    """The surface of a graph that batches read, over the nodes of one part."""

    def own(rows_n: np.ndarray) -> OwnRows:
        return OwnRows(part.nodes_n, rows_n, count)

    labels, splits = own(part.labels_n), {k: own(v) for k, v in part.split_n.items()}
    return SimpleNamespace(
        num_nodes=count,
        x_nf=own(part.x_nf),
        edge_x_ef=None,
        graphs=None,
        labels=labels,
        labels_n=labels,
        splits=splits,
        split_n=splits,
        by_receiver=SimpleNamespace(degrees_n=own(_degrees(part))),
    )


def _degrees(part: StoredPart) -> np.ndarray:
    degrees_n = np.zeros(len(part.nodes_n), np.int64)
    for start in range(0, len(part.receivers_e), BLOCK):
        rows = np.searchsorted(part.nodes_n, part.receivers_e[start : start + BLOCK])
        degrees_n += np.bincount(rows, minlength=len(degrees_n))
    return degrees_n


def _largest(given: Sequence[Any]) -> Any:
    """Of lists of lists of numbers, all alike, the largest number at each place; None: nobody."""
    known = [each for each in given if each is not None]
    if not known:
        return None
    if isinstance(known[0], list):
        return [_largest(some) for some in zip(*known, strict=True)]
    return max(known)


def _shaped(edges: Edges, shapes: list[list[int]]) -> Edges:
    """The shapes of such edges, with these sizes."""
    leaves, tree = jax.tree.flatten(edges)
    made = [
        jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)
        for leaf, shape in zip(leaves, shapes, strict=True)
    ]
    return jax.tree.unflatten(tree, made)


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """A disk that is full is a mistake that all hear of."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}.") from error
