"""The README: its Python runs as it stands there, and its commands are ones that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import tyro

from gtjax.cli.main import COMMANDS
from gtjax.training.config import TrainConfig

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
    assert name in COMMANDS, f"no command {name!r}"
    if name == "train":
        if "--config" in rest:
            at = rest.index("--config")
            del rest[at : at + 2]
        tyro.cli(TrainConfig, args=rest)


@pytest.fixture
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(readme, tmp_path, monkeypatch):
    snippets = blocks(readme, "python")
    assert snippets, "README.md shows no Python"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    for number, snippet in enumerate(snippets, start=1):
        exec(compile(snippet, f"README.md, Python block {number}", "exec"), names)


def test_the_commands_of_the_readme_exist(readme):
    found = commands(readme)
    assert found, "README.md shows no command"
    for words in found:
        try:
            check_command(words)
        except SystemExit:
            pytest.fail(f"README.md: {shlex.join(words)}")


def test_the_readme_names_the_command_that_tests():
    assert 'pip install -e ".[test]" && pytest' in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_wrong_command_would_be_found(capsys):
    text = "```console\n$ gtjax train --steps 3 \\\n  --seed 1  # comment\n$ ls\n```\n"
    (words,) = commands(text)
    assert words == ["gtjax", "train", "--steps", "3", "--seed", "1"]
    check_command(words)
    with pytest.raises(SystemExit):
        check_command(["gtjax", "train", "--stepz", "3"])
    with pytest.raises(AssertionError, match="no command 'trane'"):
        check_command(["gtjax", "trane"])
    assert blocks("```python\na = 1\n```\n```json\n{}\n```\n", "python") == ["a = 1\n"]
