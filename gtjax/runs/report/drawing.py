"""Matplotlib's drawings as parts of a page, in the colours of the page.

Matplotlib knows no style sheets: it draws in colours that stand for something, and here they become
what they stand for. Its drawings name their parts alike, so every one gets names of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

INK, ACCENT, SECOND, SOFT = "#010203", "#010204", "#010205", "#010206"
_MEANING = {
    INK: "currentColor",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    SOFT: "var(--other)",
}
_INKS = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def drawn(name: str, draw: Callable[[Any], None], width: float = 4.8, height: float = 3.0) -> str:
    """What `draw` puts on one pair of axes; `name` is unlike that of any other on the page."""

    def on(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)

    return drawn_figure(name, on, width, height)


def drawn_figure(name: str, draw: Callable[[Any], None], width: float, height: float) -> str:
    """What `draw` puts on a figure, inches wide and high."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 10}
    style |= dict.fromkeys(_INKS, INK) | {"axes.facecolor": "none"}
    with rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        draw(figure)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return _of_the_page(file.getvalue(), name)


def _of_the_page(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    # A style sheet in here would be one of the whole page; the metadata nobody reads.
    svg = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    for colour, meaning in _MEANING.items():
        svg = svg.replace(colour, meaning)
    return svg.strip()
