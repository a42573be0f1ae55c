"""`gtjax plan` and `gtjax profile`."""

from __future__ import annotations

import json

import pytest

from tests.planner.profiles import profile

NUMBERS = ["--nodes", "111e6", "--edges", "1.6e9", "--cut", "0.3", "--devices", "512"]


@pytest.fixture
def hardware(tmp_path):
    """The file of a profile that is made up."""
    profile().save(tmp_path / "hardware.json")
    return tmp_path / "hardware.json"


def test_from_numbers_alone(gtjax):
    result = gtjax("plan", *NUMBERS, "--hardware", "tpu-v5e")
    assert result.code == 0
    assert "node_halo" in result.out
    assert "chosen" in result.out
    assert "preset from published figures" in result.out


def test_of_a_graph_for_a_profile(gtjax, hardware, tmp_path):
    picture = tmp_path / "plan.svg"
    result = gtjax(
        "plan", "grid:rows=30,columns=30", "--devices", 4, "--hardware", hardware, "--json",
        "--picture", picture,
    )  # fmt: skip
    assert result.code == 0
    found = json.loads(result.out)
    assert found["devices"] == 4
    assert found["chosen"]["seconds"] > 0
    assert {c["strategy"] for c in found["candidates"]} >= {"node_ring", "feature_all_to_all"}
    assert picture.exists()


@pytest.mark.slow
def test_verified_on_the_devices_here(gtjax, monkeypatch, hardware):
    result = gtjax(
        "plan", "grid:rows=30,columns=30", "--devices", 2, "--hardware", hardware, "--json",
        "--verify", "--model.hidden", 8, "--model.heads", 2, "--model.layers", 1,
    )  # fmt: skip
    assert result.code == 0
    verified = json.loads(result.out)["verified"]
    assert verified["peak_bytes"] > 0
    assert verified["ratio"] == pytest.approx(verified["peak_bytes"] / verified["predicted_bytes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan"], "one of the two"),
        (["plan", "cora", *NUMBERS], "one of the two"),
        (["plan", "--nodes", "1e6"], "both --nodes and --edges"),
        (["plan", *NUMBERS, "--hardware", "tpu-v99"], "no preset"),
        (["plan", *NUMBERS[:-2], "--cut", "2", "--hardware", "tpu-v5e"], "--cut is a share"),
        (["plan", *NUMBERS, "--hardware", "absent.json"], "cannot read"),
        (["plan", *NUMBERS, "--hardware", "tpu-v5e", "--memory", "0.001"], "does not fit"),
        (["profile", "--preset", "abacus"], "no preset"),
    ],
)
def test_a_mistake_is_a_line_and_exit_code_2(gtjax, words, said):
    result = gtjax(*words)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_presets_are_listed_and_shown(gtjax, tmp_path):
    names = gtjax("profile", "--preset", "list").out.split()
    assert {"a100-nvlink", "h100-pcie", "tpu-v5e", "a100-pcie+10g"} <= set(names)
    out, picture = tmp_path / "v5e.json", tmp_path / "v5e.svg"
    result = gtjax("profile", "--preset", "tpu-v5e", "--out", out, "--picture", picture)
    assert result.code == 0
    assert "nothing was measured" in result.out
    assert picture.exists()
    assert gtjax("plan", *NUMBERS, "--hardware", out).code == 0
