"""The page that a report is written on: its style, and the few kinds of things that stand on it.

Everything that comes from a run is escaped here, so that callers give plain text. There are no
scripts and nothing is fetched. Colours are variables with a value for light and one for dark pages;
pictures take them too (see `figures`).
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from gtjax.runs.report.text import text

# Of classes, as far apart as a dozen can be; also for those who see red and green alike.
_LIGHT = "2f6fb2 d1662b 2e8b57 b23a6f 7a5ab5 a88416 1b93a6 8c4a2f 5c6f1e d65a8e c0392b 3949ab"
_DARK = "6aa9ea ef9a5e 5cc28a ea7fb0 b49cf0 dcb84a 55c8da cf8f6f a9bf55 f5a3c5 ff7a6b 8f9df2"


def _classes(colours: str) -> str:
    return "".join(f" --c{i}: #{colour};" for i, colour in enumerate(colours.split()))


_STYLE = f"""
:root {{ color-scheme: light dark; --ground: #ffffff; --card: #f5f7fa; --ink: #1b2430;
 --soft: #5a6675; --line: #dfe4ea; --accent: #2f6fb2; --second: #d1662b; --other: #9aa4af;
 {_classes(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --ground: #12171e; --card: #1a212b; --ink: #e4e9f0;
 --soft: #9ba7b6; --line: #2c3541; --accent: #6aa9ea; --second: #ef9a5e; --other: #6c7886;
 {_classes(_DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem 1rem 4rem;
 max-width: 76rem; color: var(--ink); background: var(--ground); overflow-wrap: anywhere; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; }}
h2 {{ font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .8rem;
 border-top: 1px solid var(--line); }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 .3rem; }}
p {{ margin: .4rem 0; max-width: 60rem; }}
.soft, figcaption, caption {{ color: var(--soft); }}
.tiles {{ display: grid; gap: .8rem; margin: 1.2rem 0; padding: 0; list-style: none;
 grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }}
.tiles li {{ background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
 padding: .7rem .9rem; }}
.tiles b {{ display: block; font-size: 1.55rem; line-height: 1.3; font-weight: 650;
 font-variant-numeric: tabular-nums; }}
.tiles li:first-child b {{ color: var(--accent); }}
.tiles span {{ display: block; font-size: .85rem; color: var(--soft); }}
.side {{ display: grid; gap: 1rem 2.5rem; align-items: start;
 grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }}
.side > * {{ min-width: 0; max-width: 37rem; }}
figure {{ margin: .6rem 0; min-width: 0; }}
figcaption {{ font-size: .87rem; margin-top: .2rem; }}
svg {{ display: block; max-width: 100%; height: auto; color: var(--ink);
 stroke-linejoin: round; }}
svg text {{ font-family: system-ui, sans-serif; }}
.wide {{ overflow-x: auto; }}
.wide > svg {{ min-width: 34rem; }}
table {{ border-collapse: collapse; margin: .3rem 0; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; font-size: .87rem; }}
td, th {{ padding: .18rem .9rem .18rem 0; text-align: left; vertical-align: top;
 border-bottom: 1px solid var(--line); }}
th {{ font-weight: 600; color: var(--soft); font-size: .87rem; }}
td:first-child, .wide td, .wide th {{ overflow-wrap: normal; }}
td.number, th.number {{ text-align: right; white-space: nowrap; }}
td.bar {{ width: 40%; min-width: 5rem; vertical-align: middle; }}
td.bar span {{ display: block; height: .7rem; border-radius: .2rem; background: var(--accent);
 min-width: 1px; }}
td.bar.predicted span {{ background: var(--other); }}
pre {{ background: var(--card); border: 1px solid var(--line); border-radius: .4rem;
 margin: .5rem 0; padding: .5rem .8rem; white-space: pre-wrap; font-size: .9rem; }}
details {{ margin: .6rem 0; }}
summary {{ cursor: pointer; color: var(--accent); }}
.keys {{ display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .87rem; }}
.keys i {{ display: inline-block; width: .7rem; height: .7rem; border-radius: 50%;
 margin-right: .3rem; }}
@media (max-width: 40rem) {{ td.bar {{ width: 22%; min-width: 3rem; }} }}
@media print {{ body {{ max-width: none; }} }}
"""


def page(title: str, body: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def escaped(value: Any) -> str:
    """Text that can stand anywhere on the page."""
    return html.escape(str(value))


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph; "soft" is for what matters less."""
    return f"<p{_class(kind)}>{escaped(words)}</p>"


def section(title: str, *parts: str) -> str:
    """A heading and what belongs under it."""
    return f"<section><h2>{escaped(title)}</h2>\n" + "\n".join(p for p in parts if p) + "</section>"


def beside(*parts: str) -> str:
    """Side by side where there is room."""
    return f'<div class="side">{"".join(parts)}</div>'


def folded(title: str, *parts: str) -> str:
    """What only some want to see."""
    return f"<details><summary>{escaped(title)}</summary>{''.join(parts)}</details>"


def figure(picture: str, caption: str, *, wide: bool = False) -> str:
    """A picture with what it shows; a wide one is scrolled on narrow screens."""
    inside = f'<div class="wide">{picture}</div>' if wide else picture
    return f"<figure>{inside}<figcaption>{escaped(caption)}</figcaption></figure>"


def tiles(items: Iterable[tuple[str, str, str]]) -> str:
    """What counts most, large: a name, the value, and a word on it."""
    cells = (
        f"<li><span>{escaped(name)}</span><b>{escaped(value)}</b><span>{escaped(more)}</span></li>"
        for name, value, more in items
    )
    return f'<ul class="tiles">{"".join(cells)}</ul>'


def pairs(values: dict[str, Any]) -> str:
    """A table of names and values."""
    rows = (
        f"<tr><td>{escaped(name)}</td><td>{escaped(text(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>" if values else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a head, which is scrolled on narrow screens; numbers stand to the right."""
    rows = [list(row) for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]

    def line(tag: str, cells: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{_class('number' if right else '')}>{escaped(_cell(cell))}</{tag}>"
            for cell, right in zip(cells, numeric, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{line('th', columns)}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def bars(rows: Iterable[tuple[str, float, str]], caption: str, kind: str = "") -> str:
    """Names with bars of their share of the longest, and what to say of each."""
    rows = list(rows)
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    body = "".join(
        f"<tr><td>{escaped(name)}</td>"
        f'<td{_class(f"bar {kind}".strip())}><span style="width: {100 * value / longest:.1f}%">'
        f'</span></td><td class="number">{escaped(more)}</td></tr>'
        for name, value, more in rows
    )
    return figure(f"<table>{body}</table>", caption)


def _cell(value: Any) -> str:
    """Fractions with the same number of places, so that those of a column compare."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4f}"
    return "" if value is None else text(value)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
