"""Losses in estimators, on the command line and in error messages; test_gradient.py tests their gradients."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import meshnn
from cases import Case, close
from meshnn import (
    Mesh,
    MeshClassifier,
    MeshError,
    MeshRegressor,
    MeshSequenceRegressor,
    MeshStreamRegressor,
    Topology,
    storage,
)
from meshnn.losses import LOSSES, loss_named
from meshnn.training import train
from solver_options import solver_with

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 2))
LINE = 2.0 * X[:, 0] - X[:, 1] + 0.5
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1] + 0.2)).astype(float)
LINEAR = {"hidden": 0, "l2": 0.0, "tol": 0, "max_epochs": 100, "random_state": 0}


def test_poisson_without_hidden_neurons_is_poisson_regression():
    """The problem is convex: both solvers reach the same minimum."""
    got = MeshRegressor(loss="poisson", solver="lm", **LINEAR).fit(X, COUNTS)
    want = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(X, COUNTS)
    np.testing.assert_allclose(got.predict(X), want.predict(X), rtol=1e-5)
    assert (got.predict(X * 100) >= 0).all()


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("y", [0.0, 1e-3, 1.0, 7.0, 1e4])
def test_poisson_is_half_the_deviance_far_from_its_minimum_too(dtype, rtol, y):
    """The loss is e^z - y + y log(y / e^z), at outputs up to 60 below and 30 above log y."""
    mesh = Mesh(Topology.layered([1, 1], bias=False), 1, weights=[1.0], dtype=dtype)
    for distance in (-60.0, -41.0, -40.5, -39.5, -20.0, -3.0, 2.0, 30.0):
        z = float(np.dtype(dtype).type(distance + np.log(y or 1.0)))
        want = np.exp(z) if y == 0 else np.exp(z) - y + y * (np.log(y) - z)
        loss, grad = mesh.gradient([[z]], [[y]], "poisson")
        assert loss == pytest.approx(want, rel=rtol), (z, y)
        assert grad[0] == pytest.approx(z * (np.exp(z) - y), rel=rtol), (z, y)


def test_huber_is_robust_to_outliers():
    """A tenth of the targets of a line is shifted far to one side."""
    y = LINE.copy()
    y[::10] += 1e4
    robust = MeshRegressor(loss="huber", **LINEAR).fit(X, y)
    plain = MeshRegressor(**LINEAR).fit(X, y)
    assert np.abs(robust.predict(X) - LINE).max() < 1.0
    assert np.abs(plain.predict(X) - LINE).min() > 100.0
    flat = np.full(200, 3.0)  # without spread
    flat[0] = 50.0
    assert np.median(MeshRegressor(loss="huber", **LINEAR).fit(X, flat).predict(X)) == pytest.approx(3.0, abs=1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["lm", "adam", "sgd"])
def test_every_solver_lowers_every_loss(loss, solver):
    """The steps are small enough, and start from one point of a convex problem."""
    mesh = Mesh(Topology.mesh(2, 0, 2), 1, dtype="float64", weights=np.full(6, 0.1))
    y = np.stack([COUNTS, COUNTS[::-1]], axis=1)
    if LOSSES[loss].classifies:
        y = (y > 1) if LOSSES[loss].several else (COUNTS > 1).astype(int)
    first = mesh.gradient(X, y, loss)[0]
    solver = solver_with(solver, learning_rate=1e-3)
    rows = list(train(mesh, X, y, loss, solver=solver, max_epochs=5, batch_size=None, l2=0.0, tol=0))
    losses = [first, *(row.loss for row in rows)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(losses))
    assert losses[-1] < first
    assert np.isnan(rows[-1].accuracy) != LOSSES[loss].classifies


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_cross_entropy_of_extreme_outputs(dtype):
    """An output is its weight times 1: loss and slope are accurate to the last digits and do not overflow."""
    eps = np.finfo(dtype).eps
    for output in (0.0, 0.3, 8.0, 30.0, 80.0, 1e4):
        tail = float(np.exp(-np.float64(output)))
        for label, z, loss, slope in (
            (0, -output, np.log1p(tail), tail / (1 + tail)),
            (1, output, np.log1p(tail), -tail / (1 + tail)),
            (0, output, output + np.log1p(tail), 1 / (1 + tail)),
            (1, -output, output + np.log1p(tail), -1 / (1 + tail)),
            (0.5, output, output / 2 + np.log1p(tail), 0.5 - tail / (1 + tail)),
        ):
            mesh = Mesh(Topology(1, 0, 1, [[0, 1]], bias=False), 1, dtype=dtype, weights=[z])
            got = mesh.gradient([[1.0]], [[label]], "binary_cross_entropy")
            np.testing.assert_allclose(got[0], loss, rtol=8 * eps, atol=1e-37)
            np.testing.assert_allclose(got[1], [slope], rtol=8 * eps, atol=1e-37)
    with pytest.raises(MeshError, match=r"2\.0"):
        mesh.gradient([[1.0]], [[2]], "binary_cross_entropy")


LEVELS = (0.05, 0.5, 0.9)


def pinball(d, level):
    return np.maximum(-level * d, (1 - level) * d)


@pytest.mark.parametrize("level", LEVELS)
def test_curvature_of_quantiles(level):
    """The net has cycles; the targets lie within the width of the parabola and beyond it."""
    rng, topology = np.random.default_rng(1), Topology.mesh(3, 5, 2)
    mesh = Mesh(topology, 4, weights=0.5 * rng.standard_normal(topology.n_edges), dtype="float64")
    inputs, weight = rng.standard_normal((40, 3)), rng.uniform(0.1, 2.0, 40)
    y = mesh.forward(inputs) + 0.08 * rng.standard_normal((40, 2))
    case = Case(mesh, inputs, y, f"quantile:{level}", weight)
    samples, live = meshnn.training.api.as_samples(mesh, inputs, y, case.loss, weight), np.arange(mesh.n_parameters)
    found = mesh.engine("curvature", batch=40).curvature(mesh.values, samples.X, samples.targets, live)
    J, H = mesh.jacobian(inputs), loss_named(case.loss).hessian(mesh.forward(inputs), y)
    close(found.matrix, np.einsum("b,bo,boe,bof->ef", case.shares, H, J, J), 1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_quantile_is_near_the_pinball_loss_and_below_its_parabolas(level):
    """The output is the weight, the target 0. Steps of lm require parabolas that are never below the loss."""
    d = np.linspace(-0.3, 0.3, 121)
    graph, name = Topology(1, 0, 1, [[0, 1]], bias=False), f"quantile:{level}"
    found = [Mesh(graph, 1, dtype="float64", weights=[z]).gradient([[1.0]], [[0.0]], name) for z in d]
    value, slope = np.array([loss for loss, _ in found]), np.array([grad[0] for _, grad in found])
    assert value.min() >= 0
    assert np.abs(value - pinball(d, level)).max() <= 0.05 / 4 + 1e-12
    bend = loss_named(name).hessian(d[:, None], np.zeros((121, 1)))
    step = d - d[:, None]
    assert (value[:, None] + slope[:, None] * step + bend / 2 * step**2 >= value - 1e-12).all()


def noisy(n, seed):
    """Return a curve with noise whose standard deviation depends on x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 1))
    return x, np.sin(2 * x[:, 0]) + (0.2 + 0.4 * np.abs(x[:, 0])) * rng.standard_normal(n)


@pytest.mark.parametrize("solver", ["lm", "adam"])
@pytest.mark.parametrize("level", [0.1, 0.9])
def test_a_share_of_new_targets_lies_below_a_quantile(level, solver):
    """This holds for all x: a prediction that ignores the change of the noise fails for small or for large x."""
    model = MeshRegressor(8, loss="quantile", quantile=level, solver=solver, random_state=0).fit(*noisy(2000, 0))
    x, y = noisy(4000, 1)
    below, far = y <= model.predict(x), np.abs(x[:, 0]) > 1
    assert below.mean() == pytest.approx(level, abs=0.03)
    assert below[far].mean() == pytest.approx(level, abs=0.05)
    assert below[~far].mean() == pytest.approx(level, abs=0.05)


def test_a_fitted_quantile_is_kept(tmp_path):
    options = {"loss": "quantile", "quantile": 0.9, "solver": "adam", "max_epochs": 5, "random_state": 0}
    model = MeshRegressor(3, **options).fit(X, LINE)
    assert model.loss_ == "quantile:0.9"
    model.save(tmp_path / "m.mesh")
    again = meshnn.load(tmp_path / "m.mesh")
    assert (again.loss_, again.quantile) == ("quantile:0.9", 0.9)
    np.testing.assert_array_equal(again.partial_fit(X, LINE).predict(X), model.partial_fit(X, LINE).predict(X))
    with pytest.raises(MeshError, match="loss changed"):
        again.set_params(quantile=0.8).partial_fit(X, LINE)
    for wrong in ("quantile:", "quantile:nan", "quantile:1e400", "quantile:0", "quantile:0.9;", "cross_entropy", [""]):
        storage.write(tmp_path / "wrong.mesh", storage.read(tmp_path / "m.mesh") | {"loss": wrong})
        with pytest.raises(MeshError, match="loss"):
            meshnn.load(tmp_path / "wrong.mesh")
    levels = [
        MeshSequenceRegressor(3, **options | {"quantile": level}).fit(X[:, :, None], LINE) for level in (0.2, 0.9)
    ]
    assert levels[0].loss_ == "quantile:0.2"
    assert (levels[0].predict(X[:, :, None]) < levels[1].predict(X[:, :, None])).mean() > 0.9


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 0.0004, np.nan, np.inf, "0.9", None, True, [0.1, 0.9]])
def test_levels_of_quantiles_that_are_none_are_refused(level):
    with pytest.raises(MeshError, match="quantile must be a number"):
        MeshRegressor(loss="quantile", quantile=level).fit(X, LINE)


def test_losses_are_refused_where_they_do_not_fit(tmp_path):
    mesh, model = Mesh(Topology.mesh(2, 3, 1), 3), MeshRegressor(2, loss="quantile", max_epochs=2).fit(X, LINE)
    refused = [
        ("'huber'", lambda: MeshClassifier(loss="huber").fit(X, COUNTS > 1)),
        ("did you mean 'huber'", lambda: MeshRegressor(loss="hubert").fit(X, LINE)),
        ("must not be negative", lambda: MeshRegressor(loss="poisson").fit(X, LINE)),
        ("'quantile:1.5'", lambda: mesh.gradient(X, LINE, "quantile:1.5")),
        ("'quantile:x'", lambda: mesh.gradient(X, LINE, "quantile:x")),
        ("did you mean 'quantile'", lambda: mesh.gradient(X, LINE, "quantil")),
        ("did you mean 'quantile'", lambda: MeshRegressor(loss="quantile:0.9").fit(X, LINE)),
        ("quantile=0.9 .*loss=\"quantile\"", lambda: MeshRegressor(quantile=0.9).fit(X, LINE)),
        ("loss of a classifier 'quantile'", lambda: MeshClassifier(loss="quantile").fit(X, LINE > 0)),
        ("unknown loss 'quantile'", lambda: MeshStreamRegressor(loss="quantile").learn_one({"a": 1.0}, 1.0)),
        ("squared_error", lambda: model.predict(X, return_std=True)),
        ("squared_error", lambda: model.predict_interval(X)),
        *(("streams .*'quantile:0.9'", lambda learner=learner: mesh.stream("quantile:0.9", learner))
          for learner in ("ekf", "adam", "sgd")),
        ("streams .*'quantile:0.5'", lambda: mesh.stream("quantile", portable=True)),
        ("streams .*'quantile:0.5'", lambda: model.to_c(tmp_path / "m.h", learn=True)),
    ]  # fmt: skip
    for named, call in refused:
        with pytest.raises(MeshError, match=named):
            call()
