"""The README: its Python runs as it stands there, and its commands are ones that exist."""

from __future__ import annotations

import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from gtjax.cli.main import COMMANDS
from gtjax.cli.train import parsed
from gtjax.core.errors import UserError

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in BLOCK.findall(text) if language in languages]


def commands(text: str) -> list[list[str]]:
    """The words of every gtjax command in the shell blocks, prompt or not."""
    shell = "\n".join(blocks(text, "console", "bash", "sh", "shell"))
    lines = shell.replace("\\\n", " ").splitlines()
    stripped = (line.strip().removeprefix("$ ") for line in lines)
    return [shlex.split(line, comments=True) for line in stripped if line.startswith("gtjax ")]


def check_command(words: list[str]) -> None:
    """Parse a command line as the program would, without running it."""
    _, name, *rest = words
    if name in ("--help", "--version"):
        return
    rest = [word for word in rest if word != "--help"]
    assert name in COMMANDS, f"no command {name!r}"
    if name == "train":
        if "--config" in rest:
            at = rest.index("--config")
            del rest[at : at + 2]
        parsed(rest)


@pytest.fixture
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


READMES = (
    "README.md",
    "gtjax/batching/README.md",
    "gtjax/graph/README.md",
    "gtjax/nn/README.md",
    "gtjax/planner/README.md",
    "gtjax/recipes/README.md",
    "gtjax/tasks/README.md",
    "pallas_kernels/README.md",
)


@pytest.mark.parametrize("name", READMES)
@pytest.mark.slow
def test_the_python_of_a_readme_runs(name, tmp_path, monkeypatch):
    snippets = blocks((ROOT / name).read_text(encoding="utf-8"), "python")
    assert snippets, f"{name} shows no Python"
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("readme")  # which dataclasses look themselves up in
    monkeypatch.setitem(sys.modules, "readme", module)
    for number, snippet in enumerate(snippets, start=1):
        exec(compile(snippet, f"{name}, Python block {number}", "exec"), module.__dict__)


def test_what_is_shown_of_ones_own_models_is_short(readme):
    text = readme + (ROOT / "gtjax/nn/README.md").read_text(encoding="utf-8")
    own = [block for block in blocks(text, "python") if "nnx.Module" in block or "bind(" in block]
    assert len(own) == 3
    for block in own:
        assert len([line for line in block.splitlines() if line.strip()]) <= 25


OWN = """
from dataclasses import dataclass
from flax import nnx
@dataclass(frozen=True)
class Settings:
    width: int = 8
class MyModel(nnx.Module):
    Config = Settings
"""


def test_the_commands_of_the_readme_exist(readme, tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = commands(readme)
    assert found, "README.md shows no command"
    for words in found:
        try:
            check_command(words)
        except (SystemExit, UserError):
            pytest.fail(f"README.md: {shlex.join(words)}")


def test_the_readme_names_the_command_that_tests():
    assert 'pip install -e ".[test]" && pytest' in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_wrong_command_would_be_found(capsys):
    text = "```console\n$ gtjax train --steps 3 \\\n  --seed 1  # comment\n$ ls\n```\n"
    (words,) = commands(text)
    assert words == ["gtjax", "train", "--steps", "3", "--seed", "1"]
    check_command(words)
    with pytest.raises(UserError, match="no option --stepz"):
        check_command(["gtjax", "train", "--stepz", "3"])
    with pytest.raises(AssertionError, match="no command 'trane'"):
        check_command(["gtjax", "trane"])
    assert blocks("```python\na = 1\n```\n```json\n{}\n```\n", "python") == ["a = 1\n"]
