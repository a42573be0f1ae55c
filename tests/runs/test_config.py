"""Configs: what a file may say, what a mistake in it is told, and that nothing is lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.batching.config import PrepareConfig
from gtjax.core.errors import UserError
from gtjax.nn import DecoupledConfig, GATConfig, SAGEConfig, TransformerConfig
from gtjax.runs.config import (
    OptimConfig,
    RuntimeConfig,
    TrainConfig,
    from_mapping,
    read_config,
    to_mapping,
)


def written(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_toml_file_changes_what_it_names_and_nothing_else(tmp_path):
    text = 'steps = 7\nout = "there"\n[model]\nhidden = 12\nheads = 3\n[optim]\nclip = 2\n'
    want = TrainConfig(
        steps=7,
        out=Path("there"),
        model=TransformerConfig(hidden=12, heads=3),
        optim=OptimConfig(clip=2),
    )
    assert read_config(written(tmp_path, text)) == want


def test_a_json_file_says_the_same_as_toml(tmp_path):
    table = {"steps": 7, "model": {"hidden": 12, "heads": 3}, "prepare": {"features": "row"}}
    got = read_config(written(tmp_path, json.dumps(table), "run.json"))
    assert got.model.hidden == 12
    assert got.prepare == PrepareConfig(features="row")
    toml = 'steps = 7\nmodel = {hidden = 12, heads = 3}\nprepare = {features = "row"}'
    assert got == read_config(written(tmp_path, toml))


configs = st.builds(
    TrainConfig,
    data=st.text(max_size=9),
    steps=st.integers(1, 10**9),
    seed=st.integers(0, 2**32 - 1),
    out=st.sampled_from([None, Path("a/b")]),
    runtime=st.builds(
        RuntimeConfig,
        checkpoint_seconds=st.floats(0, 1e9),
        checkpoint_steps=st.integers(0, 10**9),
        checkpoint_keep=st.integers(1, 99),
        watchdog_seconds=st.floats(10, 1e9),
        tensorboard=st.booleans(),
    ),
    model=st.sampled_from([TransformerConfig, DecoupledConfig, SAGEConfig, GATConfig]).flatmap(
        lambda kind: st.builds(
            kind,
            hidden=st.sampled_from([4, 8, 64]),
            dropout=st.floats(0, 0.99),
            norm=st.sampled_from(["layer", "rms", "batch", "none"]),
            label_input=st.booleans(),
        )
    ),
    optim=st.builds(OptimConfig, learning_rate=st.floats(1e-9, 1e9), average=st.floats(0, 0.99)),
    prepare=st.builds(PrepareConfig, features=st.sampled_from(["auto", "none", "row", "standard"])),
)


def test_the_table_of_the_model_names_it(tmp_path):
    text = '[model]\nname = "gat"\nhidden = 12\nheads = 3\n'
    assert read_config(written(tmp_path, text)).model == GATConfig(hidden=12, heads=3)
    table = to_mapping(TrainConfig(model=SAGEConfig(aggregation="max")))["model"]
    assert (table["name"], table["aggregation"]) == ("sage", "max")


@given(configs)
def test_a_config_survives_json(config):
    table = json.loads(json.dumps(to_mapping(config), allow_nan=False))
    assert from_mapping(TrainConfig, table, "file") == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stepz = 3", "unknown setting 'stepz'. Did you mean 'steps'?"),
        ("[model]\nhiden = 3", "unknown setting 'hiden'. Did you mean 'hidden'?"),
        ('[model]\nname = "gta"', "model: unknown model 'gta'. Did you mean 'gat'?"),
        ('[model]\nname = "gcn"\nheads = 3', "model: unknown setting 'heads'. Known: hidden"),
        ('[model]\nname = "gat"\nheds = 3', "model: unknown setting 'heds'. Did you mean 'heads'?"),
        ("[model]\nname = 3", "model: name is str; found 3"),
        ('task = "nod"', "unknown task 'nod'. Did you mean 'node'?"),
        ("split = 0.5", "split is int or str; found 0.5"),
        ("split = true", "split is int or str; found True"),
        ('split = "60/20/20"', "a split is a number, or random:60/20/20"),
        ("zzz = 3", "unknown setting 'zzz'. Known: data, split, steps"),
        ('steps = "3"', "steps is int; found '3'"),
        ("steps = 3.0", "steps is int; found 3.0"),
        ("steps = true", "steps is int; found True"),
        ("[runtime]\ntensorboard = 1", "tensorboard is bool; found 1"),
        ("data = 1", "data is str; found 1"),
        ("out = 1", "out is Path; found 1"),
        ("model = 3", "model: a table of settings; found int"),
        (
            'task = "node"\nmetric = "f1"',
            "accuracy, roc_auc, cross_entropy; found 'f1'",
        ),
        ('[optim]\nlearning_rate = "x"', "learning_rate is float; found 'x'"),
        ("steps = 0", "steps is at least 1; found 0"),
        ("eval_every = 0", "eval_every is at least 1; found 0"),
        ("patience = -1", "patience is not negative; found -1"),
        ("seed = 4294967296", "seed is in 0..2^32-1; found 4294967296"),
        ("[runtime]\ncheckpoint_steps = -1", "checkpoint_steps is not negative; found -1"),
        ("[runtime]\ncheckpoint_keep = 0", "checkpoint_keep is at least 1; found 0"),
        ("[runtime]\ncheckpoint_seconds = inf", "checkpoint_seconds is finite; found inf"),
        ("[runtime]\nwatchdog_seconds = 5", "watchdog_seconds is at least 10; found 5"),
        ("[optim]\nlearning_rate = inf", "optim.learning_rate is finite; found inf"),
        ("[optim]\nlearning_rate = nan", "optim.learning_rate is positive; found nan"),
        ("[optim]\nlabel_smoothing = 1", "optim.label_smoothing is in [0, 1); found 1"),
        ("[optim]\nhidden_labels = 0", "optim.hidden_labels is in (0, 1]; found 0"),
        ("[model]\nhidden = 10", "10 is not a multiple of 4"),
        ("[model]\ndropout = 1.0", "model.dropout is in [0, 1); found 1.0"),
        ("steps = ", "a config is TOML, or JSON if it ends in .json"),
        ("steps = 1\nsteps = 2", "a config is TOML, or JSON if it ends in .json"),
    ],
)
def test_a_mistake_names_the_file_and_the_rule(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[1]", "null", '{"model": null}', "[" * 100_000])
def test_malformed_json_is_a_users_error(tmp_path, text):
    with pytest.raises(UserError, match=r"run\.json"):
        read_config(written(tmp_path, text, "run.json"))


def test_a_file_that_cannot_be_read_is_a_users_error(tmp_path):
    with pytest.raises(UserError, match="cannot read the config: No such file"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(UserError, match="cannot read the config"):
        read_config(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="a config is TOML"):
        read_config(tmp_path / "binary.toml")


def test_configs_are_small_enough_to_read():
    for kind in (TrainConfig, OptimConfig, PrepareConfig, RuntimeConfig):
        assert len(dataclasses.fields(kind)) <= 21
