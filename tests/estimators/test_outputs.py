"""Activations of outputs: targets are scaled into the range of the activation, or rejected."""

import numpy as np
import pytest

from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology
from meshnn.codes import ACTIVATIONS, RANGES
from meshnn.errors import DataError
from meshnn.estimators.scaling import Scaling
from meshnn.losses import loss_named

X = np.linspace(-1, 1, 120)[:, None]
SQUARED = loss_named("squared_error")


def scaled(activation, y, wanted=True):
    found = Scaling.learn(X[: len(y)], y[:, None], None, wanted, SQUARED, activation)
    return found, found.targets(y[:, None])[:, 0]


def ending_in(activation):
    """Return a function that builds nets with two hidden neurons and this output activation."""
    return lambda n, k: Mesh(Topology.mesh(n, 2, k), activation="tanh", output_activation=activation, random_state=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_every_activation_reaches_all_targets(activation, loss):
    y = (60 + 40 * X + 5 * np.sin(9 * X)) ** 2
    found = Scaling.learn(X, y, None, True, loss_named(loss), activation)
    targets, (low, high) = found.targets(y), RANGES.get(activation, (-np.inf, np.inf))
    assert targets.min() >= low
    assert targets.max() <= high
    np.testing.assert_allclose(found.values(targets), y, rtol=1e-12)  # the inverse


@pytest.mark.parametrize("activation", ["softplus", "sigmoid", "tanh", "elu", "hardtanh"])
def test_they_are_learned(activation):
    y = 60 + 40 * X[:, 0]
    model = MeshRegressor(mesh=ending_in(activation), max_epochs=30, solver="lm", tol=0, random_state=0).fit(X, y)
    assert model.predict(X).min() < y.mean() - 20  # never below the mean, if the mean is scaled to 0
    assert model.score(X, y) > 0.9


def test_what_is_meant_by_an_activation_stays():
    y = 3 + 2 * X[:, 0]
    for activation in ("relu", "softplus"):
        found, targets = scaled(activation, y)
        assert found.y_mean.tolist() == [0.0]  # without centring, predictions are never negative
        assert targets.std() == pytest.approx(1)
    share = 0.5 + 0.4 * X[:, 0]
    for activation, inside in (("sigmoid", share), ("gauss", share), ("tanh", X[:, 0]), ("sin", X[:, 0])):
        assert scaled(activation, inside)[1].tolist() == inside.tolist()  # targets between 0 and 1 are not scaled
        for other in (1e-6 * inside, 1e6 * inside, inside + 0.5):
            targets = scaled(activation, other)[1]
            low, high = RANGES[activation]
            ends = [low + 0.1 * (high - low), high - 0.1 * (high - low)]
            np.testing.assert_allclose([targets.min(), targets.max()], ends, rtol=1e-9)
    assert scaled("tanh", np.full(9, 7.0))[1].tolist() == [0.0] * 9
    found, targets = scaled("elu", np.array([0.0, 10, 10, 10, 10, 10]))
    assert targets.min() == pytest.approx(-0.9)
    assert scaled("elu", X[:, 0] ** 3)[0].y_scale == scaled("identity", X[:, 0] ** 3)[0].y_scale
    weight = np.ones(120)
    weight[0] = 0.0
    outlier = share.copy()
    outlier[0] = 99.0  # its weight is 0
    assert Scaling.learn(X, outlier[:, None], weight, True, SQUARED, "sigmoid").y_scale.tolist() == [1.0]


@pytest.mark.parametrize(("activation", "standardize", "y", "message"), [
    ("softplus", True, X[:, 0], r"range 0 to inf, but y contains -1; .*\"identity\"$"),
    ("relu", False, X[:, 0], "but y contains -1"),
    ("tanh", False, 2 * X[:, 0], "but y contains -2; .* or standardize=True"),
    ("sigmoid", False, 1 + X[:, 0], "range 0 to 1, but y contains 2"),
])  # fmt: skip
def test_targets_out_of_reach(activation, standardize, y, message):
    with pytest.raises(DataError, match=message):
        MeshRegressor(mesh=ending_in(activation), standardize=standardize, max_epochs=1).fit(X, y)


def test_outputs_that_a_loss_could_not_use():
    y = np.arange(120) % 2
    for activation in ("sigmoid", "tanh", "sin", "gauss", "hardtanh"):
        with pytest.raises(MeshError, match=activation):
            MeshClassifier(mesh=ending_in(activation), max_epochs=1).fit(X, y)
    for activation in ("relu", "softplus", "elu"):  # differences of outputs are unbounded
        MeshClassifier(mesh=ending_in(activation), max_epochs=1, random_state=0).fit(X, y)
    for activation in RANGES:
        with pytest.raises(MeshError, match=activation):
            MeshRegressor(mesh=ending_in(activation), loss="poisson", max_epochs=1).fit(X, y)
