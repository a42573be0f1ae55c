"""Mistakes: exit code 2, one clear message on stderr, no traceback, and nothing left behind."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from gtjax.cli.arguments import integer
from gtjax.cli.suggest import SYNONYMS, suggestion
from gtjax.cli.train import parsed
from tests.cli.small_options import SMALL


def assert_mistake(outcome, *said):
    """Said on stderr; the words may be broken over the lines of a box."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    words = re.sub(r"[\s│╭╮╰╯─]+", " ", outcome.err)
    for each in said:
        assert each in words


def test_no_command_shows_the_commands(gtjax):
    outcome = gtjax()
    assert outcome.code == 2
    assert "usage: gtjax COMMAND" in outcome.out


@pytest.mark.parametrize(("word", "near"), [("trian", "train"), ("predictt", "predict")])
def test_an_unknown_command_suggests_the_nearest(gtjax, word, near):
    assert_mistake(gtjax(word), f"unknown command {word!r}. Did you mean {near!r}?")


def test_a_command_like_no_other_shows_the_commands(gtjax):
    outcome = gtjax("xyzzy")
    assert_mistake(outcome, "unknown command 'xyzzy'. usage: gtjax COMMAND")
    assert "Did you mean" not in outcome.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["train", "--stepz", "3"], "train has no option --stepz: did you mean --steps?"),
        (["train", "--model.hiden", "3"], "did you mean --model.hidden?"),
        (["train", "--lr", "0.1"], "did you mean --optim.learning-rate?"),
        (["train", "--lr=0.1"], "has no option --lr: did you mean --optim.learning-rate?"),
        (["train", "--learning_rate", "0.1"], "did you mean --optim.learning-rate?"),
        (["train", "--epochs", "3"], "did you mean --steps?"),
        (["train", "--hidden-dim", "3"], "did you mean --model.hidden?"),
        (["train", "--num-layers", "3"], "did you mean --model.layers?"),
        (["train", "--gpus", "3"], "did you mean --devices?"),
        (["train", "--batch-size", "3"], "with --batching graphs or neighbours or clusters alone"),
        (["train", "--batch-sise", "3"], "did you mean --batch-size?"),
        (["train", "--confg", "c.toml"], "did you mean --config?"),
        (["train", "graph.npz"], "train does not expect 'graph.npz': see gtjax train --help"),
        (["plan", "cora", "--num-gpus", "3"], "did you mean --devices?"),
        (["partition", "cora", "-k", "2", "--num-parts", "2"], "did you mean --parts?"),
        (["launch", "--nproc", "2", "--", "train"], "did you mean --processes?"),
        (["evaluate", "run", "--jsn"], "did you mean --json?"),
        (["doctor", "--verbose"], "doctor has no option --verbose: see gtjax doctor --help"),
        (["train", "--steps", "x"], "--steps: an integer, such as 200 or 1e3; found 'x'"),
        (["train", "--steps", "1.5"], "--steps: an integer, such as 200 or 1e3; found '1.5'"),
        (["train", "--devices", "nan"], "an integer, such as 200 or 1e3; found 'nan'"),
        (["train", "--steps"], "--steps"),
        (["train", "--steps", "0"], "steps is at least 1; found 0"),
        (["train", "--seed", "-1"], "seed is in 0..2^32-1; found -1"),
        (["train", "--repartition", "-1"], "repartition is not negative; found -1"),
        (["train", "--clusters", "0"], "clusters is at least 1; found 0"),
        (
            ["train", "--metric", "f1"],
            "is one of auto, accuracy, roc_auc, cross_entropy, mae",
        ),
        (["train", "--task", "link", "--metric", "mae"], "metric is one of auto, roc_auc, aver"),
        (["train", "--model", "gta"], "unknown model 'gta'. Did you mean 'gat'?"),
        (["train", "--model", "no_such:Model"], "cannot be imported: No module named 'no_such'"),
        (["train", "--model", "gcn", "--model.heads", "3"], "--model.heads"),
        (["plan", "--model", "gta"], "unknown model 'gta'. Did you mean 'gat'?"),
        (["train", "--task", "nod"], "unknown task 'nod'. Did you mean 'node'?"),
        (["train", "--optim.learning-rate", "inf"], "learning_rate is finite; found inf"),
        (["train", "--model.heads", "5"], "model.heads divides model.hidden: 64 is not a multiple"),
        (["train", "--config"], "argument --config: expected one argument"),
        (["resume"], "PATH Folder of the run, or its address such as s3://bucket/run. (required)"),
        (["predict", "run"], "--out"),
    ],
)
def test_a_bad_option_names_itself(gtjax, argv, said):
    assert_mistake(gtjax(*argv), said)


def test_a_file_that_is_not_there(gtjax, out):
    outcome = gtjax("train", "--data", "nope.npz", "--out", out)
    assert_mistake(outcome, "'nope.npz' is neither a file nor the name of a data set")
    assert not out.exists()
    assert_mistake(gtjax("datasets", "synthetic-citatoin"), "synthetic-citation")
    assert_mistake(gtjax("train", "--data", "rmat:nodez=5", "--out", out), "nodes")


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04" + bytes(40)])
def test_a_malformed_data_file(gtjax, tmp_path, out, content):
    path = tmp_path / "graph.npz"
    path.write_bytes(content)
    outcome = gtjax("train", "--data", path, "--out", out)
    assert_mistake(outcome, str(path)[-20:])
    assert not out.exists()


def test_a_data_file_that_breaks_a_rule(gtjax, tmp_path, out):
    path = tmp_path / "graph.npz"
    np.savez(path, senders=[0, 9], receivers=[1, 0], x=np.zeros((3, 2)), labels=[0, 1, 0])
    assert_mistake(gtjax("train", "--data", path, "--out", out), "graph.npz: ", "found")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = ", "a config is TOML, or JSON if it ends in .json"),
        ("stepz = 3", "unknown setting 'stepz'. Did you mean 'steps'?"),
        ('steps = "3"', "steps is int; found '3'"),
        ("[model]\nheads = 5", "64 is not a multiple of 5"),
    ],
)
def test_a_bad_config_file(gtjax, tmp_path, text, said):
    path = tmp_path / "c.toml"
    path.write_text(text)
    assert_mistake(gtjax("train", "--config", path), "c.toml: ", said)
    assert_mistake(gtjax("train", f"--config={tmp_path / 'none.toml'}"), "cannot read the config")


def test_a_folder_that_holds_a_run(gtjax, out):
    out.mkdir()
    (out / "config.json").write_text("{}")
    assert_mistake(gtjax("train", *SMALL, "--out", out), "--out names a new folder", "holds a run")
    assert (out / "config.json").read_text() == "{}"


def test_a_folder_that_cannot_be_made(gtjax, tmp_path):
    (tmp_path / "file").write_text("")
    assert_mistake(gtjax("train", *SMALL, "--out", tmp_path / "file"), "cannot write there")


@pytest.mark.parametrize("command", [["evaluate"], ["resume"], ["predict", "--out", "p.npz"]])
def test_a_folder_that_holds_no_run(gtjax, tmp_path, command):
    assert_mistake(gtjax(*command, tmp_path), "not the folder of a run")
    assert_mistake(gtjax(*command, tmp_path / "none"), "not the folder of a run")
    (tmp_path / "config.json").write_text(json.dumps({"steps": 0}))
    assert_mistake(gtjax(*command, tmp_path), "config.json: steps is at least 1")


def test_predictions_in_an_unknown_format(gtjax, tmp_path):
    outcome = gtjax("predict", tmp_path, "--out", "p.xlsx")
    assert_mistake(outcome, "--out ends in .npz, .parquet, .csv; found 'p.xlsx'")


def test_an_unknown_kernel(gtjax, out):
    assert_mistake(gtjax("train", *SMALL, "--out", out, "--kernel", "abacus"), "--kernel abacus")


@pytest.mark.parametrize(
    ("text", "value"), [("200", 200), ("1e3", 1000), ("2.5e1", 25), ("-1e0", -1), ("1_000", 1000)]
)
def test_integers_are_written_as_people_do(text, value):
    assert integer(text) == value
    assert parsed(["--steps", "1e3", "--devices", "2e0", "--model.hidden", "1.6e1"]) == parsed(
        ["--steps", "1000", "--devices", "2", "--model.hidden", "16"]
    )


def test_what_is_meant_is_an_option_that_there_is():
    for name in SYNONYMS:
        assert suggestion(f"--{name}", [f"--group.{name}"]) == f"--group.{name}"
    assert suggestion("--lr", ["--json"]) is None


@pytest.mark.parametrize("words", [["train"], ["profile"], ["plan", "synthetic-citation"]])
def test_more_simulated_devices_than_is_sensible(gtjax, monkeypatch, words):
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    outcome = gtjax(*words, "--devices", "500")
    assert_mistake(outcome, "--devices simulates at most 64 devices on a CPU; found 500.")
    outcome = gtjax("launch", "--devices-per-process", "65", "--", "train", "--out", "x")
    assert_mistake(outcome, "--devices-per-process simulates at most 64")


def test_a_coordinator_that_cannot_be_reached(gtjax):
    place = ["--num-processes", "2", "--process-id", "1", "--join-seconds", "0.2"]
    outcome = gtjax("train", *SMALL, "--coordinator", "no-such-host.invalid:4321", *place)
    assert_mistake(
        outcome,
        "coordinator no-such-host.invalid:4321 (told by --coordinator)",
        "within 0.2 s: the name does not resolve",
    )
