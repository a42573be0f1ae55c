"""A finished run brought back: the same metrics, and predictions in every format."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from gtjax.graph import UserError
from gtjax.training.loop import fit
from gtjax.training.run_folder import RunFolder
from gtjax.training.trained import Predictions, predict, write_predictions
from tests.training.small_run import MODEL, small_config


@pytest.fixture(scope="module")
def finished(graph, tmp_path_factory):
    return fit(graph, config=small_config(tmp_path_factory.mktemp("trained") / "run"))


@pytest.fixture(scope="module")
def predictions(graph, finished):
    return predict(*RunFolder.open(finished.folder), graph)


def test_evaluating_again_gives_the_metrics_of_the_result(finished, predictions):
    assert set(predictions.metrics) == {"train_accuracy", "val_accuracy", "test_accuracy"}
    for name, value in predictions.metrics.items():
        assert value == finished[name]


def test_probabilities_sum_to_one_and_explain_the_accuracy(graph, finished, predictions):
    p_nc = predictions.probabilities_nc
    assert p_nc.shape == (graph.num_nodes, 4)
    assert (p_nc >= 0).all()
    np.testing.assert_allclose(p_nc.sum(axis=1), 1, rtol=1e-5)
    right_n = p_nc.argmax(axis=1) == graph.labels_n
    np.testing.assert_allclose(
        right_n[graph.split_n["test"]].mean(), finished["test_accuracy"], rtol=1e-6
    )
    assert predictions.embeddings_nf.shape == (graph.num_nodes, MODEL.hidden)


def test_arrays_come_back_from_npz(predictions, tmp_path):
    write_predictions(predictions, tmp_path / "new" / "p.npz")
    with np.load(tmp_path / "new" / "p.npz") as stored:
        np.testing.assert_array_equal(stored["probabilities"], predictions.probabilities_nc)
        np.testing.assert_array_equal(stored["embeddings"], predictions.embeddings_nf)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_tables_have_a_row_per_node(predictions, tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    write_predictions(predictions, path)
    read = pyarrow.parquet.read_table if suffix == ".parquet" else pyarrow.csv.read_csv
    table = read(path)
    probabilities = [f"probability_{i}" for i in range(4)]
    embeddings = [f"embedding_{i}" for i in range(MODEL.hidden)]
    assert table.column_names == ["node", *probabilities, *embeddings]
    np.testing.assert_array_equal(table["node"], np.arange(300))
    for i, name in enumerate(probabilities):
        np.testing.assert_allclose(table[name], predictions.probabilities_nc[:, i], rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_an_unknown_format_is_refused(tmp_path):
    nothing = Predictions(np.zeros((1, 1)), np.zeros((1, 1)), {})
    with pytest.raises(UserError, match=r"--out ends in .npz, .parquet, .csv; found 'p.txt'"):
        write_predictions(nothing, tmp_path / "p.txt")


def test_a_place_that_cannot_be_written_is_a_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    nothing = Predictions(np.zeros((1, 1)), np.zeros((1, 1)), {})
    with pytest.raises(UserError, match="cannot write there"):
        write_predictions(nothing, tmp_path / "file" / "p.npz")


def test_a_graph_with_other_features_is_refused(graph, finished):
    other = dataclasses.replace(graph, x_nf=graph.x_nf[:, :5])
    with pytest.raises(UserError, match=r"was trained on 64 features; .* has 5"):
        predict(*RunFolder.open(finished.folder), other)


def test_a_run_without_a_checkpoint_cannot_predict(graph, finished, out):
    shutil.copytree(finished.folder, out)
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint yet"):
        predict(*RunFolder.open(out), graph)


def test_damaged_files_of_a_run_are_a_users_error(finished, graph, out):
    shutil.copytree(finished.folder, out)
    (out / "data.json").write_text('{"features"')
    with pytest.raises(UserError, match=r"data\.json: damaged"):
        predict(*RunFolder.open(out), graph)
    (out / "config.json").write_text(json.dumps({"stepz": 1}))
    with pytest.raises(UserError, match="Did you mean 'steps'"):
        RunFolder.open(out)


def without_labels(graph):
    return dataclasses.replace(graph, labels_n=np.full(graph.num_nodes, -1), split_n={})


def test_a_graph_without_labels_gets_the_same_predictions(graph, finished, predictions):
    again = predict(*RunFolder.open(finished.folder), without_labels(graph))
    np.testing.assert_array_equal(again.probabilities_nc, predictions.probabilities_nc)
    assert all(np.isnan(value) for value in again.metrics.values())


def test_a_graph_that_lacks_the_last_class_is_accepted(graph, finished, predictions):
    fewer = dataclasses.replace(graph, labels_n=np.minimum(graph.labels_n, 2))
    again = predict(*RunFolder.open(finished.folder), fewer)
    np.testing.assert_array_equal(again.probabilities_nc, predictions.probabilities_nc)


def test_labels_of_another_kind_are_refused(graph, finished):
    answers = dataclasses.replace(graph, labels_n=np.ones((graph.num_nodes, 4), int))
    with pytest.raises(UserError, match=r"was trained on False multilabel; .* has True"):
        predict(*RunFolder.open(finished.folder), answers)


def test_yes_no_labels_are_learnt_and_predicted(graph, out):
    answers = (graph.labels_n[:, None] == np.arange(3)).astype(int)
    answers[::7, 0] = -1
    answered = dataclasses.replace(graph, labels_n=answers)
    result = fit(answered, config=small_config(out), show_progress=False)
    assert result["metric"] == "roc_auc"
    assert result["test_roc_auc"] > 0.6
    predicted = predict(*RunFolder.open(out), answered)
    assert {name: result[name] for name in predicted.metrics} == predicted.metrics
    p_nt = predicted.probabilities_nc
    assert p_nt.shape == (300, 3)
    assert ((p_nt >= 0) & (p_nt <= 1)).all()
    again = predict(*RunFolder.open(out), without_labels(graph))
    np.testing.assert_array_equal(again.probabilities_nc, p_nt)
