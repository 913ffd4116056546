"""Calls reuse workspaces: results and errors do not depend on earlier calls."""

import warnings
from itertools import product

import numpy as np
import pytest

from meshnn import Mesh, MeshClassifier, MeshRegressor, Topology
from meshnn.estimators.preprocessing import Preprocessing
from meshnn.plan import METHODS


def net(dtype="float32"):
    topology = Topology.mesh(3, 6, 2, density=0.7, self_loops=True, random_state=0)
    return Mesh(topology, 3, "tanh", dtype=dtype, random_state=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_earlier_calls(method, dtype):
    """Sizes, losses, sample weights and weights change from call to call, and workspaces are reused."""
    mesh, rng = net(dtype), np.random.default_rng(0)
    calls = [(64, None), (64, "uneven"), (64, None), (63, None), (1, None), (900, None), (64, "some"), (2, "uneven"),
             (2, None)]  # fmt: skip
    for loss, (size, weighted) in product(("cross_entropy", "squared_error", "huber"), calls):
        fresh, X = net(dtype), rng.standard_normal((size, 3))
        y = rng.integers(0, 2, size) if loss == "cross_entropy" else rng.standard_normal((size, 2))
        mesh.weights[:] = fresh.weights[:] = rng.standard_normal(mesh.topology.n_edges)
        weight = {None: None, "uneven": rng.uniform(1, 2, size), "some": np.arange(size) % 3}[weighted]
        for run in (
            lambda m, X=X, y=y, weight=weight, loss=loss: m.gradient(X, y, loss, method, weight),
            lambda m, X=X: (m.forward(X), m.states(X), m.jacobian(X, method)),
        ):
            for got, want in zip(run(mesh), run(fresh), strict=True):
                np.testing.assert_array_equal(got, want)


def test_weights_changed_in_place_count_at_once():
    mesh, X = net(), np.ones((1, 3), np.float32)
    for _ in range(2):
        mesh.forward(X)
    mesh.weights *= 2
    np.testing.assert_array_equal(mesh.forward(X), Mesh(mesh.topology, 3, "tanh", weights=mesh.weights).forward(X))
    mesh.weights[:] = 1e30  # their squares overflow in float32; this raises no error and no warning
    with np.errstate(all="raise"):
        assert np.isfinite(mesh.forward(X)).all()
    for wrong in (np.nan, np.inf, -np.inf):
        mesh.weights[7] = wrong
        for call in (mesh.forward, mesh.states, lambda X: mesh.gradient(X, [0])):
            with pytest.raises(ValueError, match=rf"weight 7 is {wrong}"):
                call(X)
    mesh.weights[:] = 0
    assert not mesh.forward(X).any()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8, ">i8", ">i2", np.float32, np.float64, bool])
def test_labels_of_any_type(dtype):
    mesh, X = net(), np.random.default_rng(0).standard_normal((4, 3))
    want = mesh.gradient(X, [0, 1, 1, 0])
    got = mesh.gradient(X, np.array([0, 1, 1, 0], dtype))
    assert got[0] == want[0]
    if dtype is not bool:
        with pytest.raises(ValueError, match="sample 2 is 2"):
            mesh.gradient(X, np.array([0, 1, 2, 0], dtype))
        if np.dtype(dtype).kind != "u":
            with pytest.raises(ValueError, match="sample 1 is -1"):
                mesh.gradient(X, np.array([0, -1, 1, 0], dtype))


# -- estimators --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) * [1, 100, 0.01] + [0, 5, 3]
    options = {"hidden": 4, "max_epochs": 3, "l2": 1e-3, "solver": "adam", "random_state": 0}
    labels = np.array(["a", "b", "c"])[rng.integers(0, 3, 60)]
    return MeshClassifier(**options).fit(X, labels), MeshRegressor(**options).fit(X, X[:, 0])


def answer(model, X):
    """Return the predictions of a model, or its error, with its warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = getattr(model, "predict_proba", model.predict)(X)
            found = found.dtype, found.tolist()
        except Exception as error:
            found = type(error), str(error)
    return repr((found, [str(one.message) for one in seen]))


ROW = np.array([[0.3, 7.0, 3.01]])
FORMS = {
    "one row": ROW,
    "columns first": np.asfortranarray(np.repeat(ROW, 5, axis=0)),
    "every second": np.repeat(ROW, 10, axis=0)[::2],
    "backwards": ROW[:, ::-1],
    "float32": ROW.astype(np.float32),
    "whole numbers": ROW.astype(np.int64),
    "other bytes": ROW.astype(">f8"),
    "a list": ROW.tolist(),
    "numbers as objects": ROW.astype(object),
    "very large": ROW * 1e200,
    "a NaN": np.array([[1.0, np.nan, 2.0]]),
    "an infinity": np.array([[1.0, 1.0, 2.0], [1.0, -np.inf, 2.0]]),
    "too large for float32": np.array([[1.0, 1e300, 2.0]]),
    "one column less": np.ones((2, 2)),
    "one column more": np.ones((2, 4)),
    "no samples": np.ones((0, 3)),
    "flat": np.ones(3),
    "a number": np.float64(1),
    "text": np.array([["a", "b", "c"]]),
    "objects": np.array([[1, 2, "c"]], dtype=object),
    "complex": np.ones((1, 3), complex),
    "dates": np.zeros((1, 3), "datetime64[s]"),
    "masked": np.ma.masked_array(np.ones((1, 3)), [[0, 1, 0]]),
    "ragged": [[1.0, 2.0, 3.0], [1.0]],
    "other ticks": np.ones((2, 1, 3)),
    "nothing": None,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_estimators_behave_as_with_all_checks(form, models, monkeypatch):
    """Predictions and errors are those with scikit-learn's checks, which are skipped where they are not needed."""
    got = [answer(model, form) for model in models]
    monkeypatch.setattr(Preprocessing, "accepts", lambda self, X: False)
    assert got == [answer(model, form) for model in models]
