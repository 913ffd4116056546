"""Outputs with an activation of their own: targets are where it can reach them, or are refused."""

import numpy as np
import pytest

from meshnn import MeshClassifier, MeshError, MeshRegressor
from meshnn.codes import ACTIVATIONS, RANGES
from meshnn.errors import DataError
from meshnn.estimators.scaling import Scaling
from meshnn.losses import loss_named

X = np.linspace(-1, 1, 120)[:, None]
SQUARED = loss_named("squared_error")


def scaled(activation, y, wanted=True):
    found = Scaling.learn(X[: len(y)], y[:, None], None, wanted, SQUARED, activation)
    return found, found.targets(y[:, None])[:, 0]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_every_activation_reaches_all_targets(activation, loss):
    y = (60 + 40 * X + 5 * np.sin(9 * X)) ** 2
    found = Scaling.learn(X, y, None, True, loss_named(loss), activation)
    targets, (low, high) = found.targets(y), RANGES.get(activation, (-np.inf, np.inf))
    assert targets.min() >= low
    assert targets.max() <= high
    np.testing.assert_allclose(found.values(targets), y, rtol=1e-12)  # and back


@pytest.mark.parametrize("activation", ["softplus", "sigmoid", "tanh", "elu"])
def test_they_are_learned(activation):
    y = 60 + 40 * X[:, 0]
    options = {"hidden": 2, "output_activation": activation, "solver": "lm", "tol": 0, "random_state": 0}
    model = MeshRegressor(max_epochs=30, **options).fit(X, y)
    assert model.predict(X).min() < y.mean() - 20  # never below the mean, if that is the output's 0
    assert model.score(X, y) > 0.9


def test_what_is_meant_by_an_activation_stays():
    y = 3 + 2 * X[:, 0]
    for activation in ("relu", "softplus"):
        found, targets = scaled(activation, y)
        assert found.y_mean.tolist() == [0.0]  # 0 is 0: predictions are never negative
        assert targets.std() == pytest.approx(1)
    share = 0.5 + 0.4 * X[:, 0]
    for activation, inside in (("sigmoid", share), ("gauss", share), ("tanh", X[:, 0]), ("sin", X[:, 0])):
        assert scaled(activation, inside)[1].tolist() == inside.tolist()  # shares stay shares
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
    outlier[0] = 99.0  # counts for nothing
    assert Scaling.learn(X, outlier[:, None], weight, True, SQUARED, "sigmoid").y_scale.tolist() == [1.0]


@pytest.mark.parametrize(("options", "y", "message"), [
    ({"output_activation": "softplus"}, X[:, 0], r"from 0 to inf, but y holds -1; use output_activation=\"identity\"$"),
    ({"output_activation": "relu", "standardize": False}, X[:, 0], "but y holds -1"),
    ({"output_activation": "tanh", "standardize": False}, 2 * X[:, 0], "but y holds -2; .* or standardize=True"),
    ({"output_activation": "sigmoid", "standardize": False}, 1 + X[:, 0], "from 0 to 1, but y holds 2"),
])  # fmt: skip
def test_targets_out_of_reach(options, y, message):
    with pytest.raises(DataError, match=message):
        MeshRegressor(2, max_epochs=1, **options).fit(X, y)


def test_outputs_that_a_loss_could_not_use():
    y = np.arange(120) % 2
    for activation, most in (("sigmoid", "0.731"), ("tanh", "0.881"), ("sin", "0.881"), ("gauss", "0.731")):
        with pytest.raises(MeshError, match=most):
            MeshClassifier(2, output_activation=activation, max_epochs=1).fit(X, y)
    with pytest.raises(MeshError, match=r"0\.576"):
        MeshClassifier(2, output_activation="sigmoid", max_epochs=1).fit(X, np.arange(120) % 3)
    for activation in ("relu", "softplus", "elu"):  # differences of outputs have no bounds
        MeshClassifier(2, output_activation=activation, max_epochs=1, random_state=0).fit(X, y)
    for activation in RANGES:
        with pytest.raises(MeshError, match=activation):
            MeshRegressor(2, loss="poisson", output_activation=activation, max_epochs=1).fit(X, y)
    with pytest.raises(MeshError, match="unknown output_activation"):
        MeshRegressor(2, output_activation="softmax").fit(X, y)
