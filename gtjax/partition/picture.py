"""A picture of a partition: parts as discs in a ring, and what crosses between them as lines.

The area of a disc is the part's nodes, its colour the share of its in-edges that come from
elsewhere; the width of a line is the number of edges between two parts. Parts that share many edges
stand side by side. The ground is transparent and every colour is of middle brightness, so that it
reads on white and on black pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.partition.cut import CutStats

FORMATS = (".svg", ".png")

_INK = "#7f8791"
_LINE = "#5b8db8"
_RAMP = ["#3f9d6b", "#e0a93e", "#cf5a4f"]  # little of the part's work comes from elsewhere, to all
_WIDEST = 9.0  # points
_INK_POINTS = 300.0  # of all lines side by side: more would leave no ground to see them on
_FAINTEST = 0.004  # of the widest line: thinner ones are left out


def check_picture(path: str | Path) -> None:
    """A picture is written as SVG or PNG."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UserError(
            f"a picture ends in {' or '.join(FORMATS)}; found {str(path)!r}. Rename it."
        )


def draw_cut(cut: CutStats, path: str | Path, title: str = "") -> None:
    """Write the picture; the same counts give the same bytes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    check_picture(path)
    path = Path(path)
    style: dict[Any, Any] = {"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}
    style["text.color"] = _INK
    with rc_context(style):
        figure = Figure(figsize=(6.4, 7.0), layout="constrained", facecolor="none")
        axes = figure.add_subplot()
        _draw(figure, axes, cut)
        axes.set_title(_caption(cut, title), fontsize=10, color=_INK)
        try:
            if path.suffix.lower() == ".svg":
                with path.open("w", encoding="utf-8") as file:
                    FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
            else:
                FigureCanvasAgg(figure)
                figure.savefig(path, dpi=150, transparent=True)
        except OSError as error:
            raise UserError(f"cannot write the picture {path}: {error.strerror}.") from error


def ring_order(weight_pq: np.ndarray) -> np.ndarray:
    """Parts in the order in which they stand in the ring: each beside one it shares much with."""
    weight_pq = weight_pq.astype(np.float64)
    np.fill_diagonal(weight_pq, -1.0)
    ends = list(np.unravel_index(weight_pq.argmax(), weight_pq.shape))
    ring = [int(end) for end in dict.fromkeys(ends)]
    left = set(range(len(weight_pq))) - set(ring)
    while left:
        rest = sorted(left)
        first, last = weight_pq[ring[0], rest], weight_pq[ring[-1], rest]
        if first.max() > last.max():
            ring.insert(0, rest[int(first.argmax())])
            left.remove(ring[0])
        else:
            ring.append(rest[int(last.argmax())])
            left.remove(ring[-1])
    return np.array(ring)


def _draw(figure: Any, axes: Any, cut: CutStats) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    count = cut.num_parts
    weight_pq = cut.edges_pq + cut.edges_pq.T
    angle_p = np.empty(count)
    angle_p[ring_order(weight_pq)] = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    place_px = np.stack([np.cos(angle_p), np.sin(angle_p)], axis=1) * (count > 1)
    chord = 2 * np.sin(np.pi / count) if count > 1 else 1.0
    largest = min(0.46 * chord, 0.28)
    radius_p = largest * np.sqrt(cut.nodes_p / max(1, cut.nodes_p.max()))
    _lines(axes, weight_pq, place_px)
    colours = LinearSegmentedColormap.from_list("cut", _RAMP)
    share_p = cut.cut_edges_p / np.maximum(1, cut.edges_p)
    scale = Normalize(0.0, max(0.01, float(share_p.max())))
    for part in range(count):
        _disc(axes, place_px[part], radius_p[part], colours(scale(share_p[part])))
        _label(axes, place_px[part], radius_p[part], part, count)
    room = 1.08 + largest
    axes.set(xlim=(-room, room), ylim=(-room, room), aspect="equal")
    axes.set_axis_off()
    bar = figure.colorbar(
        ScalarMappable(scale, colours), ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.01
    )
    bar.set_label("share of a part's in-edges that come from other parts", color=_INK)
    bar.ax.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.ax.tick_params(colors=_INK)
    bar.outline.set_visible(False)


def _lines(axes: Any, weight_pq: np.ndarray, place_px: np.ndarray) -> None:
    """Curves that bend towards the middle, the widest on top."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    first, second = np.triu_indices(len(weight_pq), k=1)
    weight = weight_pq[first, second]
    if not len(weight) or not weight.max():
        return
    widest = _WIDEST * min(1.0, (12 / len(weight_pq)) ** 0.5)
    widest = min(widest, _INK_POINTS * weight.max() / weight.sum())
    for at in np.argsort(weight, kind="stable"):
        share = weight[at] / weight.max()
        if share < _FAINTEST:
            continue
        start, end = place_px[first[at]], place_px[second[at]]
        points = [start, 0.25 * (start + end), end]
        curve = Curve(points, [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
        width = max(0.1, widest * share)
        opacity = 0.25 + 0.45 * share
        axes.add_patch(
            PathPatch(curve, fc="none", ec=_LINE, lw=width, alpha=opacity, capstyle="butt")
        )


def _disc(axes: Any, place: np.ndarray, radius: float, colour: Any) -> None:
    from matplotlib.patches import Circle

    centre = (float(place[0]), float(place[1]))
    if radius > 0:
        axes.add_patch(Circle(centre, radius, fc=colour, ec="none", zorder=3))
    else:  # an empty part: a place without a disc
        axes.add_patch(Circle(centre, 0.012, fc="none", ec=_INK, lw=0.8, zorder=3))


def _label(axes: Any, place: np.ndarray, radius: float, part: int, count: int) -> None:
    """The number inside the disc if there is room, else outside the ring."""
    size = 9.0 if count <= 24 else 6.5
    points_a_unit = 165.0
    centred = {"ha": "center", "va": "center", "fontsize": size, "zorder": 4}
    if 2 * radius * points_a_unit > 1.6 * size:
        axes.text(*place, str(part), color="white", fontweight="bold", **centred)
    else:
        away = place * (1 + radius + 0.05)
        axes.text(*away, str(part), color=_INK, **centred)


def _caption(cut: CutStats, title: str) -> str:
    parts = "1 part" if cut.num_parts == 1 else f"{cut.num_parts} parts"
    figures = (
        f"{parts}, {100 * cut.cut:.3g}% of {cut.num_edges:,} edges cut; largest over mean: "
        f"edges {cut.edge_imbalance:.2f}, nodes {cut.node_imbalance:.2f}"
    )
    return f"{title}\n{figures}" if title else figures
