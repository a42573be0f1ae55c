"""Compiled programs are kept for the next process, and never in anybody's way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from gtjax.core import compiled_programs
from gtjax.core.compiled_programs import compiled_folder, keep_compiled

PROGRAM = """
import jax, sys
from gtjax.core.compiled_programs import keep_compiled
from jax._src import monitoring
heard = []
monitoring.register_event_listener(lambda name, **_: heard.append(name))
jax.jit(lambda x: x - 1)(1.0)  # it has looked for a cache, and found none
print(keep_compiled() is not None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
print(float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((7, 7)))))
print(sum(name.endswith("cache_hits") for name in heard) > 0)
"""


def start(cache, **environment):
    """A process of its own, without the cache of the tests."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**known, "JAX_PLATFORMS": "cpu", "GTJAX_CACHE_DIR": str(cache), **environment},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "persistent compilation cache" not in err
    kept, result, found = out.split()
    assert result == "343.0"
    return kept == "True", found == "True"


def test_two_processes_at_once_write_what_the_next_finds(tmp_path):
    for first in [start(tmp_path), start(tmp_path)]:
        assert said(first)[0]
    assert said(start(tmp_path)) == (True, True)


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    assert said(start(tmp_path / "file" / "cache")) == (False, False)


@pytest.fixture
def unset(monkeypatch, tmp_path):
    """jax as it is where nobody has chosen a folder, and its settings again afterwards."""
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path))
    names = (
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()


def test_a_folder_that_cannot_be_written_is_done_without(unset, monkeypatch):
    monkeypatch.setattr(compiled_programs.os, "access", lambda path, mode: False)
    assert keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_somebody_chose_stays(unset, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


def test_other_processors_have_other_folders(unset, monkeypatch):
    here = compiled_folder()
    assert keep_compiled() == here
    assert jax.config.jax_compilation_cache_max_size == 2 * 2**30
    monkeypatch.setattr(compiled_programs, "_processor", lambda: "another")
    assert compiled_folder() != here
