"""Strips hold every edge once, whatever the sizes of tiles and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from pallas_kernels.edges.strips import (
    CHUNK,
    COUNT_BITS,
    FRESH_BIT,
    HUB,
    HUB_BIT,
    STRIP,
    Line,
    strips_of_rows,
)
from tests.kernels.oracle import awkward_graphs

GRAPHS = awkward_graphs()


def counts_of(word):
    return [(word >> (COUNT_BITS * s)) & (2**COUNT_BITS - 1) for s in range(STRIP)]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("block_rows", "per_tile"), [(8, 1), (64, 2), (256, 4)])
def test_walking_the_strips_finds_every_edge_in_order_and_writes_every_row_that_has_one(
    name, block_rows, per_tile
):
    senders, receivers, nodes = GRAPHS[name]
    ids = np.arange(len(senders)) + 2**31  # only whole as unsigned numbers
    positions = np.arange(len(senders))
    strips, slot_e = strips_of_rows(
        receivers, senders, positions, ids, nodes, block_rows=block_rows, chunks_per_tile=per_tile
    )
    line, found, slot_of = Line(strips.slots), {}, {}
    written = {}  # by row, the number of edges that were seen when it was written last
    for block in range(strips.num_blocks):
        seen = [0] * STRIP
        for t in range(strips.tile_starts_b[block], strips.tile_starts_b[block + 1]):
            words = strips.lines_l[t * line.length : (t + 1) * line.length]
            for chunk in range(line.chunks):
                word = int(words[line.words + chunk])
                if word >> FRESH_BIT & 1:
                    seen = [0] * STRIP
                first = line.rows + chunk * STRIP
                rows = [block * strips.block_rows + int(r) for r in words[first : first + STRIP]]
                for s, count in enumerate(counts_of(word)):
                    for step in range(count):
                        slot = chunk * CHUNK + step * STRIP + s
                        position = int(strips.positions_tw[t, slot])
                        slot_of[position] = t * strips.slots + slot
                        edge_id = int(strips.ids_tw.view(np.uint32)[t, slot])
                        found[position] = (rows[s], int(words[slot]), edge_id)
                    seen[s] += count
                hub = word >> HUB_BIT & 1
                assert not hub or len(set(rows)) == 1
                for s, row in enumerate(rows):
                    written[row] = sum(seen) if hub else seen[s]
    want = zip(receivers.tolist(), senders.tolist(), ids.tolist(), strict=True)
    assert found == dict(zip(positions.tolist(), want, strict=True))
    degrees = np.bincount(receivers, minlength=nodes)
    assert written == {r: d for r, d in enumerate(degrees.tolist()) if d}
    assert [slot_of[e] for e in positions] == list(slot_e)
    # Whatever is fetched is there.
    assert not len(senders) or strips.lines_l.reshape(-1, line.length)[:, : line.slots].max() < max(
        1, senders.max() + 1
    )


def test_rows_of_all_lengths_cost_little_padding():
    rng = np.random.default_rng(0)
    rows = np.sort((rng.random(60_000) ** 4 * 4001).astype(np.int32))
    assert np.bincount(rows).max() > 10 * HUB
    numbers = np.arange(len(rows))
    strips, _ = strips_of_rows(rows, rows, numbers, numbers, 4001)
    assert strips.tile_starts_b[-1] * strips.slots < 1.3 * len(rows)
