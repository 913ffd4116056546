"""`partial_fit`: scaling that follows the stream, callbacks."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import meshnn
from meshnn import MeshClassifier, MeshError, MeshRegressor

X, Y = load_iris(return_X_y=True)
D, T = load_diabetes(return_X_y=True)
RNG = np.random.default_rng(0)


def drifting(n_calls=6, size=40):
    """Return a stream whose features and targets increase in mean and spread."""
    for k in range(n_calls):
        x = RNG.standard_normal((size, 3)) * (1 + k) + 10 * k
        yield x, x @ [1.0, -2.0, 0.5] + 100 * k


@pytest.mark.parametrize("make", [MeshClassifier, MeshRegressor])
def test_the_scaling_is_that_of_all_samples_so_far(make):
    model = make(4, random_state=0, solver="adam")
    xs, ys = zip(*drifting(), strict=True)
    weights = [RNG.random(len(x)) for x in xs]
    for x, y, w in zip(xs, ys, weights, strict=True):
        known = {"classes": [False, True]} if make is MeshClassifier else {}
        model.partial_fit(x, y > np.median(y) if known else y, sample_weight=w, **known)
    x, y, w = np.concatenate(xs), np.concatenate(ys), np.concatenate(weights)
    mean = np.average(x, axis=0, weights=w)
    scaling = model.preprocessing_.scaling
    np.testing.assert_allclose(scaling.x_mean, mean)
    np.testing.assert_allclose(scaling.x_scale, np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w)))
    if make is MeshRegressor:
        np.testing.assert_allclose(scaling.y_mean, np.average(y, weights=w))
        np.testing.assert_allclose(scaling.y_scale, np.sqrt(np.average((y - scaling.y_mean) ** 2, weights=w)))


def test_what_stays():
    model = MeshRegressor(4, random_state=0).fit(D, T)
    scaling = model.preprocessing_.scaling
    assert model.partial_fit(D + 5, T * 3 + 7).preprocessing_.scaling is scaling  # the scaling of fit
    still = MeshRegressor(4, random_state=0, loss="huber", solver="adam").partial_fit(D, T)
    before = still.preprocessing_.scaling
    after = still.partial_fit(D + 1, T + 100).preprocessing_.scaling
    np.testing.assert_array_equal(after.y_mean, before.y_mean)  # medians cannot be updated
    assert (after.x_mean > before.x_mean).all()
    bare = MeshRegressor(4, random_state=0, standardize=False, solver="adam").partial_fit(D, T).partial_fit(D + 5, T)
    assert not bare.preprocessing_.scaling.x_mean.any()


def test_features_that_were_constant_for_a_while():
    model = MeshRegressor(2, random_state=0, solver="adam").partial_fit(D[:1], T[:1])
    assert model.preprocessing_.scaling.x_constant.all()
    assert model.preprocessing_.scaling.y_constant.all()
    scaling = model.partial_fit(D[1:], T[1:]).preprocessing_.scaling
    assert not scaling.x_constant.any()
    np.testing.assert_allclose(scaling.x_scale, D.std(axis=0))
    np.testing.assert_allclose(scaling.y_scale, T.std())


def test_files_and_pickles_go_on_alike(tmp_path):
    model = MeshRegressor(3, random_state=0, solver="adam")
    stream = list(drifting())
    for x, y in stream[:3]:
        model.partial_fit(x, y)
    model.save(tmp_path / "m.mesh")
    for other in (meshnn.load(tmp_path / "m.mesh"), pickle.loads(pickle.dumps(model))):
        twin = copy.deepcopy(model)
        for x, y in stream[3:]:
            for each in (twin, other):
                each.partial_fit(x, y)
        np.testing.assert_array_equal(other.mesh_.weights, twin.mesh_.weights)
        np.testing.assert_array_equal(other.preprocessing_.scaling.x_scale, twin.preprocessing_.scaling.x_scale)
    tree = meshnn.storage.read(tmp_path / "m.mesh")
    tree["preprocessing"]["scaling"]["x_constant"] = np.zeros(2, bool)
    meshnn.storage.write(tmp_path / "bad.mesh", tree)
    with pytest.raises(MeshError, match="x_constant"):
        meshnn.load(tmp_path / "bad.mesh")


def test_what_is_refused_changes_nothing():
    model = MeshRegressor(3, random_state=0, solver="adam").partial_fit(D[:, :2], T)
    weights, scaling = model.mesh_.weights.copy(), model.preprocessing_.scaling
    with pytest.raises(ValueError, match="inconsistent"):
        model.partial_fit(D[:5, :2], T[:4])
    assert model.preprocessing_.scaling is scaling

    def fail(*_):
        raise MeshError("no")

    with pytest.MonkeyPatch.context() as patch:  # after the scaling has changed
        patch.setattr("meshnn.estimators.preprocessing.as_samples", fail)
        with pytest.raises(MeshError, match="no"):
            model.partial_fit(D[:, :2] + 9, T)
    np.testing.assert_array_equal(model.mesh_.weights, weights)
    assert model.preprocessing_.scaling is scaling


def test_callbacks_and_lines(capsys):
    seen = []
    model = MeshClassifier(3, random_state=0, solver="adam", verbose=2, callbacks=lambda row, mesh: seen.append(row))
    for _ in range(3):
        model.partial_fit(X, Y, classes=[0, 1, 2])
    assert [row.epoch for row in seen] == [1, 2, 3]
    assert seen == model.history_.data
    assert capsys.readouterr().err.count("epoch ") == 3
    with pytest.raises(MeshError, match="callbacks must be functions"):
        model.set_params(callbacks=3).partial_fit(X, Y)


def test_a_stream_after_a_fit_goes_on_with_the_penalty_that_was_found():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    model = MeshClassifier(hidden=3, random_state=0).fit(X, y)
    found = model.l2_
    assert found != 1e-4
    assert model.partial_fit(X, y).l2_ == found
