"""The ops that are compared: what each takes, and what a pass over the edges has to move for it.

Names of arrays end in their axes: nodes, edges, heads, width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

GRADIENT = "dout_nhd"  # of the result


@dataclass(frozen=True)
class Pass:
    """The least that one pass moves, if nothing per edge is kept between passes.

    Rows are [heads, width]. The gather bound reads those of the edges; the rest is counted.
    """

    of_senders: tuple[str, ...] = ()  # tables of which every edge reads the row of its sender
    of_receivers: tuple[str, ...] = ()  # and of its receiver
    numbers: int = 0  # more float32 for every edge and head
    indices: int = 1  # int32 for every edge
    rows: int = 0  # for every node, read or written

    @property
    def gathered(self) -> int:
        """Rows that every edge reads."""
        return len(self.of_senders) + len(self.of_receivers)


@dataclass(frozen=True)
class OpKind:
    """An op by its inputs, in the order of its arguments: first those that get gradients."""

    title: str
    inputs: tuple[str, ...]
    forward: Pass
    backward: Pass
    constants: tuple[str, ...] = ()


OP_KINDS = {
    # Backward: k and v again for dq; q, dout and two numbers of a receiver for dk and dv.
    "attention": OpKind(
        "dot-product attention",
        ("q_nhd", "k_nhd", "v_nhd"),
        Pass(("k_nhd", "v_nhd"), rows=2),
        Pass(("k_nhd", "v_nhd"), ("q_nhd", GRADIENT), numbers=2, indices=2, rows=8),
    ),
    "gat": OpKind(
        "GAT",
        ("s_nh", "t_nh", "v_nhd"),
        Pass(("v_nhd",), numbers=1, rows=1),
        Pass(("v_nhd",), (GRADIENT,), numbers=4, indices=2, rows=4),
    ),
    "gatv2": OpKind(
        "GATv2",
        ("l_nhd", "r_nhd", "a_hd"),
        Pass(("r_nhd",), rows=2),
        Pass(("r_nhd",), ("l_nhd", GRADIENT), numbers=2, indices=2, rows=6),
    ),
    "sum": OpKind(
        "sum",
        ("x_nhd",),
        Pass(("x_nhd",), rows=1),
        Pass((), (GRADIENT,), rows=1),
    ),
    # Weights are looked up by an edge's position in the other order.
    "fixed_weights": OpKind(
        "weighted sum",
        ("x_nhd",),
        Pass(("x_nhd",), numbers=1, rows=1),
        Pass((), (GRADIENT,), numbers=1, indices=2, rows=1),
        constants=("w_eh",),
    ),
    "learned_weights": OpKind(
        "weighted sum, learned weights",
        ("x_nhd", "w_eh"),
        Pass(("x_nhd",), numbers=1, rows=1),
        Pass((), (GRADIENT,), numbers=2, indices=2, rows=2),
    ),
    # Backward: compares with the result again; x stands for it, a table of the same shape.
    "max": OpKind(
        "max",
        ("x_nhd",),
        Pass(("x_nhd",), rows=1),
        Pass((), ("x_nhd", GRADIENT), rows=2),
    ),
}


def gradient_name(name: str) -> str:
    """Of an input: "dq" for "q_nhd"."""
    return "d" + name.partition("_")[0]


def moved_over_gathered(one: Pass, nodes: int, edges: int, heads: int, width: int) -> float:
    """Bytes that a pass moves over those of them that are rows of the edges."""
    row = 4 * heads * width
    of_edges = edges * (one.gathered * row + 4 * one.indices + 4 * heads * one.numbers)
    return (of_edges + nodes * one.rows * row) / (edges * one.gathered * row)
