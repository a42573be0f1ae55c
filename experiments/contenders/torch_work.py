"""The contenders in torch: an op, and the twin of gtjax's model, around either's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from contenders.case import LEARNING_RATE, Case, CaseFolder
from contenders.kinds import GRADIENT, OP_KINDS, gradient_name
from contenders.work import Work

Attend = Callable[[Any, Any, Any], Any]  # of q, k and v, [nodes, heads, width]


def op(
    folder: CaseFolder, call: Callable[..., Any], needs_bytes: int, packages: tuple[str, ...]
) -> Work:
    """The op alone: forward without a record for gradients, and forward with the gradients."""
    kind = OP_KINDS[folder.case.kind]

    def tensors(names: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(torch.from_numpy(folder.array(name)) for name in names)

    inputs = tuple(array.requires_grad_() for array in tensors(kind.inputs))
    constants, (dout,) = tensors(kind.constants), tensors((GRADIENT,))

    def forward() -> Any:
        with torch.no_grad():
            return call(*inputs, *constants)

    def both() -> Any:
        out = call(*inputs, *constants)
        return out.detach(), *torch.autograd.grad(out, inputs, dout)

    def results() -> dict[str, np.ndarray]:
        forward_out = forward().numpy()
        out, *gradients = (array.numpy() for array in both())
        named = zip(map(gradient_name, kind.inputs), gradients, strict=True)
        return {"forward": forward_out, "out": out, **dict(named)}

    return Work({"forward": forward, "both": both}, results, needs_bytes, packages)


def step(folder: CaseFolder, attend: Attend, needs_bytes: int, packages: tuple[str, ...]) -> Work:
    """Steps of training from the parameters that the reference stored."""
    model = Model(folder.case, attend)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    x_nf = torch.from_numpy(folder.array("x_nf"))
    train_n = torch.from_numpy(folder.array("train_n"))
    labels = torch.from_numpy(folder.array("labels_n").astype(np.int64))[train_n]

    def once() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x_nf)[train_n], labels)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    def results() -> dict[str, np.ndarray]:
        model.load_state_dict(parameters(folder))
        optimiser.state.clear()
        return {"losses": np.array([once(), once(), once()])}

    return Work({"step": once}, results, needs_bytes, packages)


class Model(nn.Module):
    """`gtjax.GraphTransformer` layer by layer; the modules have the names of the originals."""

    def __init__(self, case: Case, attend: Attend):
        super().__init__()
        self.input = nn.ModuleDict({"features": nn.Linear(case.features, case.hidden)})
        self.blocks = nn.ModuleList([Block(case, attend) for _ in range(case.layers)])
        self.output_norm = _norm(case.hidden)
        self.output = nn.Linear(case.hidden, case.classes)

    def forward(self, x_nf: Any) -> Any:
        """Logits of every node."""
        h_nf = self.input["features"](x_nf)
        for block in self.blocks:
            h_nf = block(h_nf)
        return self.output(self.output_norm(h_nf))


class Block(nn.Module):
    """Attention and feed-forward, each behind a normalisation and added to its input."""

    def __init__(self, case: Case, attend: Attend):
        super().__init__()
        self.attend, self.heads, hidden = attend, case.heads, case.hidden
        self.norm = _norm(hidden)
        self.attention = nn.ModuleDict(
            {"qkv": nn.Linear(hidden, 3 * hidden), "out": nn.Linear(hidden, hidden)}
        )
        self.feed_forward = nn.ModuleDict(
            {
                "norm": _norm(hidden),
                "up": nn.Linear(hidden, 2 * hidden),
                "down": nn.Linear(2 * hidden, hidden),
            }
        )

    def forward(self, x_nf: Any) -> Any:
        """One layer."""
        nodes, hidden = x_nf.shape
        qkv = self.attention["qkv"](self.norm(x_nf))
        q_nhd, k_nhd, v_nhd = qkv.view(nodes, 3, self.heads, hidden // self.heads).unbind(1)
        out_nhd = self.attend(q_nhd, k_nhd, v_nhd)
        x_nf = x_nf + self.attention["out"](out_nhd.reshape(nodes, hidden))
        wide_nf = self.feed_forward["up"](self.feed_forward["norm"](x_nf))
        wide_nf = functional.gelu(wide_nf, approximate="tanh")
        return x_nf + self.feed_forward["down"](wide_nf)


def _norm(width: int) -> Any:
    return nn.LayerNorm(width, eps=1e-6)  # Flax's default


def parameters(folder: CaseFolder) -> dict[str, Any]:
    """The stored parameters under the names, and in the layout, of torch."""
    found = {}
    for name, array in np.load(folder.path / "parameters.npz").items():
        name = name.removeprefix("encoder.").replace("head.linear", "output")
        name = name.replace("inner.scale", "weight").replace("inner.bias", "bias")
        if name.endswith("kernel"):
            name, array = name.removesuffix("kernel") + "weight", np.ascontiguousarray(array.T)
        found[name] = torch.from_numpy(array)
    return found


def node_bytes(case: Case) -> int:
    """Arrays of [nodes, hidden]: four of the op, and 16 that a layer keeps for its gradients."""
    return 4 * case.nodes * case.hidden * (16 * case.layers + 4)
