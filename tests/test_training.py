import numpy as np
import pytest

from meshnn import Mesh, MeshError, Topology
from meshnn.data.synthetic import spirals
from meshnn.training import train_adam


def adam_by_hand(mesh, X, y, steps, rate):
    w = mesh.weights.astype(np.float64)
    mean, square = np.zeros_like(w), np.zeros_like(w)
    losses = []
    for k in range(1, steps + 1):
        mesh.weights = w
        loss, g = mesh.gradient(X, y, method="adjoint")
        losses.append(loss)
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g * g
        w = w - rate * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
    return w, losses


@pytest.mark.parametrize("ticks", [1, 2, 3, 5])
def test_adam_in_compiled_code_equals_adam_by_hand(ticks):
    t = Topology.mesh(2, 6, 2)
    X, y = spirals(150, random_state=0)
    start = np.random.default_rng(0).standard_normal(t.n_edges)
    mesh = Mesh(t, ticks, "tanh", weights=start, dtype="float64")
    rows = list(train_adam(mesh, X, y, 50, learning_rate=0.01, every=20))
    want, losses = adam_by_hand(Mesh(t, ticks, "tanh", weights=start, dtype="float64"), X, y, 50, 0.01)
    np.testing.assert_allclose(mesh.weights, want, rtol=1e-9, atol=1e-12)
    assert [row.step for row in rows] == [20, 40, 50]
    assert [row.loss for row in rows] == pytest.approx([losses[19], losses[39], losses[49]], rel=1e-12)


def test_spirals_are_learned():
    X, y = spirals(1000, random_state=0)
    X = (X - X[:700].mean(axis=0)) / X[:700].std(axis=0)
    mesh = Mesh(Topology.mesh(2, 15, 2), ticks=3, activation="tanh", random_state=0)
    mesh.weights *= 2
    list(train_adam(mesh, X[:700], y[:700], 3000, learning_rate=0.02, every=1000))
    assert np.mean(mesh.forward(X[700:]).argmax(axis=1) == y[700:]) > 0.95


def test_spirals_generator():
    X, y = spirals(1000, random_state=1)
    assert X.shape == (1000, 2)
    assert np.bincount(y).tolist() == [500, 500]
    np.testing.assert_array_equal(X, spirals(1000, random_state=1)[0])
    assert not np.array_equal(X, spirals(1000, random_state=2)[0])
    # no point is the mirror image of one of the other class
    mirrored = -X[y == 1]
    gap = np.abs(X[y == 0][:, None] - mirrored[None]).max(axis=2).min()
    assert gap > 1e-9
    assert np.abs(np.diff(y)).sum() > 300  # shuffled
    with pytest.raises(MeshError, match="at least 2 samples"):
        spirals(1)


def test_wrong_settings_are_refused():
    mesh = Mesh(Topology.mesh(1, 1, 2))
    for options, message in [
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 5, "learning_rate": -1.0}, "learning_rate must be a positive number"),
        ({"steps": 5, "every": 0}, "every must be a whole number"),
    ]:
        with pytest.raises(MeshError, match=message):
            list(train_adam(mesh, [[1.0]], [0], **options))
