"""An HTML page as tests look at it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Tags with their attributes and the text between them; what is opened has to be closed."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.words, self.mistakes = [], [], []
        self.figures, self.rows = [], []
        self._open = []
        self.feed(text)
        self.close()
        self.mistakes += self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "figure":
            self.figures.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.mistakes.append(f"</{tag}>")

    def handle_data(self, data):
        self.words.append(data)
        if "figcaption" in self._open:
            self.figures[-1] += data
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(self.words)
