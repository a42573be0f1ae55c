"""The pictures of a classifier, written as SVG by hand where that is smaller than a drawing."""

from __future__ import annotations

from typing import Any

import numpy as np

from gtjax.runs.report.drawing import ACCENT, SECOND, SOFT, drawn
from gtjax.runs.report.page import escaped, figure
from gtjax.runs.report.scores import Calibration

COLOURS = 12  # of classes, that the page has
_CELL, _EDGE = 38, 62


def heat_map(counts_cc: np.ndarray, names: list[str]) -> str:
    """A confusion matrix: rows are what nodes are, columns what they are said to be."""
    count = len(names)
    across = _EDGE + count * _CELL + 4
    share_cc = counts_cc / np.maximum(1, counts_cc.sum(axis=1, keepdims=True))
    parts = [
        f'<svg viewBox="0 0 {across} {across}" width="{across}" height="{across}" role="img" '
        'aria-label="confusion matrix" font-size="11" text-anchor="middle">',
        f'<text x="{_EDGE + count * _CELL / 2}" y="14" fill="var(--soft)">predicted class</text>',
        f'<text transform="translate(14 {_EDGE + count * _CELL / 2}) rotate(-90)" '
        'fill="var(--soft)">true class</text>',
    ]
    for i, name in enumerate(names):
        middle = _EDGE + (i + 0.6) * _CELL
        shown = escaped(name if len(name) <= 6 else name[:5] + "…")
        parts.append(
            f'<text x="{middle - 4:.0f}" y="{_EDGE - 8}" fill="currentColor">{shown}</text>'
        )
        parts.append(
            f'<text x="{_EDGE - 8}" y="{middle:.0f}" fill="currentColor" text-anchor="end">'
            f"{shown}</text>"
        )
    cells = (
        _cell(i, j, int(counts_cc[i, j]), float(share_cc[i, j]), names)
        for i, j in np.ndindex(count, count)
    )
    return "".join([*parts, *cells, "</svg>"])


def _cell(i: int, j: int, number: int, share: float, names: list[str]) -> str:
    x, y = _EDGE + j * _CELL, _EDGE + i * _CELL
    colour = "var(--accent)" if i == j else "var(--second)"
    ink = "var(--ground)" if share > 0.55 else "currentColor"
    shown = "" if not number else f"{number:,}" if number < 10_000 else f"{number / 1000:.0f}k"
    said = escaped(f"{number:,} of class {names[i]} predicted as {names[j]} ({100 * share:.1f} %)")
    return (
        f'<g><title>{said}</title><rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" '
        f'rx="3" fill="var(--card)"/><rect x="{x}" y="{y}" width="{_CELL - 1}" '
        f'height="{_CELL - 1}" rx="3" fill="{colour}" fill-opacity="{share:.3f}"/>'
        f'<text x="{x + (_CELL - 1) / 2}" y="{y + 23}" fill="{ink}">{shown}</text></g>'
    )


def reliability(found: Calibration, what: str) -> str:
    """How often answers are right against how sure the model is of them."""

    def draw(axes: Any) -> None:
        share_b = found.count_b / found.count_b.sum()
        axes.bar(found.sure_b, share_b, width=0.05, color=SOFT, alpha=0.5, label="share of answers")
        axes.plot([0, 1], [0, 1], color=SECOND, lw=1, ls="--", label="as sure as right")
        axes.plot(found.sure_b, found.right_b, color=ACCENT, marker="o", ms=4, label="this model")
        axes.set(xlabel="probability of the predicted class", ylabel="share that is right")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.legend(frameon=False, loc="upper left", fontsize=8)

    return figure(
        drawn("reliability", draw, 4.8, 3.4),
        f"Calibration on the test nodes, {what}, in ten bins; the expected calibration error "
        f"(ECE) is {found.ece:.4f}. Above the dashed line the model is less sure than it could be.",
    )


def scatter(place_nx: np.ndarray, group_n: np.ndarray, names: list[str]) -> str:
    """Points in groups; the last group of more than there are colours is grey, as is group -1."""
    width, height, room = 520, 400, 8
    low, high = place_nx.min(axis=0), place_nx.max(axis=0)
    scale_nx = (place_nx - low) / np.where(high > low, high - low, 1.0)
    at_nx = np.rint(room + scale_nx * (np.array([width, height]) - 2 * room)).astype(int)
    at_nx[:, 1] = height - at_nx[:, 1]
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-label="embeddings" fill="none" stroke-linecap="round" stroke-width="4.5" '
        'stroke-opacity="0.65">'
    ]
    for group in [-1, *range(len(names) - 1, -1, -1)]:
        points = "".join(f"M{x} {y}h0" for x, y in at_nx[group_n == group])
        if points:
            parts.append(f'<path stroke="{colour(group)}" d="{points}"/>')
    keys = "".join(
        f'<span><i style="background: {colour(group)}"></i>{escaped(name)}</span>'
        for group, name in enumerate(names)
    )
    return "".join([*parts, "</svg>", f'<div class="keys">{keys}</div>'])


def colour(group: int) -> str:
    """Of a group of points."""
    return f"var(--c{group})" if 0 <= group < COLOURS else "var(--other)"
