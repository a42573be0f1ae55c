"""What a graph transformer looks like; free of jax, so that `--help` is instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the graph transformer."""

    architecture: Literal["transformer", "decoupled"] = "transformer"
    """Blocks of attention and feed-forward, or a node-wise network and rounds of propagation."""
    hidden: int = 64
    """Width of the model."""
    layers: int = 3
    """Number of blocks, or of rounds of propagation."""
    heads: int = 4
    """Attention heads; they divide the width."""
    feed_forward: float = 2.0
    """Width of the feed-forward layers over that of the model; 0 leaves them out."""
    norm: Literal["layer", "rms", "batch", "none"] = "layer"
    """Normalisation before each branch; "batch" is over the nodes of the graph."""
    dropout: float = 0.3
    """Share of hidden values dropped in training."""
    input_dropout: float = 0.0
    """Share of node features dropped in training."""
    attention_dropout: float = 0.0
    """Share of (edge, head) weights dropped in training."""
    restart: float = 0.1
    """Decoupled only: share of the start mixed back in after every round."""
    global_attention: bool = False
    """Add a branch of linear attention from every node to every node."""
    positional: Literal["none", "random_walk", "laplacian"] = "none"
    """Positional encoding added to the input."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""
    dtype: Literal["float32", "mixed", "bfloat16"] = "float32"
    """Type of the arithmetic; sums and parameters stay float32. "mixed" is float32, but stores the
    queries, keys and values of attention in bfloat16, which halves the bytes that it gathers."""

    remat: Literal["auto", "none", "elementwise", "block"] = "auto"
    """What the backward pass computes again instead of keeping it. "elementwise": normalisations,
    GELUs and dropout. "block": all of a block. "auto": as the plan says, or elementwise without
    one. Transformer only; see `gtjax/nn/recompute.py`."""

    @property
    def dense_dtype(self) -> str:
        """What dense layers compute in."""
        return "bfloat16" if self.dtype == "bfloat16" else "float32"

    @property
    def attention_dtype(self) -> str:
        """What queries, keys and values are stored in."""
        return "float32" if self.dtype == "float32" else "bfloat16"

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "positional_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} is at least 1; found {getattr(self, name)}")
        if self.hidden % self.heads:
            near = self.heads * max(1, round(self.hidden / self.heads))
            raise ValueError(
                f"model.heads divides model.hidden: {self.hidden} is not a multiple of "
                f"{self.heads}. Use --model.hidden {near} or another number of heads."
            )
        for name in ("dropout", "input_dropout", "attention_dropout", "restart"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"model.{name} is in [0, 1); found {getattr(self, name)}")
        if self.feed_forward < 0:
            raise ValueError(f"model.feed_forward is not negative; found {self.feed_forward}")
