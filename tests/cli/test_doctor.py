"""The doctor: what does not fit together, and the command that fixes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtjax.cli import doctor
from gtjax.cli.doctor import Machine, find_problems
from gtjax.hardware import kernel_table
from pallas_kernels import OPS
from pallas_kernels.op import DISTRUSTED

HEALTHY = Machine(
    python=(3, 11),
    versions={"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "flax": "0.12.8"},
    platforms=("cpu",),
    has_nvidia=False,
    has_tpu=False,
    installed=frozenset(),
)


def test_a_machine_that_fits_together_has_no_problems():
    assert find_problems(HEALTHY) == []
    gpu = replace(HEALTHY, has_nvidia=True, installed=frozenset({"jax_cuda12_plugin"}))
    assert find_problems(replace(gpu, platforms=("gpu",))) == []
    assert find_problems(replace(gpu, platforms=("cuda", "cuda"))) == []
    assert find_problems(replace(HEALTHY, has_tpu=True, platforms=("tpu",))) == []
    patch = {**HEALTHY.versions, "jaxlib": "0.10.1"}
    assert find_problems(replace(HEALTHY, versions=patch)) == []


@pytest.mark.parametrize(
    ("change", "said", "fix"),
    [
        ({"python": (3, 10)}, "gtjax needs Python 3.11 or newer", "3"),
        (
            {"versions": {"jax": "0.10.2", "jaxlib": "0.9.0"}},
            "jax 0.10.2 and jaxlib 0.9.0 do not belong together",
            'pip install --upgrade "jax==0.10.2" "jaxlib==0.10.2"',
        ),
        (
            {"versions": {**HEALTHY.versions, "flax": "not installed"}},
            "flax is missing",
            "pip install flax",
        ),
        (
            {"has_nvidia": True},
            "there is an NVIDIA GPU but jax only sees the CPU",
            'pip install --upgrade "jax[cuda12]==0.10.2"',
        ),
        (
            {"has_tpu": True},
            "there is a TPU but jax does not see it",
            'pip install --upgrade "jax[tpu]==0.10.2"',
        ),
        (
            {"installed": frozenset({"jax_cuda12_plugin"})},
            "jax_cuda12_plugin is installed but there is no NVIDIA GPU",
            "pip uninstall jax-cuda12-plugin",
        ),
        (
            {"cache_error": "/nowhere: Permission denied"},
            "the cache folder cannot be written (/nowhere: Permission denied)",
            "set GTJAX_CACHE_DIR",
        ),
    ],
)
def test_each_mismatch_is_told_with_its_fix(change, said, fix):
    (problem,) = find_problems(replace(HEALTHY, **change))
    assert said in problem
    assert fix in problem


def test_every_problem_is_told_at_once():
    assert len(find_problems(replace(HEALTHY, has_nvidia=True, has_tpu=True))) == 2


def test_the_exit_code_says_whether_something_needs_fixing(gtjax, monkeypatch):
    monkeypatch.setattr(doctor, "_look", lambda: (HEALTHY, ["cpu cpu"], None))
    outcome = gtjax("doctor")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "no problems found"
    sick = replace(HEALTHY, has_tpu=True)
    monkeypatch.setattr(doctor, "_look", lambda: (sick, [], "no back end"))
    outcome = gtjax("doctor")
    assert outcome.code == 1
    assert "problem: jax cannot start: no back end" in outcome.out
    assert "problem: there is a TPU" in outcome.out


def test_this_machine_is_looked_at(gtjax, tmp_path, monkeypatch):
    import jax

    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "cache"))
    shown = gtjax("doctor").out
    for words in (f"{'jax':<18}{jax.__version__}", f"{'device':<18}{jax.devices()[0].platform}"):
        assert words in shown


def test_a_cache_that_cannot_be_written_is_found(gtjax, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    outcome = gtjax("doctor")
    assert outcome.code == 1
    assert "problem: the cache folder cannot be written" in outcome.out


def test_a_kernel_that_cannot_run_is_told_with_its_reason(monkeypatch, capsys):
    reason = "it was not built"
    for op in OPS.values():
        monkeypatch.setitem(DISTRUSTED, (op.name, "cpu"), reason)
    doctor.run([])
    shown = capsys.readouterr().out.splitlines()
    assert "kernel cpu        does not run: it was not built" in shown
    assert "kernel gpu        does not run: it is for gpu, and this is cpu" in shown
    assert "kernel xla        runs" in shown
    assert "kernel of gat             xla" in shown


def test_every_kernel_is_held_against_xla_and_the_memory(gtjax, monkeypatch):
    monkeypatch.setitem(kernel_table.NODES, "cpu", 211)
    monkeypatch.setitem(kernel_table.COPIED_BYTES, "cpu", 2**20)
    monkeypatch.setattr(kernel_table, "OPS", {"max": OPS["max"]})
    rows = [line.split() for line in gtjax("doctor", "--check").out.splitlines()]
    found = [row for row in rows if row[:1] == ["max"]]
    assert [row[2] for row in found] == ["float32", "bfloat16"]
    for _, _, _, agrees, *seconds, _, _, _ in found:
        assert agrees == "agrees"
        assert all(float(each) > 0 for each in seconds[:3])


def test_a_kernel_that_is_wrong_is_a_problem(gtjax, monkeypatch):
    wrong = kernel_table.Row("gat", "gpu", "float32", False, "0.3, result", 1.0, 2.0, 0.5)
    monkeypatch.setattr(kernel_table, "table", lambda platform: [wrong])
    outcome = gtjax("doctor", "--check")
    assert outcome.code == 1
    assert "problem: kernel gpu of gat in float32 is wrong here (0.3, result)" in outcome.out
