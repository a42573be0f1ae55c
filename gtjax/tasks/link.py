"""Link prediction: whether an edge joins two nodes, learned from the edges that are not held out.

A training step tells training edges from as many pairs (or more) that it draws itself: one end of
an edge stays, the other becomes a node drawn by a hash of the edge and the step, so that every
strategy draws the same. Validation and test rank held-out edges among pairs that no edge joins,
which are drawn once (`hold_out_links`). The ends of a pair may be on different devices: pairs are
shared out over all of them, and rows of embeddings are gathered from wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.graph import Graph, StoredGraph, Table, hold_out_links
from gtjax.graph.csr import stable_pair_order
from gtjax.nn.inputs import Inputs
from gtjax.nn.noise import uniform_bits
from gtjax.tasks.base import DEFAULTS, RANKING, Task, TaskSettings
from gtjax.tasks.decoders import DECODERS, PairHead
from gtjax.tasks.own import is_own, own_function
from gtjax.tasks.scores import average_precision, masked_mean, ranks_among, roc_auc

Targets = dict[str, jax.Array]
HITS = (10, 50, 100)
TRIES = 4  # draws of a negative that shall be no edge; the last is taken as it is


@dataclass(frozen=True)
class LinkPrediction(Task):
    """Whether an edge joins two nodes."""

    metric: str = "roc_auc"
    decoder: str = "dot"
    negatives: int = 1
    true_negatives: bool = False
    directed: bool = False
    val_links: float = 0.05
    test_links: float = 0.1
    seed: int = 0
    own_loss: str = "auto"

    METRICS: ClassVar[tuple[str, ...]] = RANKING
    ANSWERS: ClassVar[tuple[str, str]] = ("probability", "probabilities")
    OF: ClassVar[Literal["node", "pair", "graph"]] = "pair"

    @classmethod
    def of(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Self:
        """The task of a graph with edges."""
        if settings.label_input:
            raise UserError(
                "label_input shows classes of nodes, which links have not: leave it out"
            )
        asked = settings.asked
        return cls(
            "roc_auc" if settings.metric == "auto" else settings.metric,
            asked.decoder,
            asked.negatives,
            asked.true_negatives,
            _is_directed(graph, settings),
            asked.val_links,
            asked.test_links,
            settings.seed,
            asked.loss,
        )

    @classmethod
    def prepared(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Graph:
        """Without the edges that are held out, unless the graph says which those are."""
        if isinstance(graph, StoredGraph):
            raise UserError(
                f"links are held out in memory, and {graph.name} is a stored graph that is read "
                f"piece by piece: use --batching full, or load(...).in_memory()"
            )
        return cls.of(graph, settings).fitted(graph)

    def fitted(self, graph: Graph) -> Graph:
        """The same draw of held-out edges as for training, where it is the same graph."""
        if graph.links is not None:
            return graph
        return hold_out_links(
            graph,
            val=self.val_links,
            test=self.test_links,
            directed=self.directed,
            seed=self.seed,
        )

    def targets(self, graph: Graph) -> dict[str, np.ndarray | Table]:
        """Pairs, shared out; and where every node stands, on every device, to draw from."""
        links = graph.links
        assert links is not None
        held = {n: Table(p, nodes=True, spread=True) for n, p in links.arrays().items()}
        known: dict[str, np.ndarray | Table] = {
            **held,
            "train": Table(links.train, spread=True),
            "row": Table(np.arange(graph.num_nodes), nodes=True),
        }
        if self.true_negatives:
            both = (links.train, links.train[:, ::-1])
            ends = links.train if self.directed else np.concatenate(both)
            first, second = ends[stable_pair_order(ends[:, 0], ends[:, 1], graph.num_nodes)].T
            starts_n = np.searchsorted(first, np.arange(graph.num_nodes + 1))
            known |= {"starts": Table(starts_n), "ends": Table(second)}
        return known

    def head(
        self, width: int, *, dropout: float, dtype: str = "float32", rngs: nnx.Rngs
    ) -> nnx.Module:
        """Scores of the pairs that are asked for."""
        return PairHead(DECODERS[self.decoder](width, self.directed, dtype, rngs=rngs), dropout)

    def training(self, inputs: Inputs, targets: Targets, key: jax.Array) -> tuple[Inputs, Targets]:
        """Training edges, and for each some pairs that are drawn."""
        seed = jax.random.bits(key, (), jnp.uint32)
        return inputs._replace(asked=self._train_pairs(targets, seed)), targets

    def evaluation(self, inputs: Inputs, targets: Targets) -> Inputs:
        """Held-out edges and pairs that no edge joins."""
        names = ("val", "test", "val_negative", "test_negative")
        return inputs._replace(asked={name: targets[name] for name in names})

    def predictions(
        self,
        run: Callable[[Inputs], tuple[Any, jax.Array]],
        inputs: Inputs,
        targets: Targets,
    ) -> tuple[Any, jax.Array]:
        """The same, and training edges among pairs of one draw."""
        asked = self._train_pairs(targets, jnp.uint32(0))
        held = self.evaluation(inputs, targets).asked
        return run(inputs._replace(asked={**held, **asked}))

    def loss(self, outputs: Any, targets: Targets, weight_n: jax.Array | None = None) -> jax.Array:
        """Mean cross entropy of edges and of drawn pairs, each counting half; or one's own."""
        loss = self._loss(outputs, targets, "train")
        # Pairs are nobody's in particular; the pairs of a sampled batch have all the same weight.
        return loss if weight_n is None or "pool" not in targets else loss * weight_n[0]

    def validation_loss(self, outputs: Any, targets: Targets) -> jax.Array:
        """The same of held-out edges, and of pairs that no edge joins."""
        return self._loss(outputs, targets, "val")

    def _loss(self, outputs: Any, targets: Targets, split: str) -> jax.Array:
        positive_k, negative_m = outputs[split], outputs[f"{split}_negative"]
        there_k, there_m = self._there(targets, split)
        if is_own(self.own_loss):
            scores = jnp.concatenate([positive_k, negative_m])
            labels = (jnp.arange(len(scores)) < len(positive_k)).astype(jnp.int32)
            counted = jnp.concatenate([there_k, there_m])
            return own_function(self.own_loss, "loss")(scores, labels, counted)
        entropy = optax.sigmoid_binary_cross_entropy
        right = masked_mean(entropy(positive_k, jnp.ones_like(positive_k)), there_k)
        wrong = masked_mean(entropy(negative_m, jnp.zeros_like(negative_m)), there_m)
        return (right + wrong) / 2

    def _there(self, targets: Targets, split: str) -> tuple[jax.Array, jax.Array]:
        """Which rows are edges, and which are other pairs, and no padding."""
        there_k = targets[split][:, 0] >= 0
        if split == "train":  # those are drawn in each step
            return there_k, jnp.repeat(there_k, self.negatives)
        return there_k, targets[f"{split}_negative"][:, 0] >= 0

    def metrics(self, outputs: Any, targets: Targets, split: str) -> dict[str, jax.Array]:
        """Of a split's edges among its negatives: area, precision, and where they rank."""
        if split not in outputs:
            return {}
        positive_k, negative_m = outputs[split], outputs[f"{split}_negative"]
        there_k, there_m = self._there(targets, split)
        score = jnp.concatenate([positive_k, negative_m])
        is_edge = jnp.arange(len(score)) < len(positive_k)
        counted = jnp.concatenate([there_k, there_m])
        rank_k = ranks_among(positive_k, there_k, negative_m, there_m)
        scores = {
            "roc_auc": roc_auc(score, is_edge, counted),
            "average_precision": average_precision(score, is_edge, counted),
            "mrr": masked_mean(1 / rank_k, there_k),
            **{f"hits@{most}": masked_mean(rank_k <= most, there_k) for most in HITS},
        }
        if is_own(self.metric):
            own = own_function(self.metric, "metric")
            scores[self.metric] = own(score, is_edge.astype(jnp.int32), counted)
        return scores

    def answers(self, outputs: Any) -> dict[str, jax.Array]:
        """The probability of an edge, by list of pairs."""
        return {name: jax.nn.sigmoid(scores) for name, scores in outputs.items()}

    def _train_pairs(self, targets: Targets, seed: jax.Array) -> dict[str, jax.Array]:
        """Rows of training edges, and of the pairs that are drawn for them; -1 for padding."""
        pairs_k2, row_n = targets["train"], targets.get("row")
        pool_n = targets.get("pool")  # of a sampled batch, which has rows in place of nodes
        candidates = row_n if pool_n is None else pool_n
        assert candidates is not None
        edge_m2 = jnp.repeat(pairs_k2, self.negatives, axis=0)
        tries = TRIES if self.true_negatives else 1
        number_m = jnp.arange(len(edge_m2), dtype=jnp.uint32)
        bits_mt = uniform_bits(number_m, tries + 1, seed)
        kept_m = edge_m2[:, 0]
        if not self.directed:  # either end may stay
            kept_m = jnp.where(bits_mt[:, 0] >> 31 == 1, edge_m2[:, 1], kept_m)
        drawn_mt = (bits_mt[:, 1:] % jnp.uint32(len(candidates))).astype(kept_m.dtype)
        drawn_mt = drawn_mt if pool_n is None else pool_n[drawn_mt].astype(kept_m.dtype)
        drawn_m = drawn_mt[:, -1]
        for number in reversed(range(tries - 1)):  # the first that is no edge
            other_m = drawn_mt[:, number]
            joined_m = _is_edge(targets["starts"], targets["ends"], kept_m, other_m)
            drawn_m = jnp.where(joined_m | (kept_m == other_m), drawn_m, other_m)
        negative_m2 = jnp.stack([kept_m, drawn_m], axis=1)

        def rows(pairs: jax.Array, there: jax.Array) -> jax.Array:
            found = pairs if row_n is None else row_n[jnp.maximum(pairs, 0)]
            return jnp.where(there, found, -1)

        there_m1 = edge_m2[:, :1] >= 0
        return {
            "train": rows(pairs_k2, pairs_k2[:, :1] >= 0),
            "train_negative": rows(negative_m2, there_m1),
        }


def _is_directed(graph: Graph, settings: TaskSettings) -> bool:
    if graph.links is not None:
        return graph.links.directed
    return not (settings.symmetrise or graph.is_symmetric)


def _is_edge(
    starts_n: jax.Array, ends_e: jax.Array, first_m: jax.Array, second_m: jax.Array
) -> jax.Array:
    """Whether each pair is in the list, by bisection among the ends of its first node."""
    first_m = jnp.maximum(first_m, 0)
    low_m, high_m = starts_n[first_m], starts_n[first_m + 1]
    last = len(ends_e) - 1

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low_m, high_m = bounds
        middle_m = (low_m + high_m) // 2
        below_m = (low_m < high_m) & (ends_e[jnp.minimum(middle_m, last)] < second_m)
        low_m = jnp.where(below_m, middle_m + 1, low_m)
        return low_m, jnp.where(below_m, high_m, jnp.minimum(middle_m, high_m))

    rounds = max(1, int(ends_e.shape[0]).bit_length() + 1)
    found_m, _ = jax.lax.fori_loop(0, rounds, halve, (low_m, high_m))
    inside_m = found_m < starts_n[first_m + 1]
    return inside_m & (ends_e[jnp.minimum(found_m, last)] == second_m)
