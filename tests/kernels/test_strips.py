"""Strips hold every edge once, in order, whatever the sizes of strips, tiles and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from pallas_kernels.edges.strips import STRIP, Line, strips_of_rows
from tests.kernels.oracle import awkward_graphs

GRAPHS = awkward_graphs()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("block_rows", "per_tile"), [(8, 4), (64, 16), (256, 32)])
def test_walking_the_strips_finds_every_edge_in_order_and_writes_every_row(
    name, block_rows, per_tile
):
    senders, receivers, nodes = GRAPHS[name]
    ids = np.arange(len(senders)) + 2**31  # only whole as unsigned numbers
    positions = np.arange(len(senders))
    strips, slot_e = strips_of_rows(
        receivers, senders, positions, ids, nodes, block_rows=block_rows, strips_per_tile=per_tile
    )
    line, found, rows_written = Line(strips.slots), [], set()
    slot_of = {}
    for block in range(strips.num_blocks):
        row = None
        for t in range(strips.tile_starts_b[block], strips.tile_starts_b[block + 1]):
            words = strips.lines_l[t * line.length : (t + 1) * line.length]
            listed = words[line.groups] * STRIP
            columns = words[:listed]
            targets = words[line.targets : line.targets + listed]
            assert len(set(targets)) == listed  # no two copies go to one place
            by_target = dict(zip(targets, columns, strict=True))
            for s in range(line.strips):
                new_row = block * strips.block_rows + words[line.rows + s]
                if words[line.fresh + s]:
                    assert row is None or new_row == row + 1
                else:
                    assert new_row == row
                row = new_row
                rows_written.add(int(row))
                for j in range(words[line.counts + s]):
                    slot = s * STRIP + j
                    position = int(strips.positions_tw[t, slot])
                    slot_of[position] = t * strips.slots + slot
                    edge_id = strips.ids_tw.view(np.uint32)[t, slot]
                    found.append((position, int(row), int(by_target.pop(slot)), int(edge_id)))
            assert all(slot >= strips.slots for slot in by_target)  # the rest is padding
    assert rows_written == set(range(nodes))
    assert found == list(zip(positions, receivers, senders, ids, strict=True))
    assert [slot_of[e] for e in positions] == list(slot_e)
