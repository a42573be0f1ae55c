"""The report: one file, nothing fetched, nothing from the data trusted."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from gtjax.training.loop import fit
from tests.training.small_run import small_config

NAME = "<script>alert('&')</script>{title}"


class Collector(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory):
    named = dataclasses.replace(graph, name=NAME)
    return fit(named, config=small_config(tmp_path_factory.mktemp("report") / "run"))


@pytest.fixture(scope="module")
def page(run):
    return (run.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(page):
    collector = Collector()
    collector.feed(page)
    return collector


def test_nothing_is_fetched(page, parsed):
    assert parsed.tags
    for tag, attributes in parsed.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name, value in attributes.items():
            if name in {"src", "href", "xlink:href", "data", "srcset", "poster", "action"}:
                assert (value or "").startswith(("#", "data:")), (tag, name, value)
            assert not name.startswith("on"), (tag, name)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page)


def test_what_the_data_says_is_text(page, parsed):
    assert "<script" not in page
    assert any(NAME in words for words in parsed.words)


def test_it_shows_the_result_the_settings_and_pictures(run, page, parsed):
    text = " ".join(parsed.words)
    assert f"{run['test_accuracy']:.4g}" in text
    for words in ("training loss", "in-degree", "best on val", "model.hidden", "jaxlib"):
        assert words in text, words
    assert page.count("<svg") == 3
    assert page.count("</html>") == 1
