"""The picture shows every part and what crosses, for any number of parts, the same every time."""

import re
from itertools import pairwise

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.partition import CutStats, Partition
from gtjax.partition.picture import draw_cut, ring_order

GRAPH = GENERATORS["grid"](rows=20, columns=30, features=1)


def cut_into(num_parts):
    return Partition(np.arange(600) * num_parts // 600, num_parts).cut(GRAPH)


@pytest.mark.parametrize("num_parts", [1, 2, 8, 64])
def test_every_part_has_its_number_and_the_caption_its_figures(tmp_path, num_parts):
    cut = cut_into(num_parts)
    draw_cut(cut, tmp_path / "cut.svg", "a title")
    draw_cut(cut, tmp_path / "again.svg", "a title")
    text = (tmp_path / "cut.svg").read_text()
    assert text == (tmp_path / "again.svg").read_text()
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert set(map(str, range(num_parts))) <= set(labels)
    assert "a title" in labels
    assert any(f"{100 * cut.cut:.3g}% of {cut.num_edges:,} edges cut" in label for label in labels)


def test_wider_lines_are_more_edges(tmp_path):
    edges_pq = np.array([[9, 10, 2], [10, 9, 5], [2, 5, 9]])
    halo_pq = np.minimum(edges_pq, 2) * (1 - np.eye(3, dtype=int))
    draw_cut(CutStats(np.array([4, 4, 4]), edges_pq, halo_pq), tmp_path / "cut.svg")
    text = (tmp_path / "cut.svg").read_text()
    widths = [float(w) for w in re.findall(r"stroke: #5b8db8; stroke-width: ([\d.]+)", text)]
    assert [round(w / max(widths), 2) for w in widths] == [0.2, 0.5, 1.0]


def test_png_and_empty_parts(tmp_path):
    cut = Partition(np.arange(600) % 2 * 2, 4).cut(GRAPH)
    draw_cut(cut, tmp_path / "cut.PNG")
    assert (tmp_path / "cut.PNG").read_bytes().startswith(b"\x89PNG")


def test_parts_that_share_much_stand_side_by_side():
    weight_pq = np.zeros((6, 6), int)
    chain = [3, 0, 5, 1, 4, 2]
    for first, second in pairwise(chain):
        weight_pq[first, second] = weight_pq[second, first] = 10
    found = ring_order(weight_pq).tolist()
    assert found in (chain, chain[::-1])
    assert sorted(ring_order(np.zeros((5, 5), int)).tolist()) == list(range(5))
    assert ring_order(np.ones((1, 1), int)).tolist() == [0]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"ends in \.svg or \.png; found 'cut\.pdf'"):
        draw_cut(cut_into(2), "cut.pdf")
    with pytest.raises(UserError, match="cannot write the picture"):
        draw_cut(cut_into(2), tmp_path / "none" / "cut.svg")
