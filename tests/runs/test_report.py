"""The report: one file, nothing fetched, nothing from the data trusted, every number right."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from scipy.stats import binomtest

from gtjax.runs.loop import fit, resume
from gtjax.runs.report import costs, figures
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from tests.runs.browser import found_browser, measured
from tests.runs.html_page import Page
from tests.runs.small_run import STEPS, small_config

NAME = "<script>alert('&')</script>{title}"
COMMAND = "gtjax train --data '<b>&{}'"


@pytest.fixture(scope="module", autouse=True)
def figures_drawn_once():
    """Not here: every figure is drawn."""


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory):
    named = dataclasses.replace(graph, name=NAME)
    config = small_config(tmp_path_factory.mktemp("report") / "run")
    return fit(named, config=config, command=COMMAND)


@pytest.fixture(scope="module")
def page(run):
    return (run.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page)


@pytest.fixture(scope="module")
def tested(graph, run):
    """Labels, probabilities and numbers of the test nodes, from the run's checkpoint."""
    p_nc = TrainedRun(*RunFolder.open(run.folder)).predict(graph).answers_nc
    node_n = np.flatnonzero(graph.split_n["test"] & (graph.labels_n >= 0))
    return graph.labels_n[node_n], p_nc[node_n], node_n


def test_nothing_is_fetched(page, parsed):
    assert parsed.tags
    for tag, attributes in parsed.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name, value in attributes.items():
            if name in {"src", "href", "xlink:href", "data", "srcset", "poster", "action"}:
                assert (value or "").startswith(("#", "data:")), (tag, name, value)
            assert not name.startswith("on"), (tag, name)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page)
    assert len(page) < 1e6


def test_it_is_whole_and_no_name_is_used_twice(page, parsed):
    assert parsed.mistakes == []
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [
        value[1:]
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in ("href", "xlink:href")
    ]
    links += re.findall(r"url\(#([^)]*)\)", page)
    assert links
    assert set(links) <= set(ids)


def test_what_the_data_says_is_text(page, parsed):
    assert "<script" not in page
    assert "<b>&" not in page
    assert any(NAME in words for words in parsed.words)
    assert COMMAND in parsed.words


def test_every_figure_has_a_caption(parsed):
    assert len(parsed.figures) == 8
    assert all(len(caption) > 20 for caption in parsed.figures)


def test_it_follows_the_colours_of_the_screen(page):
    assert "prefers-color-scheme: dark" in page
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert "currentColor" in pictures
    assert not re.search(r"#0{6}|#010[0-9]{3}|#ffffff", pictures)


def test_what_was_asked_comes_before_what_is_as_ever(page, run):
    asked, rest = page.split("settings as they are by default")
    for name in ("steps", "model.hidden", "optim.warmup"):
        assert f"<td>{name}</td>" in asked, name
        assert f"<td>{name}</td>" not in rest, name
    assert "<td>optim.clip</td>" in rest
    assert "<td>optim.clip</td>" not in asked
    date = json.loads((run.folder / "asked.json").read_text())["date"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", date)
    assert date in page


def test_the_metric_stands_first_with_its_interval(run, parsed, tested):
    label_n, p_nc, _ = tested
    right = int((p_nc.argmax(axis=1) == label_n).sum())
    sure = binomtest(right, len(label_n)).proportion_ci(method="wilson")
    assert f"{run['test_accuracy']:.4f}" == f"{right / len(label_n):.4f}" in parsed.words
    assert f"95 % sure: {sure.low:.4f} to {sure.high:.4f}" in parsed.text


def test_the_table_of_classes_and_the_matrix_are_those_of_the_predictions(page, parsed, tested):
    label_n, p_nc, _ = tested
    said_n = p_nc.argmax(axis=1)
    for c in range(4):
        of_n, hit_n = label_n == c, said_n == c
        both = (of_n & hit_n).sum()
        precision = f"{both / hit_n.sum():.4f}" if hit_n.any() else "-"
        f1 = f"{2 * both / (of_n.sum() + hit_n.sum()):.4f}"
        row = [str(c), str(of_n.sum()), precision, f"{both / of_n.sum():.4f}", f1]
        assert row in parsed.rows
        for d in range(4):
            assert f"{(of_n & (said_n == d)).sum()} of class {c} predicted as {d} (" in page


def test_the_calibration_error_is_that_of_the_predictions(parsed, tested):
    label_n, p_nc, _ = tested
    sure_n, right_n = p_nc.max(axis=1), p_nc.argmax(axis=1) == label_n
    bins = [(sure_n >= low / 10) & (sure_n < low / 10 + 0.1) for low in range(10)]
    ece = sum(abs(sure_n[b].sum() - right_n[b].sum()) for b in bins) / len(label_n)
    (said,) = re.findall(r"\(ECE\) is ([\d.]+)\.", parsed.text)
    assert float(said) == pytest.approx(ece, abs=1e-4)


def test_the_worst_nodes_are_those_of_the_predictions(parsed, tested):
    label_n, p_nc, node_n = tested
    true_n = p_nc[np.arange(len(label_n)), label_n]
    worst = int(true_n.argmin())
    said = int(p_nc[worst].argmax())
    at = parsed.rows.index(
        ["node", "true class", "predicted", "its probability", "of the true class"]
    )
    assert parsed.rows[at + 1][:3] == [str(node_n[worst]), str(label_n[worst]), str(said)]
    assert float(parsed.rows[at + 1][3]) == pytest.approx(p_nc[worst, said], abs=1e-4)
    assert float(parsed.rows[at + 1][4]) == pytest.approx(true_n[worst], abs=1e-4)


def test_time_and_memory_are_those_of_the_result(run, parsed):
    spent = run["seconds"]
    assert {"compiling", "preparing", "training steps", "other"} <= set(spent)
    assert all(seconds >= 0 for seconds in spent.values())
    assert spent["training steps"] == pytest.approx(_dispatched(run.folder), rel=0.05, abs=0.005)
    assert run["memory"]["peak_bytes"] > 1e7
    assert run["memory"]["limit_bytes"] > run["peak_bytes_per_device"] > 0
    for words in ("compiling", "where the", "GiB", "One device", "in-degree", "jaxlib"):
        assert words in parsed.text, words


def test_both_losses_are_drawn(run, page, parsed):
    rows = [row for row in RunFolder(run.folder).metrics() if "val_loss" in row]
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert all(0 < row["val_loss"] < 5 for row in rows)
    assert "Val: the same loss of what is validated" in parsed.text
    without = figures.curves([{"step": 1, "loss": 2.0}], "accuracy", 1)
    assert "Val:" not in without
    assert page.count("<path") > without.count("<path")


def test_what_a_step_is_made_of_is_said_where_it_was_measured(run, parsed):
    # Runs as short as this one are sampled on slow machines only.
    assert ("Measured in traces" in parsed.text) == (run["step_shares"] is not None)
    shares = {"edges": 0.5, "dense": 0.3, "other": 0.2}
    shown = Page(costs.time(run.values | {"step_shares": shares, "seconds_per_step": 2.0}, None))
    assert "Measured in traces of some steps: what a step of 2 s is made of." in shown.text
    assert ["edges", "", "1 s, 50 %"] in shown.rows
    assert ["dense layers", "", "600 ms, 30 %"] in shown.rows


def _dispatched(folder):
    rows, steps, seconds = RunFolder(folder).metrics(), 0, 0.0
    for row in rows:
        steps += 1
        if "seconds_per_step" in row:
            seconds, steps = seconds + steps * row["seconds_per_step"], 0
    return seconds


def test_a_resumed_run_tells_of_both_times(graph, run, tmp_path):
    folder, config = RunFolder.open(run.folder)
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in run.folder.rglob("*"):
        target = copied / path.relative_to(run.folder)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    again = f"gtjax resume copy --steps {STEPS + 2}"
    result = resume(
        dataclasses.replace(folder, path=copied),
        dataclasses.replace(config, steps=STEPS + 2),
        graph,
        command=again,
    )
    assert len(result["losses"]) == STEPS + 2
    page = Page((copied / "report.html").read_text(encoding="utf-8"))
    assert f"{COMMAND}\n{again}" in page.words
    assert f"since the run was resumed at step {STEPS}" in page.text
    assert ["steps", str(STEPS + 2)] in page.rows
    assert not (copied / "running.json").exists()


@pytest.mark.skipif(found_browser() is None, reason="there is no Chromium or Chrome")
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_shows_it_without_complaint(page, width, tmp_path):
    seen, said = measured(page, width, tmp_path)
    assert said == []
    assert seen["width"] >= width - 20  # a bar to scroll with
    assert seen["needed"] <= seen["width"]
    assert seen["figures"] == seen["captions"] == 8
    assert min(seen["pictures"]) > 200
