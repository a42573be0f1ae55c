"""What a model does and keeps for each node, apart from attention: arithmetic, no jax.

Counts follow the modules in `gtjax/nn` line by line; tests hold the parameters to those of the
modules and the memory to that of compiled programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from gtjax.strategies import ModelShape

REMATS = ("none", "elementwise", "block")
FLOAT = 4  # bytes of a value between layers


@dataclass(frozen=True)
class ModelWork:
    """A model and what it is trained on, in numbers."""

    shape: ModelShape
    features: int
    classes: int
    wide: int  # width of the feed-forward layers; 0 without them
    feature_bytes: int = 4  # of one value of the features
    edge_features: int = 0
    positional: int = 0
    label_input: bool = False
    multilabel: bool = False
    global_attention: bool = False
    decoupled: bool = False
    norm: str = "layer"
    dropout: bool = True
    averages: bool = False  # a moving average of the parameters is kept

    @property
    def parameters(self) -> int:
        """Values that are learned."""
        d, h = self.shape.hidden, self.shape.heads
        norm = {"layer": 2 * d, "rms": d, "batch": 2 * d, "none": 0}[self.norm]
        inputs = max(1, self.features) * d + d
        inputs += (self.positional * d + d) * (self.positional > 0)
        inputs += self.classes * d * self.label_input
        bias = (self.edge_features * h + h) * (self.edge_features > 0)
        output = d * self.classes + self.classes
        if self.decoupled:
            return inputs + norm + 2 * d * d + 2 * d + bias + output
        attention = 4 * d * d + 4 * d
        block = norm + attention * (1 + self.global_attention) + bias
        block += (norm + 2 * d * self.wide + self.wide + d) * (self.wide > 0)
        return inputs + self.shape.layers * block + norm + output

    @property
    def state_bytes(self) -> float:
        """Parameters, the optimiser's two moments, and the average."""
        return FLOAT * self.parameters * (3 + self.averages)

    def input_bytes(self) -> float:
        """Of one node: features, label, three splits, degree, number, padding or not."""
        label = FLOAT * (self.classes if self.multilabel else 1)
        return self.feature_bytes * self.features + FLOAT * self.positional + label + 3 + 4 + 4 + 1

    def block_flops(self) -> float:
        """Matrix products of one block, forward, for one node."""
        d = self.shape.hidden
        attention = 2 * 4 * d * d
        everywhere = (attention + 4 * d * d / self.shape.heads) * self.global_attention
        return attention + everywhere + 2 * 2 * d * self.wide

    def dense_flops(self, remat: str) -> float:
        """Matrix products of a whole step for one node: forward, and twice that backward."""
        d, blocks = self.shape.hidden, self.shape.layers
        ends = 2 * d * (2 / 3 * self.features + self.positional + self.classes)
        if self.decoupled:
            return 3 * (ends + 2 * 2 * d * d)
        again = 1 if remat == "block" else 0
        return 3 * ends + blocks * self.block_flops() * (3 + again)

    def bends(self, remat: str) -> float:
        """Values of one node through a normalisation, a GELU or dropout, and back."""
        d, blocks = self.shape.hidden, self.shape.layers
        drops = 0.5 * self.dropout
        one = 2 * d + self.wide + drops * (2 * d + self.wide)
        if self.decoupled:
            return d * (1 + 2 * drops) + d
        again = {"none": 0.0, "elementwise": 0.1, "block": 0.5}[remat]
        return blocks * one * (1 + again) + d * (1 + 2 * drops)

    def streamed_bytes(self, remat: str) -> float:
        """Bytes of one node that pass through memory once more: copies, residuals, gradients."""
        d, blocks = self.shape.hidden, self.shape.layers
        block = FLOAT * (24 * d + 6 * self.wide)
        if self.decoupled:
            return FLOAT * (12 * d + 10 * d * blocks)
        return block * blocks * (1.3 if remat == "block" else 1) + FLOAT * 12 * d

    def kept_values(self, remat: str) -> float:
        """Values of one node that a block keeps for its backward pass."""
        d, h = self.shape.hidden, self.shape.heads
        if self.decoupled:
            return 2 * d + h
        everywhere = 7 * d * self.global_attention
        if remat == "block":  # the input, and gradients that wait
            return 3.2 * d
        if remat == "elementwise":
            return 6 * d + h + self.wide + everywhere
        return 10 * d + h + 2 * self.wide + everywhere

    def working_values(self, remat: str) -> float:
        """Values of one node that the backward pass of a block holds at its fullest."""
        d, h = self.shape.hidden, self.shape.heads
        if self.decoupled:
            return 8 * d + 2 * h + self.features
        if remat == "none":
            return 3 * d + self.wide + 2 * h
        if remat == "block":
            one = self.kept_values("elementwise") + 2 * h
            return one + max(3 * d + 1.5 * self.wide, 5.5 * d)
        return max(3 * d + 3 * self.wide, 4 * d) + 2 * h
