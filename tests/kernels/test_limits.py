"""What 32 bits cannot number is refused, and the last that they can is not: by arithmetic alone."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.strategies.part_edges import limits_told
from pallas_kernels import DOT_PRODUCT, build_edges, build_stacked_edges
from pallas_kernels.dot_product.tpu import TPU
from pallas_kernels.edges import EdgeList, limits
from pallas_kernels.edges.limits import LimitError
from pallas_kernels.edges.pieces import PIECE_EDGES
from pallas_kernels.edges.strips import CHUNK, CHUNKS_PER_TILE, Line, Strips
from pallas_kernels.edges.tiling import WIDTHS, chunked_slots

SLOTS = CHUNKS_PER_TILE * CHUNK
LINE = Line(SLOTS).length


def fits(check, *numbers):
    try:
        check(*numbers)
    except LimitError:
        return False
    return True


def in_int32(number):
    return -(2**31) <= number < 2**31


@pytest.mark.parametrize(
    ("check", "last", "first"),
    [
        (limits.check_edges, (2**31 - 1024,), (2**31 - 1023,)),
        (limits.check_nodes, (2**31 - 1,), (2**31,)),
        (limits.check_tile_slots, (2**31 - 1,), (2**31,)),
        (limits.check_strips, (8_388_607, LINE, 1), (8_388_608, LINE, 1)),  # 1.07 billion slots
        (limits.check_tpu_words, ("near", (2**24, 256)), ("near", (2**24 + 1, 256))),
        (limits.check_tpu_lines, (2**27, 2), (2**27 + 1, 2)),
    ],
)
def test_the_boundary_is_where_the_arithmetic_ends(check, last, first):
    assert fits(check, *last)
    assert not fits(check, *first)


def test_the_boundaries_are_those_of_the_products_that_kernels_compute():
    assert LINE == 256  # words in the line of a tile
    tiles = limits.MOST_LINE_WORDS // LINE
    assert in_int32(tiles * LINE)
    assert not in_int32((tiles + 1) * LINE)
    # `(row >> 3) * words in eight rows + (row & 7) * 128`, unsigned, of the last row of 256 words.
    row, words = 2**24 - 1, 256
    assert (row >> 3) * 8 * words + (row & 7) * 128 < 2**32 <= ((row + 1) >> 3) * 8 * words
    # `line << 4`, unsigned, of the last line of a table; columns times lines are signed before.
    assert (limits.MOST_TPU_LINES - 1) << 4 < 2**32 <= limits.MOST_TPU_LINES << 4
    assert in_int32(limits.MOST_TPU_LINES)
    # A position past a row's end, as far as a kernel looks, is still a number.
    assert in_int32(limits.MOST_EDGES + max(PIECE_EDGES, *WIDTHS) + 8)
    assert in_int32(limits.MOST_SLOTS)  # one past the last slot stands for padding


def test_the_slots_of_tiles_are_counted_as_they_are_laid_out():
    rng = np.random.default_rng(0)
    receivers = np.sort((rng.random(40_001) ** 3 * 3001).astype(np.int32))
    edges = build_edges(receivers, receivers, num_senders=3001, num_receivers=3001, forms=["tiles"])
    assert edges.tilings is not None
    for tiles in edges.tilings.by_receiver.tiles:
        width = tiles.columns_ctw.shape[2]
        real = int((tiles.columns_ctw[..., 0] >= 0).sum())
        assert chunked_slots(real, width) == tiles.columns_ctw.size


@pytest.mark.parametrize(
    ("form", "constant", "said"),
    [
        ("tiles", "MOST_SLOTS", "slots of tiles"),
        ("strips", "MOST_LINE_WORDS", "tiles of strips"),
        ("strips", "MOST_TPU_BLOCKS", "blocks of rows"),
        ("pieces", "MOST_EDGES", "edges; found 900"),
        ("pieces", "MOST_NODES", "nodes; found 700"),
    ],
)
def test_edges_past_a_limit_are_refused_with_advice(monkeypatch, form, constant, said):
    receivers = np.sort(np.arange(900) % 700)
    sizes = {"num_senders": 700, "num_receivers": 700}
    part = EdgeList(receivers, receivers, np.arange(900))
    build_edges(receivers, receivers, **sizes, forms=[form])
    limit = {"MOST_SLOTS": 1000, "MOST_LINE_WORDS": 10 * LINE, "MOST_TPU_BLOCKS": 3}
    monkeypatch.setattr(limits, constant, limit.get(constant, 699))
    with pytest.raises(LimitError, match=said) as refused:
        build_edges(receivers, receivers, **sizes, forms=[form])
    assert "Use more devices" in str(refused.value)
    with pytest.raises(LimitError, match=said):
        build_stacked_edges([part, part], **sizes, forms=[form])


def test_room_in_stacked_arrays_counts_too(monkeypatch):
    receivers = np.sort(np.arange(900) % 700)
    part = EdgeList(receivers, receivers, np.arange(900))
    edges = build_edges(receivers, receivers, num_senders=700, num_receivers=700)
    assert edges.tilings is not None
    assert edges.strips is not None
    slots = sum(tiles.columns_ctw.size for tiles in edges.tilings.by_receiver.tiles)
    monkeypatch.setattr(limits, "MOST_SLOTS", slots)
    monkeypatch.setattr(limits, "MOST_LINE_WORDS", edges.strips.by_receiver.lines_l.size)
    for form, said in (("tiles", "slots of tiles"), ("strips", "tiles of strips")):
        sizes = {"num_senders": 700, "num_receivers": 700, "forms": [form]}
        build_stacked_edges([part], **sizes)
        with pytest.raises(LimitError, match=said):
            build_stacked_edges([part], **sizes, room=2.0)


def abstract_strips(rows, tiles):
    """Strips of so many rows and tiles, without the arrays."""
    blocks = -(-rows // 512) * 2
    return Strips(
        *(
            jax.ShapeDtypeStruct(shape, jnp.int32)
            for shape in ((blocks + 1,), (tiles * LINE,), (tiles, SLOTS), (tiles, SLOTS))
        ),
        block_rows=256,
    )


def traced_on_tpu(senders, *, dtype=jnp.float32, tiles=100, bias=False):
    """Trace attention over so many senders; nothing is computed or compiled."""
    few, edge_count = 512, 2000
    edges = build_edges(*[np.zeros(0, int)] * 2, num_senders=few, num_receivers=few)
    assert edges.strips is not None
    slot_e = jax.ShapeDtypeStruct((edge_count,), jnp.int32)
    strips = dataclasses.replace(
        edges.strips, by_receiver=abstract_strips(few, tiles), slot_e=slot_e
    )
    edges = dataclasses.replace(edges, strips=strips, tilings=None, pieces=None)
    q = jax.ShapeDtypeStruct((few, 8, 16), dtype)
    row = jax.ShapeDtypeStruct((senders, 8, 16), dtype)
    bias_eh = jax.ShapeDtypeStruct((edge_count, 8), jnp.float32) if bias else None
    forward = functools.partial(TPU.forward, DOT_PRODUCT)
    jax.eval_shape(
        lambda q, sender, edges, bias: forward(q, sender, None, edges, bias, None),
        q, (row, row), edges, bias_eh,
    )  # fmt: skip


def test_a_table_whose_rows_a_tpu_cannot_find_is_refused_while_tracing():
    traced_on_tpu(2**27)
    with pytest.raises(LimitError, match=r"134,217,728 rows of 2 lines.*134,217,729.*bfloat16"):
        traced_on_tpu(2**27 + 1)
    traced_on_tpu(2**28, dtype=jnp.bfloat16)  # key and value share their words
    with pytest.raises(LimitError, match="rows of 1 lines"):
        traced_on_tpu(2**28 + 1, dtype=jnp.bfloat16)


def test_rows_of_edges_that_a_tpu_cannot_find_are_refused_while_tracing():
    traced_on_tpu(512, tiles=2**22, bias=True)
    with pytest.raises(LimitError, match="rows_hbm0"):
        traced_on_tpu(512, tiles=2**22 + 1, bias=True)


def test_the_command_line_tells_a_limit_as_a_mistake():
    with pytest.raises(UserError, match="Use more devices"), limits_told():
        limits.check_edges(2**31)
