"""Stored results are those of the stored configs, the README shows them, and benchmarks run."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gtjax.runs.config import read_config, to_mapping
from pallas_kernels.native import why_not

ROOT = Path(__file__).parents[1]
ACCURACY = ROOT / "experiments" / "accuracy"
ISOLATED = ROOT / "experiments" / "isolated"
RESULTS = json.loads((ACCURACY / "results.json").read_text(encoding="utf-8"))


def assert_same_settings(wanted, found, path=""):
    """What both know by the same name is equal; results may be older than names of settings."""
    common = wanted.keys() & found.keys()
    assert common, f"{path}: no setting in common"
    for name in common:
        if isinstance(wanted[name], dict):
            assert_same_settings(wanted[name], found[name], f"{path}.{name}")
        else:
            assert wanted[name] == found[name], f"{path}.{name}"


@pytest.mark.parametrize("path", [ACCURACY / f"{name}.toml" for name in RESULTS], ids=list(RESULTS))
def test_every_result_has_the_config_that_gave_it(path):
    wanted, found = to_mapping(read_config(path)), dict(RESULTS[path.stem]["config"])
    for name in ("data", "seed", "split", "out"):  # set by the script
        wanted.pop(name)
    known = found["model"].get("name", found["model"].get("architecture"))  # as it was called once
    assert known == wanted["model"]["name"]
    assert_same_settings(wanted, found)
    result = RESULTS[path.stem]
    tests = [run[f"test_{result['metric']}"] for run in result["runs"]]
    assert result["mean"] == pytest.approx(sum(tests) / len(tests))
    assert result["versions"]["jax"]


def isolated():
    script = runpy.run_path(str(ROOT / "experiments" / "isolated.py"))
    return script, json.loads(script["RESULTS"].read_text(encoding="utf-8"))


def test_isolated_results_are_those_of_the_stored_configs():
    script, results = isolated()
    assert set(results) == {path.stem for path in ISOLATED.glob("*.toml")}
    for graph, curves in results.items():
        assert list(curves) == [name for name in script["CURVES"] if name in curves]
        for curve, runs in curves.items():
            wanted = to_mapping(read_config(ISOLATED / f"{graph}.toml"))
            for seed, run in runs.items():
                config = wanted | {"data": graph, "seed": int(seed), "out": None}
                config.pop("parallel")  # stored under other names then
                assert_same_settings(config, run["config"])
                assert run["approximate"] is (curve != "exact")
                assert max(run["validation"]) == run["val_accuracy"]
                assert (
                    run["steps"][run["validation"].index(run["val_accuracy"])] == (run["best_step"])
                )


def test_the_table_of_isolated_training_has_a_line_for_every_curve():
    script, results = isolated()
    lines = script["table"](results).splitlines()
    assert len(lines) == 2 + sum(len(curves) for curves in results.values())
    picture = script["PICTURE"].read_text(encoding="utf-8")
    for graph, curves in results.items():
        assert graph in picture
        for curve in curves:
            assert curve in picture
            assert any(line.startswith(f"| {graph} | {curve} |") for line in lines)


def test_isolated_training_is_within_a_point_and_a_half_of_exact_training():
    script, results = isolated()
    for curves in results.values():
        assert script["to_exact"](curves, "isolated, redrawn and weighted") > -1.5


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))


@pytest.fixture
def said(importable, monkeypatch, capsys):
    """What an experiment that measures nothing prints, run in this process."""

    def run(name, *options):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
        capsys.readouterr()
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(ROOT / "experiments" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr()

    return run


def experiment(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "experiments" / f"{name}.py"
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(script), *options],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths.rstrip(os.pathsep)},
    )


def test_the_conversion_benchmark_runs_on_a_tiny_graph(tmp_path):
    done = experiment(
        "convert", "--quick", "--kinds", "csv", "--kills", "0", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    found = results["csv"]
    assert found["rows_a_second"] == pytest.approx(results["rows_of_edges"] / found["seconds"])
    assert 2**20 < found["peak_anonymous_bytes"] < 2**30
    assert found["load"]["seconds"] < 1
    assert found["load"]["edges"] > 2 * results["rows_of_edges"]  # with reverses and self-loops


@pytest.mark.slow
def test_the_attention_benchmark_runs_on_a_tiny_graph(tmp_path):
    options = ["--quick", "--rounds", "2", "--graphs", "arxiv-like", "ogbn-arxiv"]
    options += ["--contenders", "xla", "segment", "--out", str(tmp_path)]
    done = experiment("attention", *options)
    assert done.returncode == 0, done.stderr
    assert "ogbn-arxiv: absent: --data FOLDER" in done.stdout
    result = json.loads((tmp_path / "results.json").read_text())["graphs"]["arxiv-like"]
    assert result["edges"] == 2000
    assert set(result["contenders"]) == {"xla", "segment"}
    for record in result["contenders"].values():
        assert set(record["distances"]) == {"forward", "out", "dq", "dk", "dv"}
        assert max(record["distances"].values()) < 1e-4
        for operation in ("forward", "both"):
            times = record["seconds"][operation]
            assert len(times) == 2
            assert record["median_seconds"][operation] == pytest.approx(sum(times) / 2)
        assert record["versions"]["jax"]
        assert record["xla_temporary_bytes"] > 0
    assert "jax segment ops" in (tmp_path / "attention.svg").read_text()
    assert "| graph |  | gtjax xla | jax segment ops |" in done.stdout


@pytest.mark.slow
def test_the_benchmark_of_ops_runs_on_a_tiny_graph(tmp_path):
    options = ["--quick", "--rounds", "2", "--only", "gat", "learned_weights"]
    done = experiment(
        "ops", *options, "--contenders", "cpu", "xla", "gather", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())["ops"]
    gradients = {"gat": {"ds", "dt", "dv"}, "learned_weights": {"dx", "dw"}}
    for kind, result in results.items():
        distances = result["contenders"]["xla"]["distances"]
        assert set(distances) == {"forward", "out"} | gradients[kind]
        if "cpu" in result["contenders"]:  # where the native code was built
            assert max(result["contenders"]["cpu"]["distances"].values()) < 1e-4
            assert set(result["share_of_gather_bound"]) == {"forward", "backward", "both"}
    assert "weighted sum, learned weights" in done.stdout


def test_a_tree_of_sources_is_compared_with_another(said):
    trees = ["--before", str(ROOT), "--after", str(ROOT)]
    if reason := why_not():
        pytest.skip(reason)
    done = experiment("before_after", *trees, "--quick", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    assert "both: before" in done.stdout
    assert "--after is a folder" in said("before_after", *trees, "--after", "/").err


def test_a_contender_that_computes_something_else_is_an_error(importable):
    from contenders import case, comparison

    wanted = np.array([1.0, -2.0, 0.0])
    assert case.distance(wanted * (1 + 1e-6), wanted) < case.TOLERANCE
    assert case.distance(np.zeros(2), wanted) == np.inf
    wrong = wanted + np.array([0, 0, 1e-2])
    for found in (wrong, wrong * np.nan):
        distance = case.distance(found, wanted)

        class Worker:
            def ask(self, do, distance=distance):
                assert do == "check"
                return {"distances": {"dq": distance}}

        with pytest.raises(comparison.DisagreementError, match="dq is off by"):
            comparison._qualify("pyg", Worker(), {"needs_bytes": 0}, "both")


def test_a_contender_that_cannot_run_is_absent_with_the_reason(importable, tmp_path, monkeypatch):
    from contenders import environments, process, work

    process.require_memory(0)
    with pytest.raises(work.Absent, match=r"needs more memory than there is: about 1024\.0 GiB"):
        process.require_memory(2**40)
    worker = process.Worker("xla", Path(sys.executable), tmp_path)  # there is no case in there
    try:
        with pytest.raises(work.Absent, match=r"it failed: FileNotFoundError.*case.json"):
            worker.ready()
    finally:
        worker.close()
    nowhere = environments.Peer("torch", (), (), "torch", python=(2, 99))
    monkeypatch.setitem(environments.PEERS, "none", nowhere)
    with pytest.raises(work.Absent, match=r"needs Python 2\.99, which is not on the PATH"):
        environments.interpreter("none", tmp_path)
    monkeypatch.setenv("GTJAX_PEER_NONE", sys.executable)
    assert environments.interpreter("none", tmp_path) == Path(sys.executable)


def test_memory_above_start_is_what_a_run_touches(importable):
    from contenders import memory

    peak = memory.peak_above_start(lambda: np.ones(25_000_000, np.float32))
    if peak["method"] != "VmHWM":
        pytest.skip("this system does not let a process reset its high-water mark")
    assert 95e6 < peak["bytes"] < 130e6


def test_what_is_freed_late_is_waited_for(importable):
    from contenders import memory

    memory.release()
    idle = memory.resident_bytes()
    if idle is None:
        pytest.skip("this system does not say what a process holds")
    held = [np.ones(50_000_000, np.float32)]
    assert memory.resident_bytes() > idle + 150e6
    thread = threading.Thread(target=lambda: (time.sleep(0.2), held.clear()))
    thread.start()
    memory.settle(idle)
    assert memory.resident_bytes() < idle + 150e6
    thread.join()


PARTITION = ROOT / "experiments" / "partition"


def test_the_comparison_of_partitioners_runs_on_small_graphs(said, tmp_path):
    pytest.importorskip("pymetis")
    options = ["--quick", "--only", "ogbn-arxiv", "--seeds", "1", "--out", str(tmp_path)]
    done = experiment("partition", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "results.json").read_text())["ogbn-arxiv"]
    assert result["nodes"] == 2003
    assert result["versions"]["pymetis"]
    cuts = {how: runs[0]["cut"] for how, runs in result["runs"].items()}
    assert set(cuts) == {"metis", "streaming", "contiguous", "random"}
    assert cuts["metis"] <= cuts["streaming"] < cuts["random"]
    assert "--out FOLDER" in said("partition", "--quick").err
    assert "--data FOLDER" in said("partition").err


@pytest.mark.skipif(not PARTITION.exists(), reason="experiments/partition.py was not run yet")
def test_stored_partitions_are_balanced_and_streaming_cuts_at_most_twice_as_much():
    results = json.loads((PARTITION / "results.json").read_text(encoding="utf-8"))
    assert set(results) == {"web-cnr-2000", "ogbn-arxiv"}
    for result in results.values():
        for how in ("metis", "streaming"):
            assert all(run["edge_imbalance"] <= 1.05 for run in result["runs"][how])
        pairs = zip(result["runs"]["metis"], result["runs"]["streaming"], strict=True)
        assert all(streamed["cut"] <= 2 * metis["cut"] for metis, streamed in pairs)


def test_stored_steps_for_tpus_move_what_their_strategies_say():
    stored = json.loads((ROOT / "experiments" / "aot" / "results.json").read_text(encoding="utf-8"))
    compiled = [row for row in stored["rows"] if "why_not" not in row]
    assert compiled
    for row in compiled:
        for kind, demanded in row["demanded_bytes"].items():
            # The compiler sends in bfloat16 what a product would round to bfloat16 anyway.
            least = 0.85 if kind == "all-to-all" else 0.98
            if kind == "reduce-scatter" and kind not in row["collectives"]:
                # It may make an all-reduce of it, with twice the bytes.
                kind, demanded = "all-reduce", 2 * demanded
            moved = row["collectives"][kind]["bytes"]
            assert least * demanded <= moved <= 1.02 * demanded, (row["strategy"], kind)


def test_stored_results_say_what_they_were_measured_with():
    for name in ("results", "unseen", "links"):
        path = ROOT / "experiments" / "planner" / f"{name}.json"
        assert json.loads(path.read_text(encoding="utf-8"))["versions"]["jax"]
    chaos = json.loads((ROOT / "experiments/chaos/results.json").read_text(encoding="utf-8"))
    assert all(row["versions"]["jax"] for row in chaos["rows"].values())


def test_every_measured_table_is_that_of_the_stored_results(importable, capsys):
    import tables

    assert tables.main(["--check"]) == 0, capsys.readouterr().out


def test_a_number_that_is_not_the_stored_one_is_found_and_put_right(
    importable, capsys, monkeypatch, tmp_path
):
    import tables

    monkeypatch.setattr(tables, "TABLES", {"accuracy": tables.TABLES["accuracy"]})
    shutil.copytree(ACCURACY, tmp_path / "experiments" / "accuracy")
    readme = tmp_path / "experiments" / "README.md"
    (right,) = (
        line for line in tables.made("accuracy").splitlines() if line.startswith("| `cora`")
    )
    wrong = right.replace("83.", "85.")
    readme.write_text(f"{tables.START.format('accuracy')}{wrong}\n{tables.END}after\n")
    assert tables.main(["--check"], tmp_path) == 1
    shown = capsys.readouterr().out
    assert f"-{wrong}" in shown
    assert f"+{right}" in shown
    assert wrong in readme.read_text()
    assert tables.main([], tmp_path) == 0
    assert right in readme.read_text()
    assert tables.main(["--check"], tmp_path) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no table at all\n", "no README shows accuracy"),
        ("<!-- table: speed -->\n<!-- end of table -->\n", "there is no table 'speed'"),
        ("<!-- table: accuracy -->\n<!-- table: accuracy -->\n<!-- end of table -->\n", "no end"),
    ],
)
def test_a_table_that_cannot_be_placed_is_an_error(
    importable, monkeypatch, tmp_path, text, message
):
    import tables

    monkeypatch.setattr(tables, "TABLES", {"accuracy": tables.TABLES["accuracy"]})
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(SystemExit, match=message):
        tables.main([], tmp_path)


def test_the_cache_simulation_runs_on_a_tiny_graph(tmp_path):
    done = experiment("cache", "--quick", "--only", "rmat", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "results.json").read_text())["rmat"]
    for found in result["sizes"].values():
        for policy in ("scored", "degree"):  # which read only what is asked for, or known to be
            assert 0 <= found[policy]["hit_rate"] <= found["best"] + 0.02
    assert done.stdout.count("| rmat |") == len(result["sizes"])


@pytest.mark.slow
def test_sparse_features_are_compared_on_a_tiny_graph(tmp_path):
    done = experiment("sparse_features", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "| drawn | 200 x 300 |" in done.stdout
    assert not list(tmp_path.iterdir())  # a smoke run stores nothing


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_elastic_run_loses_hosts_takes_them_in_and_finishes_with_the_same_loss(tmp_path):
    done = experiment("elastic", "--runs", "1", "--times", "1", "--out", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert [change["to"] for change in run["changes"]] == [4, 3, 2, 4]
    assert run["stopped_codes"] == run["codes"] == [0] * 4
    assert run["apart_at_the_end"] <= 1e-5
    assert not run["left_over"]


def test_graph_classification_has_the_settings_that_validated_best():
    folder = ROOT / "experiments" / "tasks"
    choices = json.loads((folder / "choices.json").read_text(encoding="utf-8"))
    for name in ("tu-nci1", "tu-proteins"):
        candidates, chosen = choices[name]["candidates"], choices[name]["chosen"]
        best = max(candidates, key=lambda label: candidates[label]["val_accuracy"])
        assert best == chosen
        assert_contains(
            to_mapping(read_config(folder / f"{name}.toml")), candidates[chosen]["changes"]
        )


def assert_contains(found, wanted):
    for name, value in wanted.items():
        if isinstance(value, dict):
            assert_contains(found[name], value)
        else:
            assert found[name] == value
