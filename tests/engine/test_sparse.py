"""Sparse features, the default output of a OneHotEncoder."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from meshnn import MeshClassifier, MeshError, MeshRegressor
from meshnn.estimators import scaling as _scaling
from meshnn.losses import LOSSES

RNG = np.random.default_rng(0)
X, Y = load_iris(return_X_y=True)
THIN = np.where(RNG.random(X.shape) < 0.5, 0.0, X)
FORMATS = [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.coo_matrix]


def outputs(model, X):
    return model.decision_function(X) if isinstance(model, MeshClassifier) else model.predict(X)


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("estimator", [MeshClassifier, MeshRegressor])
def test_a_sparse_matrix_is_what_it_holds(make, estimator):
    options = {"hidden": 3, "max_epochs": 3, "random_state": 0}
    dense, thin = estimator(**options).fit(THIN, Y), estimator(**options).fit(make(THIN), Y)
    # means are sums in another order
    np.testing.assert_allclose(thin.mesh_.weights, dense.mesh_.weights, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(outputs(thin, make(THIN)), outputs(dense, THIN), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(outputs(thin, THIN), outputs(thin, make(THIN)), rtol=1e-12)
    assert thin.n_features_in_ == 4


def test_block_by_block_nothing_changes(monkeypatch):
    monkeypatch.setattr(_scaling.row_blocks, "__defaults__", (7 * 4,))  # sizes that are not multiples of the block size
    weight = RNG.random(150)
    scaling = _scaling.Scaling.learn(sparse.csr_array(THIN), Y[:, None], weight, True, LOSSES["squared_error"])
    mean = np.average(THIN, axis=0, weights=weight)
    np.testing.assert_allclose(scaling.x_mean, mean)
    np.testing.assert_allclose(scaling.x_scale, np.sqrt(np.average((THIN - mean) ** 2, axis=0, weights=weight)))
    for dtype in (np.float32, np.float64):
        found = scaling.inputs(sparse.csr_array(THIN), dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, scaling.inputs(THIN).astype(dtype))
    model = MeshClassifier(hidden=3, max_epochs=3, random_state=0).fit(X, Y)
    calls = []
    forward = model.mesh_.forward
    monkeypatch.setattr(
        type(model.mesh_), "forward", lambda mesh, X, **more: calls.append(len(X)) or forward(X, **more)
    )
    assert model.predict_proba(sparse.csr_array(X)).shape == (150, 3)
    assert calls == [7] * 21 + [3]  # at most one block is dense at a time


def test_the_default_encoder_in_a_pipeline():
    towns = RNG.choice(["Rom", "Köln", "Oslo"], (90, 1))
    answers = np.where(towns[:, 0] == "Rom", "yes", "no")
    model = make_pipeline(OneHotEncoder(), MeshClassifier(hidden=2, max_epochs=20, random_state=0))
    assert model.fit(towns, answers).score(towns, answers) == 1.0


def test_what_does_not_fit_into_memory_is_refused_with_numbers():
    wide = sparse.csr_array((150, 10**12))
    with pytest.raises(MeshError, match=r"150 x 1,000,000,000,000 .* 545\.7 TiB"):
        MeshRegressor(hidden=0).fit(wide, Y)
