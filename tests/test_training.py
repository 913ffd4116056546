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
    with pytest.raises(MeshError, match="n_samples must be a whole number of at least 2"):
        spirals(1)


def test_wrong_settings_are_refused():
    mesh = Mesh(Topology.mesh(1, 1, 2))
    for options, message in [
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 5, "learning_rate": -1.0}, "learning_rate must be a positive number"),
        ({"steps": 5, "every": 0}, "every must be a whole number"),
        ({"steps": 5, "learning_rate": "x"}, "learning_rate must be a positive number, got 'x'"),
        ({"steps": 5, "betas": (0.9,)}, "betas must be two numbers, got 1"),
        ({"steps": 5, "betas": (0.9, 1.0)}, r"betas\[1\] must be a number from 0 to below 1, got 1.0"),
        ({"steps": 5, "betas": None}, "betas must be a list"),
        ({"steps": 5, "epsilon": float("nan")}, "epsilon must be a number of at least 0"),
    ]:
        with pytest.raises(MeshError, match=message):
            list(train_adam(mesh, [[1.0]], [0], **options))


def test_a_graph_changed_during_training_is_noticed():
    X, y = spirals(100, random_state=0)
    for change in (lambda m: m.rewire(Topology.mesh(2, 6, 2, self_loops=True)), lambda m: setattr(m, "ticks", 4)):
        mesh = Mesh(Topology.mesh(2, 6, 2), activation="tanh", random_state=0)
        rows = train_adam(mesh, X, y, 200, every=100)
        next(rows)
        change(mesh)
        with pytest.raises(MeshError, match="another graph or other ticks"):
            next(rows)


def test_sequences_squared_error_and_float32():
    t = Topology.mesh(2, 6, 1)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 90, 2)), rng.standard_normal((90, 1))
    narrow = Mesh(t, 4, "tanh", random_state=0)
    wide = Mesh(t, 4, "tanh", weights=narrow.weights, dtype="float64")
    for mesh in (narrow, wide):
        (*_, last) = train_adam(mesh, X, y, 30, loss="squared_error")
        assert last.step == 30
    np.testing.assert_allclose(narrow.weights, wide.weights, atol=1e-4)


def test_training_where_auto_is_blocks():
    rng = np.random.default_rng(0)
    loose = [(int(i), j) for j in range(2, 22) for i in 2 + rng.choice(20, 2, replace=False)]  # fan-in two
    mesh = Mesh(
        Topology(1, 20, 2, [*loose, *((0, k) for k in range(2, 7)), (2, 22), (3, 23)]), 24, "tanh", random_state=0
    )
    assert mesh._resolve("forward", 10, 1) == "blocks"
    assert mesh.training_program(10).plan.method in ("factored", "adjoint")
    before = mesh.gradient([[0.5], [-0.5]], [0, 1])[0]
    list(train_adam(mesh, [[0.5], [-0.5]], [0, 1], 100))
    assert mesh.gradient([[0.5], [-0.5]], [0, 1])[0] <= before


def test_settings_are_checked_before_the_first_row_is_asked_for():
    with pytest.raises(MeshError, match="steps"):
        train_adam(Mesh(Topology.mesh(1, 1, 2)), [[1.0]], [0], steps=-1)


def test_divergence_is_told():
    mesh = Mesh(Topology.mesh(2, 6, 2), activation="identity", random_state=0)
    X, y = spirals(100, random_state=0)
    with pytest.raises(MeshError, match=r"the loss became (nan|inf) after \d+ steps; lower learning_rate"):
        list(train_adam(mesh, X, y, 50, learning_rate=1e30))
