"""The settings of every model, one class each; free of jax, so that `--help` is instant.

Which module a class configures is in `gtjax/nn/models.py`. The rest of gtjax knows no model: what
it has to ask of one it asks by `setting_of`, which has an answer for configs without such a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Norm = Literal["layer", "rms", "batch", "none"]
Positional = Literal["none", "random_walk", "laplacian"]
Dtype = Literal["float32", "mixed", "bfloat16"]
Jumping = Literal["last", "concat", "sum", "max"]

# What a model without such a setting does, for those who have to know.
UNSET: dict[str, Any] = {
    "hidden": 64,
    "layers": 1,
    "heads": 1,
    "norm": "none",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "feed_forward": 0.0,
    "global_attention": False,
    "positional": "none",
    "positional_size": 0,
    "label_input": False,
    "dense_dtype": "float32",
    "attention_dtype": "float32",
    "remat": "none",
    "propagates": False,
    "tells_direction": False,
    "phase_steps": (),
}


def setting_of(config: Any, name: str) -> Any:
    """What a model's config says of `name`, or what `UNSET` says where it has no such field."""
    return getattr(config, name, UNSET[name])


@dataclass(frozen=True)
class TransformerConfig:
    """Graph transformer: blocks of attention and feed-forward."""

    hidden: int = 64
    """Width of the model."""
    layers: int = 3
    """Number of blocks."""
    heads: int = 4
    """Attention heads; they divide the width."""
    feed_forward: float = 2.0
    """Width of the feed-forward layers over that of the model; 0 leaves them out."""
    norm: Norm = "layer"
    """Normalisation before each branch; "batch" is over the nodes of the graph."""
    dropout: float = 0.3
    """Share of hidden values dropped in training."""
    input_dropout: float = 0.0
    """Share of node features dropped in training."""
    attention_dropout: float = 0.0
    """Share of (edge, head) weights dropped in training."""
    drop_layers: float = 0.0
    """Stochastic depth: share of the steps that leave out a branch of the last layer; of
    earlier ones less, in proportion."""
    global_attention: bool = False
    """Add a branch of linear attention from every node to every node."""
    positional: Positional = "none"
    """Positional encoding added to the input."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""
    dtype: Dtype = "float32"
    """Type of the arithmetic; sums and parameters stay float32. "mixed" is float32, but stores the
    queries, keys and values of attention in bfloat16, which halves the bytes that it gathers."""

    remat: Literal["auto", "none", "elementwise", "block"] = "auto"
    """What the backward pass computes again instead of keeping it. "elementwise": normalisations,
    GELUs and dropout. "block": all of a block. "auto": as the plan says, or elementwise without
    one. See `gtjax/nn/recompute.py`."""

    @property
    def dense_dtype(self) -> str:
        """What dense layers compute in."""
        return dense_dtype(self.dtype)

    @property
    def attention_dtype(self) -> str:
        """What queries, keys and values are stored in."""
        return attention_dtype(self.dtype)

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "heads", "positional_size")
        heads_divide(self)
        shares(self, "dropout", "input_dropout", "attention_dropout", "drop_layers")
        if self.feed_forward < 0:
            raise ValueError(f"model.feed_forward is not negative; found {self.feed_forward}")


@dataclass(frozen=True)
class DecoupledConfig:
    """A node-wise network, then rounds of propagation by the same attention weights."""

    hidden: int = 64
    """Width of the model."""
    layers: int = 3
    """Rounds of propagation."""
    heads: int = 4
    """Attention heads; they divide the width."""
    norm: Norm = "layer"
    """Normalisation of the node-wise network; "batch" is over the nodes of the graph."""
    dropout: float = 0.3
    """Share of hidden values dropped in training."""
    input_dropout: float = 0.0
    """Share of node features dropped in training."""
    attention_dropout: float = 0.0
    """Share of (edge, head) weights dropped in training, drawn anew every round."""
    restart: float = 0.1
    """Share of the start mixed back in after every round."""
    positional: Positional = "none"
    """Positional encoding added to the input."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""
    dtype: Dtype = "float32"
    """Type of the arithmetic; sums and parameters stay float32. "mixed" is float32, but stores the
    queries, keys and values of attention in bfloat16, which halves the bytes that it gathers."""

    @property
    def dense_dtype(self) -> str:
        """What dense layers compute in."""
        return dense_dtype(self.dtype)

    @property
    def attention_dtype(self) -> str:
        """What queries, keys and values are stored in."""
        return attention_dtype(self.dtype)

    @property
    def propagates(self) -> bool:
        """It calls `Neighbours.propagate`, for which edges are laid out once more."""
        return True

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "heads", "positional_size")
        heads_divide(self)
        shares(self, "dropout", "input_dropout", "attention_dropout", "restart")


@dataclass(frozen=True)
class StackConfig:
    """What all stacks of convolutions have in common; see `gtjax/nn/stack.py`."""

    hidden: int = 64
    """Width of the model."""
    layers: int = 3
    """Number of convolutions."""
    input_layer: bool = False
    """Narrow or widen the features by a linear layer before the first convolution."""
    norm: Norm = "layer"
    """Normalisation after each convolution; "batch" is over the nodes of the graph."""
    residual: bool = False
    """Add a linear layer of its input to the output of each convolution."""
    jumping: Jumping = "last"
    """What the embedding is made of: the output of the last layer, or of all of them: side by side,
    their sum, or their maximum."""
    dropout: float = 0.3
    """Share of hidden values dropped in training."""
    input_dropout: float = 0.0
    """Share of node features dropped in training."""
    drop_layers: float = 0.0
    """Stochastic depth: share of the steps that leave out the convolution of the last layer; of
    earlier ones less, in proportion. With residual alone."""
    positional: Positional = "none"
    """Positional encoding beside the features."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "positional_size")
        shares(self, "dropout", "input_dropout", "drop_layers")
        if self.drop_layers and not self.residual:
            raise ValueError(
                f"model.drop_layers leaves of a layer its residual, and model.residual is off; "
                f"found {self.drop_layers}. Use --model.residual with it."
            )


@dataclass(frozen=True)
class GCNConfig(StackConfig):
    """Graph convolutional network (Kipf and Welling 2017)."""


@dataclass(frozen=True)
class SAGEConfig(StackConfig):
    """GraphSAGE (Hamilton et al. 2017)."""

    aggregation: Literal["mean", "max", "sum"] = "mean"
    """What is taken of the neighbours."""


@dataclass(frozen=True)
class GINConfig(StackConfig):
    """Graph isomorphism network (Xu et al. 2019)."""

    eps: float = 0.0
    """How much more a node counts than its neighbours, at the start."""
    train_eps: bool = True
    """Learn that, one number a layer."""


@dataclass(frozen=True)
class AdditiveConfig(StackConfig):
    """What GAT and GATv2 have in common."""

    heads: int = 4
    """Attention heads; they divide the width."""
    attention_dropout: float = 0.0
    """Share of (edge, head) weights dropped in training."""
    slope: float = 0.2
    """Of the leaky ReLU of the scores, below zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "heads")
        heads_divide(self)
        shares(self, "attention_dropout")
        if not 0 <= self.slope <= 1:
            raise ValueError(f"model.slope is in [0, 1]; found {self.slope}")


@dataclass(frozen=True)
class GATConfig(AdditiveConfig):
    """Graph attention network (Velickovic et al. 2018)."""


@dataclass(frozen=True)
class GATv2Config(AdditiveConfig):
    """Graph attention network with dynamic attention (Brody et al. 2022)."""


@dataclass(frozen=True)
class RelationalConfig(StackConfig):
    """Relational attention, after R-GCN (Schlichtkrull et al. 2018): edge types count."""

    residual: bool = True
    """Add a linear layer of its input to the output of each convolution."""
    heads: int = 8
    """Attention heads; they divide the width, and the matrices of edge types are made of them."""
    attention_dropout: float = 0.0
    """Share of (edge, head) weights dropped in training."""
    typed: bool = True
    """Tell edge types apart, and an edge from its reverse; without, edge features are not seen."""

    @property
    def tells_direction(self) -> bool:
        """Whether features of reverse edges are to have the opposite sign."""
        return self.typed

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "heads")
        heads_divide(self)
        shares(self, "attention_dropout")


@dataclass(frozen=True)
class PolynormerConfig:
    """Polynormer (Deng et al. 2024): gated attention over edges, then over all nodes."""

    hidden: int = 64
    """Width of the model."""
    layers: int = 5
    """Local layers, over edges."""
    global_layers: int = 1
    """Layers of attention from every node to every node; 0 for the local layers by themselves."""
    heads: int = 8
    """Attention heads; they divide the width."""
    dropout: float = 0.5
    """Share of hidden values dropped in training."""
    global_dropout: float = 0.5
    """The same in the global layers."""
    input_dropout: float = 0.15
    """Share of node features dropped in training."""
    beta: float = -1.0
    """Share of a layer's output that is not gated, at the start; below 0 it is learned within
    (0, 1), from a half."""
    pre_norm: bool = False
    """Normalise before each local layer too."""
    local_steps: int = 0
    """Steps at first that train the local layers by themselves; what validated best of them goes on
    with the global layers."""
    positional: Positional = "none"
    """Positional encoding added to the input."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""

    @property
    def global_attention(self) -> bool:
        """Whether every node depends on every other."""
        return self.global_layers > 0

    @property
    def phase_steps(self) -> tuple[int, ...]:
        """Steps at which a phase of training begins."""
        return (self.local_steps,) if self.local_steps and self.global_layers else ()

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "heads", "positional_size")
        heads_divide(self)
        shares(self, "dropout", "global_dropout", "input_dropout")
        for name in ("global_layers", "local_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"model.{name} is not negative; found {getattr(self, name)}")
        if self.beta > 1:
            raise ValueError(f"model.beta is at most 1, or below 0; found {self.beta}")


@dataclass(frozen=True)
class GRANDConfig:
    """GRAND (Feng et al. 2020): random propagation of features, then a node-wise network."""

    hidden: int = 32
    """Width of the hidden layer."""
    layers: int = 8
    """Rounds of propagation: features are the mean over all numbers of rounds up to this."""
    drop_nodes: float = 0.5
    """Share of nodes whose features are dropped in training, before propagation."""
    feature_dropout: float = 0.0
    """Share of features dropped in training before propagation, which costs next to nothing."""
    input_dropout: float = 0.5
    """Share of propagated features dropped in training, as in the paper."""
    dropout: float = 0.5
    """Share of hidden values dropped in training."""
    norm: Norm = "none"
    """Normalisation before each dense layer; "batch" is over the nodes of the graph."""
    positional: Positional = "none"
    """Positional encoding beside the features."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "positional_size")
        shares(self, "drop_nodes", "feature_dropout", "dropout", "input_dropout")


@dataclass(frozen=True)
class SGFormerConfig(StackConfig):
    """SGFormer (Wu et al. 2023): simple attention to all nodes beside a GCN."""

    heads: int = 1
    """Heads of the global attention, each as wide as the model, averaged."""
    global_layers: int = 1
    """Layers of it."""
    global_dropout: float = 0.5
    """Share of hidden values dropped in it in training."""
    graph_weight: float = 0.8
    """Share of the GCN in the embedding; the rest is the attention's."""

    @property
    def global_attention(self) -> bool:
        """Every node depends on every other."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "heads", "global_layers")
        shares(self, "global_dropout")
        if not 0 <= self.graph_weight <= 1:
            raise ValueError(f"model.graph_weight is in [0, 1]; found {self.graph_weight}")
        if self.jumping == "concat":
            raise ValueError(
                "model.jumping: the branches of SGFormer are equally wide, so layers cannot stand "
                'side by side ("concat"). Use "last", "sum" or "max".'
            )


@dataclass(frozen=True)
class GPSConfig:
    """GraphGPS (Rampasek et al. 2022): message passing and attention to all nodes in a layer."""

    hidden: int = 64
    """Width of the model."""
    layers: int = 3
    """Number of layers."""
    local: Literal["gcn", "sage", "gin", "gat"] = "gcn"
    """The message passing of a layer; edge features go into "gat"."""
    heads: int = 4
    """Heads of the global attention, and of "gat"; they divide the width."""
    feed_forward: float = 2.0
    """Width of the feed-forward layers over that of the model."""
    norm: Norm = "batch"
    """Normalisation after each branch; "batch" is over the nodes of the graph."""
    dropout: float = 0.3
    """Share of hidden values dropped in training."""
    input_dropout: float = 0.0
    """Share of node features dropped in training."""
    positional: Positional = "none"
    """Positional encoding added to the input."""
    positional_size: int = 16
    """Width of the positional encoding."""
    label_input: bool = False
    """Feed known training labels as input and learn to predict the ones hidden at random."""

    @property
    def global_attention(self) -> bool:
        """Every node depends on every other."""
        return True

    def __post_init__(self) -> None:
        at_least_one(self, "hidden", "layers", "heads", "positional_size")
        heads_divide(self)
        shares(self, "dropout", "input_dropout")
        if self.feed_forward <= 0:
            raise ValueError(f"model.feed_forward is positive; found {self.feed_forward}")


def at_least_one(config: Any, *names: str) -> None:
    """Refuse a size below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"model.{name} is at least 1; found {getattr(config, name)}")


def shares(config: Any, *names: str) -> None:
    """Refuse a share that is not one."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"model.{name} is in [0, 1); found {getattr(config, name)}")


def heads_divide(config: Any) -> None:
    """Refuse heads of unequal width."""
    if config.hidden % config.heads:
        near = config.heads * max(1, round(config.hidden / config.heads))
        raise ValueError(
            f"model.heads divides model.hidden: {config.hidden} is not a multiple of "
            f"{config.heads}. Use --model.hidden {near} or another number of heads."
        )


def dense_dtype(dtype: str) -> str:
    """What dense layers compute in."""
    return "bfloat16" if dtype == "bfloat16" else "float32"


def attention_dtype(dtype: str) -> str:
    """What queries, keys and values are stored in."""
    return "float32" if dtype == "float32" else "bfloat16"


# The default model's, by the name it had when there was no other.
ModelConfig = TransformerConfig
