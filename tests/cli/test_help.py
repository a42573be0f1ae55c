"""Help: of every command, complete, and without waiting for jax."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import gtjax as package
from gtjax.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command(gtjax):
    for flag in ("--help", "-h"):
        outcome = gtjax(flag)
        assert outcome.code == 0
        for name, what in COMMANDS.items():
            assert f"  {name:<12} {what}" in outcome.out


def test_every_command_has_a_file_and_the_other_way_round():
    files = {path.stem for path in (ROOT / "gtjax" / "cli").glob("*.py")}
    assert files - {"__init__", "main", "arguments", "outcome", "processes", "suggest"} == set(
        COMMANDS
    )


def test_the_version_is_the_projects(gtjax):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert gtjax("--version") == (0, f"gtjax {project['version']}\n", "")
    assert package.__version__ == project["version"]
    assert project["scripts"]["gtjax"] == "gtjax.cli.main:main"


def test_the_installed_command_is_this_one():
    found = entry_points(group="console_scripts", name="gtjax")
    if not found:
        pytest.skip("gtjax is not installed")
    assert {entry.load() for entry in found} == {main}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(gtjax, command):
    outcome = gtjax(command, "--help")
    assert outcome.code == 0
    assert f"usage: gtjax {command}" in outcome.out
    assert outcome.err == ""


def test_the_help_of_train_names_the_options_one_needs_first(gtjax):
    shown = gtjax("train", "--help").out
    for option in ("--config FILE", "--data", "--steps", "--seed", "--out", "--model.hidden",
                   "--model.layers", "--model.heads", "--optim.learning-rate"):  # fmt: skip
        assert option in shown


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_does_not_wait_for_jax(command):
    argv = [command, "--help"] if command else ["--help"]
    code = (
        "import sys; from gtjax.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'jax', 'flax', 'optax', 'orbax', 'matplotlib', 'pyarrow'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert "usage: gtjax" in done.stdout
