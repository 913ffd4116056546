"""Multilabel classification: y is a matrix of 0 and 1 with one column per label."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import cross_val_score

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, Topology
from meshnn.loading import load_fitted
from meshnn.training import Adam
from meshnn.training.api import as_samples

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3))
LABELS = np.stack([X[:, 0] > 0.3, X[:, 1] * X[:, 2] > 0, np.zeros(200, bool)], axis=1).astype(int)
NOISY = (X @ RNG.standard_normal((3, 2)) + RNG.logistic(size=(200, 2)) > 0).astype(int)


def test_without_hidden_neurons_it_is_logistic_regression_per_label():
    """The problem is convex: all solvers reach the same minimum."""
    model = MeshClassifier(0, l2=1e-3, tol=0, max_epochs=60, solver="lm", standardize=False).fit(X, NOISY)
    want = []
    for label in NOISY.T:
        regression = LogisticRegression(C=1 / (1e-3 * len(X)), tol=1e-10, max_iter=1000).fit(X, label)
        want.append(regression.predict_proba(X)[:, 1])
    np.testing.assert_allclose(model.predict_proba(X), np.stack(want, axis=1), rtol=1e-5)


@pytest.mark.parametrize("solver", ["lm", "adam"])
def test_outputs_of_labels(solver):
    model = MeshClassifier(6, random_state=0, solver=solver, max_epochs=100).fit(X, LABELS)
    margins, probabilities, predicted = model.decision_function(X), model.predict_proba(X), model.predict(X)
    assert margins.shape == probabilities.shape == predicted.shape == (200, 3)
    np.testing.assert_array_equal(predicted, margins > 0)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-margins.astype(float))), rtol=1e-9)
    assert predicted.dtype.kind == "i"
    assert model.score(X, LABELS) == accuracy_score(LABELS, predicted) > 0.5
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.loss_ == "binary_cross_entropy"
    if solver == "lm":  # the history has the accuracy per epoch; a row is correct if all labels are, as in score
        assert model.history_[-1].accuracy == pytest.approx(model.score(X, LABELS))


def test_a_row_is_correct_if_all_its_labels_are():
    """Outputs are the features; an output of exactly 0 predicts no label, as in `predict`."""
    mesh = Mesh(Topology(2, 0, 2, [[0, 2], [1, 3]], bias=False), 1, dtype="float64", weights=[1.0, 1.0])
    outputs = np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 1.0], [0.0, 1.0], [-2.0, 3.0]])
    labels = [[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [0, 1]]  # rows 0, 3 and 5 are correct
    weight = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = as_samples(mesh, outputs, labels, "binary_cross_entropy", weight)
    assert mesh.engine().evaluate(mesh.values, found.X, found.targets)[1] == pytest.approx(11 / 21, rel=1e-12)


@pytest.mark.parametrize("make", [pd.DataFrame, sparse.csr_array, np.ndarray.tolist, lambda y: y > 0, np.float64])
def test_every_kind_of_matrix(make):
    model = MeshClassifier(2, random_state=0, max_epochs=5)
    want = clone(model).fit(X, LABELS).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, make(LABELS)).predict_proba(X), want)
    assert model.score(X, make(LABELS)) > 0


@pytest.mark.slow
def test_files_early_stopping_and_cross_validation(tmp_path):
    model = MeshClassifier(3, random_state=0, max_epochs=5, early_stopping=True).fit(X, LABELS)
    assert np.isfinite(model.history_["validation"]).all()
    model.save(tmp_path / "m.mesh")
    for again in (meshnn.load(tmp_path / "m.mesh"), load_fitted(tmp_path / "m.mesh")):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    again = meshnn.load(tmp_path / "m.mesh").set_params(warm_start=True)
    assert again.fit(X, LABELS).loss_ == "binary_cross_entropy"
    assert cross_val_score(MeshClassifier(3, random_state=0, max_epochs=30), X, LABELS, cv=2).mean() > 0.4


def test_streams_of_labels():
    model = MeshClassifier(3, random_state=0, solver=Adam(learning_rate=0.05))
    first = model.partial_fit(X, LABELS).history_[-1].loss
    for _ in range(40):
        model.partial_fit(X, LABELS)
    assert model.history_[-1].loss < first
    with pytest.raises(MeshError, match="y was a matrix of labels before"):
        model.partial_fit(X, LABELS[:, 0])
    with pytest.raises(MeshError, match="classes is"):
        model.partial_fit(X, LABELS[:, :2])
    assert MeshClassifier(2).partial_fit(X, LABELS, classes=[0, 1, 2]).predict(X).shape == (200, 3)


def test_what_is_refused():
    for y, options, message in [
        (LABELS + 1, {}, "y has 3 columns"),
        (LABELS * 3.5, {}, "y has 3 columns"),
        (RNG.integers(0, 4, (200, 2)), {}, "y has 2 columns"),
        (LABELS, {"class_weight": "balanced"}, "class_weight"),
        (LABELS, {"loss": "cross_entropy"}, "unknown loss of a classifier of several labels 'cross_entropy'"),
        (LABELS[:, 0], {"loss": "binary_cross_entropy"}, "unknown loss of a classifier 'binary_cross_entropy'"),
    ]:
        with pytest.raises(MeshError, match=message):
            MeshClassifier(2, **options).fit(X, y)
    model = MeshClassifier(2, max_epochs=3, random_state=0).fit(X, LABELS)
    assert model.fit(X, LABELS[:, 0]).predict(X).shape == (200,)  # a new fit builds a new net
    with pytest.raises(MeshError, match="one class per sample before"):
        model.set_params(warm_start=True).fit(X, LABELS)
