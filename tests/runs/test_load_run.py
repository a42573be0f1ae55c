"""A run that is loaded: its predictions anywhere, its weights in a file, training from them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import gtjax
from gtjax.core.errors import UserError
from gtjax.runs.predictions import write_predictions
from gtjax.sharding.config import ParallelConfig
from tests.runs.small_run import small_config
from tests.tasks.asked import config_of, one_graph

pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    config = dataclasses.replace(config_of("link"), out=tmp_path_factory.mktemp("links") / "run")
    return gtjax.fit(one_graph(), config=config, show_progress=False)


def test_it_says_what_training_said(finished, graph):
    run = gtjax.load_run(finished.folder)
    found = run.predict()
    for split in ("train", "val", "test"):
        assert found.metrics[f"{split}_accuracy"] == finished[f"{split}_accuracy"]
    assert run.evaluate() == found.metrics
    assert run.graph.fingerprint == graph.fingerprint
    np.testing.assert_array_equal(run.embed(), found.embeddings_nf)
    some = run.predict(nodes=[7, 3])
    np.testing.assert_array_equal(some.answers_nc, found.answers_nc[[7, 3]])
    np.testing.assert_array_equal(run.embed(nodes=[7, 3]), found.embeddings_nf[[7, 3]])
    width = run.model.head.linear.kernel[...].shape
    assert width == run.weights["head.linear.kernel"].shape


def test_another_process_gives_the_same_bits(finished, tmp_path):
    code = (
        "import sys, numpy, gtjax\n"
        "found = gtjax.load_run(sys.argv[1]).predict()\n"
        "numpy.save(sys.argv[2], found.answers_nc)\n"
    )
    file = tmp_path / "there.npy"
    subprocess.run([sys.executable, "-c", code, finished.folder, file], check=True, timeout=300)
    here = gtjax.load_run(finished.folder).predict()
    np.testing.assert_array_equal(np.load(file), here.answers_nc)


def test_other_devices_give_the_same_but_for_rounding(finished):
    spread = ParallelConfig(devices=4, strategy="node_halo", partitioner="contiguous")
    there = gtjax.load_run(finished.folder, parallel=spread).predict()
    here = gtjax.load_run(finished.folder).predict()
    np.testing.assert_allclose(there.answers_nc, here.answers_nc, atol=1e-5)


def test_unseen_nodes_are_predicted_of(finished, graph):
    """A new node that is a copy of another, with its edges, is answered as that one is."""
    into = graph.receivers_e == 5
    out_of = graph.senders_e == 5
    more = dataclasses.replace(
        graph,
        senders_e=np.concatenate(
            [graph.senders_e, graph.senders_e[into], np.full(out_of.sum(), graph.num_nodes)]
        ),
        receivers_e=np.concatenate(
            [graph.receivers_e, np.full(into.sum(), graph.num_nodes), graph.receivers_e[out_of]]
        ),
        x_nf=np.concatenate([graph.x_nf, graph.x_nf[5:6]]),
        labels_n=np.full(graph.num_nodes + 1, -1),
        split_n={},
    )
    found = gtjax.load_run(finished.folder).predict(more)
    np.testing.assert_allclose(found.answers_nc[-1], found.answers_nc[5], rtol=1e-4)


def test_weights_go_out_and_come_in_by_name(finished, graph, tmp_path):
    run = gtjax.load_run(finished.folder)
    file = tmp_path / "weights.safetensors"
    run.save_weights(file)
    stored = gtjax.load_weights(file)
    assert stored.keys() == run.weights.keys()
    for name, value in run.weights.items():
        np.testing.assert_array_equal(stored[name], value)
    config = small_config(tmp_path / "tuned", weights=file, steps=1, eval_every=1)
    frozen = dataclasses.replace(config.optim, learning_rate=1e-12)
    tuned = gtjax.fit(graph, config=dataclasses.replace(config, optim=frozen), show_progress=False)
    assert tuned["val_accuracy"] == finished["val_accuracy"]


@pytest.mark.slow
def test_a_head_for_other_classes_starts_anew_and_is_said(finished, graph, tmp_path, capsys):
    file = tmp_path / "weights.safetensors"
    gtjax.load_run(finished.folder).save_weights(file)
    fewer = dataclasses.replace(graph, labels_n=graph.labels_n % 2)
    gtjax.fit(fewer, config=small_config(tmp_path / "two", weights=file, steps=1))
    assert "new: head.linear.bias [4] for [2]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, "no such file"),
        (b"{}", "not a readable safetensors file"),
        ({"other": np.zeros(3, np.float32)}, "none of the weights fits the model"),
    ],
)
def test_weights_that_do_not_fit_are_refused(made, text, graph, tmp_path):
    file = tmp_path / "weights.safetensors"
    if isinstance(made, bytes):
        file.write_bytes(made)
    elif made is not None:
        gtjax.save_weights(made, file)
    with pytest.raises(UserError, match=text):
        gtjax.fit(graph, config=small_config(tmp_path / "run", weights=file), show_progress=False)


@pytest.mark.slow
def test_pairs_are_asked_of_models_of_links(links, tmp_path):
    run = gtjax.load_run(links.folder)
    held = run.predict()
    assert held.metrics["test_roc_auc"] == pytest.approx(links["test_roc_auc"], abs=1e-6)
    count = len(held.pairs_k2)
    again = run.predict(pairs=held.pairs_k2[::-1])
    np.testing.assert_allclose(again.answers_nc[::-1], held.answers_nc, atol=1e-6)
    write_predictions(held, tmp_path / "pairs.csv")
    lines = (tmp_path / "pairs.csv").read_text().splitlines()
    assert lines[0] == '"source","target","probability"'
    assert len(lines) == count + 1
    with pytest.raises(UserError, match="node numbers are in 0"):
        run.predict(pairs=[[0, 151]])
    with pytest.raises(UserError, match="nodes= chooses answers of nodes"):
        run.predict(nodes=[1])


def test_what_it_cannot_answer_is_said(finished, tmp_path):
    run = gtjax.load_run(finished.folder)
    with pytest.raises(UserError, match="pairs= is for models of links"):
        run.predict(pairs=[[0, 1]])
    with pytest.raises(UserError, match="by numbers here; found <U1"):
        run.predict(nodes=["a"])
    with pytest.raises(UserError, match="not the folder of a run"):
        gtjax.load_run(tmp_path)
