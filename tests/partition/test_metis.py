"""METIS in a process of its own: what ends it never ends us, and is told."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.partition import metis, partition_graph
from tests.graph.graphs import make_graph

GRAPH = GENERATORS["synthetic-citation"](nodes=307, mean_degree=6.0, features=1)

needs_pymetis = pytest.mark.skipif(not metis.is_installed(), reason="pymetis is not installed")


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Put other code in the place of METIS's process."""

    def replace(code):
        program = tmp_path / "program.py"
        program.write_text(code)
        monkeypatch.setattr(metis, "PROGRAM", program)
        monkeypatch.setattr(metis, "is_installed", lambda: True)

    return replace


def test_missing_pymetis_says_what_to_install(monkeypatch):
    monkeypatch.setattr(metis, "is_installed", lambda: False)
    with pytest.raises(UserError, match=r'pip install "gtjax\[partition\]", or choose'):
        partition_graph(GRAPH, 2, "metis")


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT"])
def test_a_crash_names_the_signal(child, name):
    child(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    with pytest.raises(UserError, match=f"METIS was ended by {name}. Choose 'streaming'"):
        partition_graph(GRAPH, 2, "metis")


def test_a_kill_mentions_memory(child):
    child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(UserError, match="SIGKILL: perhaps memory ran out"):
        partition_graph(GRAPH, 2, "metis")


def test_a_failure_repeats_its_last_words(child):
    child("raise RuntimeError('no memory for this')")
    with pytest.raises(UserError, match="exit code 1: RuntimeError: no memory for this"):
        partition_graph(GRAPH, 2, "metis")


def test_a_child_that_does_not_end_is_ended_and_says_it_is_running(child, monkeypatch):
    child("import time; time.sleep(60)")
    monkeypatch.setattr(metis, "LONGEST_SECONDS", 1.5)
    monkeypatch.setattr(metis, "QUIET_SECONDS", 0.5)
    said = []
    with pytest.raises(UserError, match="METIS did not end within 2 s and was stopped"):
        metis.metis(GRAPH, 2, progress=lambda _, text: said.append(text))
    assert said
    assert all("METIS is still running" in text for text in said)


def test_owners_that_are_none_are_refused(child):
    code = "import sys, numpy as np; np.save(sys.argv[1] + '/owner.npy', np.full({}, {}))"
    child(code.format(GRAPH.num_nodes, 7))
    with pytest.raises(UserError, match="METIS gave"):
        partition_graph(GRAPH, 2, "metis")
    child(code.format(3, 0))
    with pytest.raises(UserError, match="METIS gave"):
        partition_graph(GRAPH, 2, "metis")


@needs_pymetis
def test_malformed_rows_do_not_reach_metis(tmp_path):
    (tmp_path / "request.json").write_text(json.dumps({"num_parts": 2, "seed": 0}))
    np.save(tmp_path / "offsets.npy", np.array([0, 1, 2]))
    np.save(tmp_path / "vertex_weights.npy", np.array([1, 1]))
    for neighbours, fine in (([1, 0], True), ([1, 2], False), ([1, -1], False), ([1], False)):
        np.save(tmp_path / "neighbours.npy", np.array(neighbours))
        done = subprocess.run(
            [sys.executable, "-P", str(metis.PROGRAM), str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == fine
        assert fine or "the compressed rows are malformed" in done.stderr


@needs_pymetis
def test_the_child_does_not_load_jax():
    code = f"import runpy, sys; runpy.run_path({str(metis.PROGRAM)!r}, run_name='child'); " + (
        "print({'jax', 'gtjax', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_neighbours_are_counted_in_both_directions_without_self_loops():
    graph = make_graph([0, 0, 1, 2, 2], [1, 1, 0, 2, 0], 4)
    wanted = [[0, 3, 1, 0], [3, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert metis.neighbour_counts(graph).toarray().tolist() == wanted
