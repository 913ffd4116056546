"""Conventions and attributes that users of scikit-learn expect."""

import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import meshnn
from meshnn import MeshClassifier, MeshError, MeshRegressor, Topology
from meshnn.engine import cores
from meshnn.engine.threads import thread_count
from meshnn.losses import LOSSES
from meshnn.training import Checkpoint

X, Y = load_iris(return_X_y=True)
OPTIONS = {"max_epochs": 5, "random_state": 0}


@pytest.mark.parametrize("hidden", [(5, 3), [5, 3], np.array([5, 3])])
def test_layers(hidden, tmp_path):
    model = MeshClassifier(hidden, **OPTIONS).fit(X, Y)
    assert model.mesh_.topology == Topology.layered([4, 5, 3, 3])
    assert model.mesh_.ticks == 3
    model.save(tmp_path / "m.mesh")
    again = meshnn.load(tmp_path / "m.mesh").set_params(warm_start=True)
    assert again.fit(X, Y).mesh_.topology == model.mesh_.topology
    again.set_params(hidden=(5, 3)).fit(X, Y)
    with pytest.raises(MeshError, match="hidden changed since the net was built"):
        again.set_params(hidden=(5, 4)).fit(X, Y)
    for same in (hidden, (5, 3)):  # one run
        MeshClassifier(same, **OPTIONS, callbacks=Checkpoint(tmp_path / "run.mesh")).fit(X, Y)


def test_layers_of_other_kinds():
    assert MeshRegressor((), **OPTIONS).fit(X, Y).mesh_.topology == Topology.layered([4, 1])
    assert MeshRegressor((3,), **OPTIONS).fit(X, Y).mesh_.topology == Topology.layered([4, 3, 1])
    assert MeshRegressor(3, **OPTIONS).fit(X, Y).mesh_.topology == Topology.mesh(4, 3, 1)
    for hidden in ((5, 0), ("a",), [[1], [1, 2]], "5", 2.5):
        with pytest.raises(MeshError, match="hidden"):
            MeshRegressor(hidden).fit(X, Y)


def test_negative_numbers_of_threads_count_from_all_cores():
    n = cores()
    assert [thread_count("n", k) for k in (-1, -2, -n, -100, 3, None)] == [n, max(n - 1, 1), 1, 1, 3, None]
    assert MeshClassifier(3, n_jobs=-1, **OPTIONS).fit(X, Y).n_jobs == -1
    for wrong in (0, True):
        with pytest.raises(MeshError, match="n_jobs"):
            MeshClassifier(n_jobs=wrong).fit(X, Y)


def test_logarithms_of_probabilities():
    model = MeshClassifier(3, **OPTIONS).fit(X, Y)
    labels = MeshClassifier(3, **OPTIONS).fit(X, np.stack([Y > 0, Y > 1], axis=1).astype(int))
    for each in (model, labels):
        np.testing.assert_allclose(each.predict_log_proba(X), np.log(each.predict_proba(X)), rtol=1e-12, atol=1e-14)
    sure = np.array([[0.0, 2000.0, -3000.0]])  # exp(-2000) rounds to 0, its logarithm is finite
    np.testing.assert_array_equal(LOSSES["cross_entropy"].log_predicted(sure), [[-2000.0, 0.0, -5000.0]])
    np.testing.assert_array_equal(LOSSES["binary_cross_entropy"].log_predicted(sure), [[-np.log(2), 0.0, -3000.0]])


def test_curves():
    model = MeshClassifier(3, **OPTIONS, tol=0).fit(X, Y)
    assert model.loss_curve_ == model.history_["loss"].tolist()
    assert not hasattr(model, "validation_scores_")
    model = MeshClassifier(3, **OPTIONS, tol=0, early_stopping=True, n_restarts=3).fit(X, Y)
    kept = model.history_["restart"] == model.best_restart_
    assert model.loss_curve_ == model.history_["loss"][kept].tolist()
    assert model.validation_scores_ == model.history_["validation"][kept].tolist()
    assert len(model.loss_curve_) == 5
    with pytest.raises(NotFittedError):
        MeshClassifier().loss_curve_  # noqa: B018


def test_pictures_of_a_model():
    import matplotlib

    matplotlib.use("Agg")
    model = MeshClassifier(3, **OPTIONS)
    assert "<svg" not in model._repr_html_().partition("</style>")[2]
    with pytest.raises(NotFittedError):
        model.plot_history()
    model.fit(X, Y)
    assert [draw().get_title(loc="left") for draw in (model.plot_history, model.plot_graph)] == ["Training", "Graph"]
    shown = model._repr_mimebundle_()["text/html"]
    assert shown.count("<path") == model.mesh_.topology.n_edges
    with pytest.raises(MeshError, match="feature_importances_"):
        model.set_params(solver="adam").partial_fit(X, Y).plot_importances()


@pytest.mark.parametrize("kind", [MeshClassifier, MeshRegressor])
def test_memory_mapped_models_are_copied_before_they_learn_on(kind, tmp_path):
    joblib.dump(kind(3, solver="adam", **OPTIONS).fit(X, Y), tmp_path / "m.joblib")
    before = (tmp_path / "m.joblib").read_bytes()
    mapped, plain = (joblib.load(tmp_path / "m.joblib", mmap_mode=mode) for mode in ("r", None))
    assert not mapped.mesh_.weights.flags.writeable
    for model in (mapped, plain):
        model.partial_fit(X, Y).set_params(warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(mapped.mesh_.weights, plain.mesh_.weights)
    fresh = joblib.load(tmp_path / "m.joblib", mmap_mode="r")
    fresh.set_params(warm_start=True).fit(X, Y)
    assert (tmp_path / "m.joblib").read_bytes() == before


SMALL_STACK = """
import threading
from sklearn.datasets import load_iris
from meshnn import MeshRegressor
X, y = load_iris(return_X_y=True)
done = []
def work():
    for solver in ("adam", "lm"):
        done.append(MeshRegressor(20, solver=solver, l2=0.1, max_epochs=2, random_state=0).fit(X, y).predict(X))
threading.stack_size(65536)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert len(done) == 2
"""


def test_a_thread_with_a_small_stack_is_enough():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SMALL_STACK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
