"""Our layers give what PyG's give, with the same weights: values, and gradients of everything.

Needs a Python with torch and torch_geometric: this one, or the one that GTJAX_TORCH_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv
from tests.nn.local import LocalNeighbours

NODES, EDGES, HEADS, EDGE_FEATURES = 37, 180, 3, 2
TOLERANCE = 1e-5  # of the largest value


def torch_python() -> str:
    named = os.environ.get("GTJAX_TORCH_PYTHON")
    if named:
        return named
    if not all(importlib.util.find_spec(name) for name in ("torch", "torch_geometric")):
        pytest.skip("no torch_geometric here, and GTJAX_TORCH_PYTHON names no Python that has it")
    return sys.executable


def kernel(layer: nnx.Linear) -> np.ndarray:
    return np.asarray(layer.kernel[...]).T


def gcn(inputs, outputs, rngs):
    conv = GCNConv(inputs, outputs, rngs=rngs)
    return conv, lambda c: {"lin.weight": kernel(c.linear), "bias": c.bias[...]}


def sage(aggregation):
    def make(inputs, outputs, rngs):
        conv = SAGEConv(inputs, outputs, aggregation, rngs=rngs)
        return conv, lambda c: {
            "lin_l.weight": kernel(c.neighbours),
            "lin_l.bias": c.bias[...],
            "lin_r.weight": kernel(c.own),
        }

    return make


def gin(inputs, outputs, rngs):
    conv = GINConv(inputs, outputs, 0.3, train_eps=True, rngs=rngs)
    return conv, lambda c: {
        "eps": c.eps[...],
        "nn.0.weight": kernel(c.up),
        "nn.0.bias": c.bias[...],
        "nn.2.weight": kernel(c.down),
        "nn.2.bias": c.down.bias[...],
    }


def gat(edge_features):
    def make(inputs, outputs, rngs):
        conv = GATConv(inputs, outputs, HEADS, edge_features, rngs=rngs)
        width = outputs // HEADS

        def named(c):
            found = {
                "lin.weight": kernel(c.linear),
                "att_dst": c.receiver[...],
                "att_src": c.sender[...],
                "bias": c.bias[...],
            }
            if edge_features:
                # PyG multiplies two matrices where one does: [h d, f] by [h, d], here 1 in place 0.
                wide = np.zeros((HEADS, width, edge_features), np.float32)
                wide[:, 0] = kernel(c.edge)
                found["lin_edge.weight"] = wide.reshape(-1, edge_features)
                found["att_edge"] = np.tile(np.eye(width, dtype=np.float32)[0], (HEADS, 1))
            return found

        return conv, named

    return make


def gatv2(edge_features):
    def make(inputs, outputs, rngs):
        conv = GATv2Conv(inputs, outputs, HEADS, edge_features, rngs=rngs)

        def named(c):
            found = {
                "lin_l.weight": kernel(c.sender),
                "lin_l.bias": c.sender.bias[...],
                "lin_r.weight": kernel(c.receiver),
                "lin_r.bias": c.receiver.bias[...],
                "att": c.vector[...],
                "bias": c.bias[...],
            }
            return found | ({"lin_edge.weight": kernel(c.edge)} if edge_features else {})

        return conv, named

    return make


def transformer(inputs, outputs, rngs):
    conv = TransformerConv(inputs, outputs, HEADS, rngs=rngs)
    names = ("query", "key", "value", "skip")

    def named(c):
        weights = {f"lin_{n}.weight": kernel(getattr(c, n)) for n in names}
        return weights | {f"lin_{n}.bias": getattr(c, n).bias[...] for n in names}

    return conv, named


CASES = {
    "gcn": (gcn, 0),
    "sage_mean": (sage("mean"), 0),
    "sage_max": (sage("max"), 0),
    "sage_sum": (sage("sum"), 0),
    "gin": (gin, 0),
    "gat": (gat(0), 0),
    "gat with edge features": (gat(EDGE_FEATURES), EDGE_FEATURES),
    "gatv2": (gatv2(0), 0),
    "gatv2 with edge features": (gatv2(EDGE_FEATURES), EDGE_FEATURES),
    "transformer": (transformer, 0),
}


WIDTHS = {"widening": (5, 12), "narrowing": (14, 6)}  # rows are gathered on the narrower side


def ours(case, inputs, outputs):
    """What PyG is to be given, and what our layer makes of it."""
    make, edge_features = CASES[case]
    rng = np.random.default_rng(len(case) + inputs)
    receivers = np.sort(rng.integers(0, NODES - 3, EDGES))  # the last nodes receive nothing
    senders = rng.integers(0, NODES, EDGES)
    rows = {"x": rng.standard_normal((NODES, inputs)).astype(np.float32)}
    if edge_features:
        rows["edge_x"] = rng.standard_normal((EDGES, edge_features)).astype(np.float32)
    dout = rng.standard_normal((NODES, outputs)).astype(np.float32)
    conv, named = make(inputs, outputs, nnx.Rngs(params=3))
    graphdef, drawn = nnx.split(conv)
    # Biases start at zero, where a mistake would not show.
    params = jax.tree.map(
        lambda p: p + 0.1 * rng.standard_normal(p.shape).astype(np.float32), drawn
    )
    neighbours = LocalNeighbours(senders, receivers, NODES)

    @jax.jit
    def run(params, rows, dout):
        def layer(params, rows):
            edge = (rows["edge_x"],) if "edge_x" in rows else ()
            return nnx.merge(graphdef, params)(rows["x"], neighbours, *edge)

        out, pull = jax.vjp(layer, params, rows)
        return out, *pull(dout)

    out, d_params, d_rows = run(params, rows, dout)
    got = {"out": out, **d_rows, **named(nnx.merge(graphdef, d_params))}
    given = named(nnx.merge(graphdef, params)) | rows
    given |= {"kind": np.array(case.split()[0]), "heads": np.array(HEADS), "dout": dout}
    return given | {"senders": senders, "receivers": receivers}, got


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Ours and PyG's of every case; torch is loaded once."""
    python, folder = torch_python(), tmp_path_factory.mktemp("pyg")
    mine = {}
    for case in CASES:
        for width, sizes in WIDTHS.items():
            given, mine[case, width] = ours(case, *sizes)
            np.savez(folder / f"{case}.{width}.in.npz", **given)
    script = Path(__file__).with_name("pyg_layers.py")
    subprocess.run([python, str(script), str(folder)], check=True, timeout=600)
    result = {}
    for (case, width), got in mine.items():
        with np.load(folder / f"{case}.{width}.out.npz") as stored:
            result[case, width] = got, dict(stored)
    return result


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_that_of_pyg(case, width, both):
    got, want = both[case, width]
    if "att_edge" in want:  # ours has but the places of PyG's matrix that count
        del want["att_edge"], got["att_edge"]
        outputs = WIDTHS[width][1]
        want["lin_edge.weight"][np.arange(outputs) % (outputs // HEADS) != 0] = 0
    assert set(got) == set(want)
    for name, value in want.items():
        mine = np.asarray(got[name]).reshape(value.shape)
        scale = max(1.0, np.abs(value).max())
        np.testing.assert_allclose(mine, value, rtol=0, atol=TOLERANCE * scale, err_msg=name)
