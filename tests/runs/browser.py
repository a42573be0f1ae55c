"""A page in a real browser, where there is one: what it measures, and what it complains of."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")
_WRAPPER = """<!doctype html><meta charset="utf-8"><title>none</title>
<iframe id="page" style="border: 0; width: {width}px; height: 900px" srcdoc="{page}"></iframe>
<script>
document.getElementById("page").onload = function () {{
  var inside = this.contentDocument, root = inside.documentElement;
  document.title = JSON.stringify({{
    width: root.clientWidth, needed: root.scrollWidth,
    figures: inside.querySelectorAll("figure").length,
    captions: inside.querySelectorAll("figure > figcaption").length,
    pictures: Array.from(
      inside.querySelectorAll("figure svg"), each => each.getBoundingClientRect().width),
    ground: getComputedStyle(inside.body).backgroundColor
  }});
}};
</script>
"""


def found_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def measured(page, width, folder):
    """How wide the page is and has to be in so many pixels; and what the console says."""
    wrapper = folder / f"wrapper-{width}.html"
    wrapper.write_text(_WRAPPER.format(width=width, page=html.escape(page)), encoding="utf-8")
    done = subprocess.run(
        [
            found_browser(), "--headless", "--no-sandbox", "--disable-gpu",
            "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=5000", "--window-size=1600,1000", "--dump-dom", wrapper.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    title = re.search(r"<title>(.*?)</title>", done.stdout).group(1)
    return json.loads(html.unescape(title)), said
