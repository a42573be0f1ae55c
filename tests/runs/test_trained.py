"""A finished run brought back: the same metrics, and predictions in every format."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import Names
from gtjax.runs.loop import fit
from gtjax.runs.predictions import Predictions, write_predictions
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from tests.runs.small_run import MODEL, small_config


@pytest.fixture(scope="module")
def predictions(graph, finished):
    return TrainedRun(*RunFolder.open(finished.folder)).predict(graph)


def test_evaluating_again_gives_the_metrics_of_the_result(finished, predictions):
    assert set(predictions.metrics) == {"train_accuracy", "val_accuracy", "test_accuracy"}
    for name, value in predictions.metrics.items():
        assert value == finished[name]


def test_probabilities_sum_to_one_and_explain_the_accuracy(graph, finished, predictions):
    p_nc = predictions.answers_nc
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
        np.testing.assert_array_equal(stored["probabilities"], predictions.answers_nc)
        np.testing.assert_array_equal(stored["embeddings"], predictions.embeddings_nf)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_tables_have_a_row_per_node(predictions, tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    write_predictions(predictions, path)
    read = pyarrow.parquet.read_table if suffix == ".parquet" else pyarrow.csv.read_csv
    table = read(path)
    probabilities = [f"probability_{i}" for i in range(4)]
    embeddings = [f"embedding_{i}" for i in range(MODEL.hidden)]
    assert table.column_names == ["node", "predicted", "probability", *probabilities, *embeddings]
    np.testing.assert_array_equal(table["node"], np.arange(300))
    np.testing.assert_array_equal(table["predicted"], predictions.answers_nc.argmax(axis=1))
    largest_n = predictions.answers_nc.max(axis=1)
    np.testing.assert_allclose(table["probability"], largest_n, rtol=1e-6)
    for i, name in enumerate(probabilities):
        np.testing.assert_allclose(table[name], predictions.answers_nc[:, i], rtol=1e-6)
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
        TrainedRun(*RunFolder.open(finished.folder)).predict(other)


def test_a_run_without_a_checkpoint_cannot_predict(graph, finished, out):
    shutil.copytree(finished.folder, out)
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint yet"):
        TrainedRun(*RunFolder.open(out)).predict(graph)


def test_damaged_files_of_a_run_are_a_users_error(finished, graph, out):
    shutil.copytree(finished.folder, out)
    (out / "data.json").write_text('{"features"')
    with pytest.raises(UserError, match=r"data\.json: damaged"):
        TrainedRun(*RunFolder.open(out)).predict(graph)
    (out / "config.json").write_text(json.dumps({"stepz": 1}))
    with pytest.raises(UserError, match="Did you mean 'steps'"):
        RunFolder.open(out)


def without_labels(graph):
    return dataclasses.replace(graph, labels_n=np.full(graph.num_nodes, -1), split_n={})


def test_a_graph_without_labels_gets_the_same_predictions(graph, finished, predictions):
    again = TrainedRun(*RunFolder.open(finished.folder)).predict(without_labels(graph))
    np.testing.assert_array_equal(again.answers_nc, predictions.answers_nc)
    assert all(np.isnan(value) for value in again.metrics.values())


def test_a_graph_that_lacks_the_last_class_is_accepted(graph, finished, predictions):
    fewer = dataclasses.replace(graph, labels_n=np.minimum(graph.labels_n, 2))
    again = TrainedRun(*RunFolder.open(finished.folder)).predict(fewer)
    np.testing.assert_array_equal(again.answers_nc, predictions.answers_nc)


def test_labels_of_another_kind_are_refused(graph, finished):
    answers = dataclasses.replace(graph, labels_n=np.ones((graph.num_nodes, 4), int))
    with pytest.raises(UserError, match=r"was trained on one label a node; .* has several yes/no"):
        TrainedRun(*RunFolder.open(finished.folder)).predict(answers)


CLASSES = ("tea", "ivy", "oak", "elm")


@pytest.fixture(scope="module")
def named(graph):
    """The graph with names that are sorted otherwise than their numbers."""
    nodes = np.array([f"plant {n}" for n in range(graph.num_nodes)])
    return dataclasses.replace(graph, names=Names(nodes, CLASSES))


@pytest.fixture(scope="module")
def finished_with_names(finished, tmp_path_factory):
    """The run as it would be had it been trained on the graph with names."""
    folder = tmp_path_factory.mktemp("named") / "run"
    shutil.copytree(finished.folder, folder)
    known = json.loads((folder / "data.json").read_text())
    known["facts"]["class_names"] = CLASSES
    (folder / "data.json").write_text(json.dumps(known))
    return folder


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_tables_have_the_names_of_nodes_and_classes(named, finished_with_names, tmp_path, suffix):
    found = TrainedRun(*RunFolder.open(finished_with_names)).predict(named)
    path = tmp_path / f"p{suffix}"
    write_predictions(found, path)
    table = (pyarrow.parquet.read_table if suffix == ".parquet" else pyarrow.csv.read_csv)(path)
    assert table.column_names[:3] == ["node", "predicted", "probability"]
    assert table.column_names[3:7] == [f"probability_{name}" for name in CLASSES]
    assert table["node"].to_pylist() == named.names.nodes.tolist()
    assert table["predicted"].to_pylist() == [CLASSES[i] for i in found.answers_nc.argmax(axis=1)]
    by_name = {name: table[f"probability_{name}"].to_pylist() for name in CLASSES}
    for row, chosen in enumerate(table["predicted"].to_pylist()):
        assert table["probability"][row].as_py() == by_name[chosen][row]


def test_arrays_have_the_names_too(named, finished_with_names, tmp_path):
    found = TrainedRun(*RunFolder.open(finished_with_names)).predict(named)
    write_predictions(found, tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as stored:
        assert stored["nodes"].tolist() == named.names.nodes.tolist()
        assert stored["classes"].tolist() == list(CLASSES)
        expected = np.array(CLASSES)[found.answers_nc.argmax(axis=1)]
        np.testing.assert_array_equal(stored["predicted"], expected)


def test_names_are_those_of_the_training(graph, finished_with_names):
    found = TrainedRun(*RunFolder.open(finished_with_names)).predict(graph)  # which has none
    assert found.nodes is None
    assert found.classes == CLASSES


def test_classes_in_another_order_are_found_by_name(named, finished_with_names):
    order = np.array([2, 0, 3, 1])  # class i is called as class order[i] was
    names = dataclasses.replace(named.names, classes=tuple(CLASSES[i] for i in order))
    other = dataclasses.replace(named, labels_n=np.argsort(order)[named.labels_n], names=names)
    folder, config = RunFolder.open(finished_with_names)
    first, again = (TrainedRun(folder, config).predict(each) for each in (named, other))
    assert again.metrics == first.metrics
    assert again.classes == CLASSES
    np.testing.assert_array_equal(again.answers_nc, first.answers_nc)


def test_classes_that_were_never_seen(named, finished_with_names, capsys):
    folder, config = RunFolder.open(finished_with_names)
    names = dataclasses.replace(named.names, classes=("tea", "ivy", "oak", "fern"))
    found = TrainedRun(folder, config).predict(dataclasses.replace(named, names=names))
    assert "that the run has never seen are left out: fern" in capsys.readouterr().err
    right_n = found.answers_nc.argmax(axis=1) == named.labels_n
    tested_n = named.split_n["test"] & (named.labels_n < 3)
    np.testing.assert_allclose(found.metrics["test_accuracy"], right_n[tested_n].mean(), rtol=1e-6)
    names = dataclasses.replace(named.names, classes=("a", "b", "c", "d"))
    with pytest.raises(UserError, match=r"trained on the classes tea, ivy.* has others: a, b"):
        TrainedRun(folder, config).predict(dataclasses.replace(named, names=names))


@pytest.mark.slow
def test_yes_no_labels_are_learnt_and_predicted(graph, out):
    answers = (graph.labels_n[:, None] == np.arange(3)).astype(int)
    answers[::7, 0] = -1
    answered = dataclasses.replace(graph, labels_n=answers)
    result = fit(answered, config=small_config(out), show_progress=False)
    assert result["metric"] == "roc_auc"
    assert result["test_roc_auc"] > 0.6
    predicted = TrainedRun(*RunFolder.open(out)).predict(answered)
    assert {name: result[name] for name in predicted.metrics} == predicted.metrics
    p_nt = predicted.answers_nc
    assert p_nt.shape == (300, 3)
    assert ((p_nt >= 0) & (p_nt <= 1)).all()
    again = TrainedRun(*RunFolder.open(out)).predict(without_labels(graph))
    np.testing.assert_array_equal(again.answers_nc, p_nt)
