"""Sampled neighbourhoods of some nodes in each step: for graphs that a device cannot hold.

A step asks some training nodes, the seeds, and sees of the graph what they draw: so many in-edges,
then as many of the nodes where those start, and so on, one hop for each layer (GraphSAGE, Hamilton
et al. 2017). Choose it where the whole graph does not fit, or where many small steps learn faster
than few exact ones. A device holds one batch and the next; only gradients travel between devices.

What is estimated, and how well (see README.md beside this file): an epoch asks every labelled
training node once, and batches are weighted by their labels, so that the mean loss of an epoch's
batches is the loss of the whole graph where the fan-out is "all". With fewer edges sums and means
of neighbours are unbiased; attention, maxima, and whatever is not linear behind them, are not: they
are consistent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gtjax.batching.base import Batches, Whole
from gtjax.batching.config import BatchingSettings
from gtjax.batching.sampled import SampledBatches
from gtjax.batching.sampler import ALL, Sampler
from gtjax.batching.seeds import seeds_of
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.sharding.mesh import Spread
from gtjax.strategies import NODE, Refusal
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.single import Single

BATCH_SIZE = 1024


def fan_outs(text: str, layers: int | None) -> tuple[int, ...]:
    """The fan-out of each hop from "15,10,5", or "all"; one number is for each of the hops."""
    numbers = tuple(ALL if each == "all" else int(each) for each in text.split(","))
    if layers is None:
        return numbers
    if len(numbers) == 1:
        return numbers * layers
    if len(numbers) < layers:
        raise UserError(
            f"--fan-out has a number for each of the {layers} hops that the model sees, or one for "
            f"all; found {text}"
        )
    return numbers[:layers]


@dataclass(frozen=True)
class Neighbours:
    """Each step trains on some nodes, and on what they draw of their neighbourhoods."""

    name: str = "neighbours"
    sees_all: bool = False
    reads_stored: bool = True

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """Seeds lie along the node axis, and nothing in the model mixes nodes of all of them."""
        if refused := only_axes("--batching neighbours", (NODE,), spread.shape):
            return refused
        if couples_nodes is not None:
            return Refusal(
                f"a sampled step sees few nodes; {couples_nodes} mixes all nodes of the graph",
                "Change that setting, or use --batching full",
            )
        return None

    def training(self, evaluation: Spread) -> Spread:
        """Without transport."""
        return replace(evaluation, strategy=Single())

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """Draw some batches, for their shapes."""
        if progress is not None:
            progress(0.9, "drawing batches, for their shapes")
        host, asked = whole.host, settings.batches
        hops = fan_outs(asked.fan_out, settings.layers)
        sampler = Sampler(host.edges.by_receiver, hops, settings.seed)
        size = asked.batch_size or BATCH_SIZE
        return SampledBatches(whole, settings, training, sampler, seeds_of(host), size)
