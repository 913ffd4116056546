"""Losses as users meet them: estimators, command line, refusals; their exactness is in test_gradient.py."""

import json
from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import meshnn
from commands import meshnn as run
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology
from meshnn.losses import LOSSES
from meshnn.training import train
from solver_options import solver_with

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 2))
LINE = 2.0 * X[:, 0] - X[:, 1] + 0.5
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1] + 0.2)).astype(float)
LINEAR = {"hidden": 0, "l2": 0.0, "tol": 0, "max_epochs": 100, "random_state": 0}


def test_poisson_without_hidden_neurons_is_poisson_regression():
    """A convex problem: both must end in its one minimum."""
    got = MeshRegressor(loss="poisson", solver="lm", **LINEAR).fit(X, COUNTS)
    want = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(X, COUNTS)
    np.testing.assert_allclose(got.predict(X), want.predict(X), rtol=1e-5)
    assert (got.predict(X * 100) >= 0).all()


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("y", [0.0, 1e-3, 1.0, 7.0, 1e4])
def test_poisson_is_half_the_deviance_far_from_its_minimum_too(dtype, rtol, y):
    """e^z - y + y log(y / e^z), written out, at outputs up to 60 below and 30 above log y."""
    mesh = Mesh(Topology.layered([1, 1], bias=False), 1, weights=[1.0], dtype=dtype)
    for distance in (-60.0, -41.0, -40.5, -39.5, -20.0, -3.0, 2.0, 30.0):
        z = float(np.dtype(dtype).type(distance + np.log(y or 1.0)))
        want = np.exp(z) if y == 0 else np.exp(z) - y + y * (np.log(y) - z)
        loss, grad = mesh.gradient([[z]], [[y]], "poisson")
        assert loss == pytest.approx(want, rel=rtol), (z, y)
        assert grad[0] == pytest.approx(z * (np.exp(z) - y), rel=rtol), (z, y)


def test_huber_does_not_mind_outliers():
    """A line with a tenth of the values far off, all to one side."""
    y = LINE.copy()
    y[::10] += 1e4
    robust = MeshRegressor(loss="huber", **LINEAR).fit(X, y)
    plain = MeshRegressor(**LINEAR).fit(X, y)
    assert np.abs(robust.predict(X) - LINE).max() < 1.0
    assert np.abs(plain.predict(X) - LINE).min() > 100.0
    flat = np.full(200, 3.0)  # no spread to be found
    flat[0] = 50.0
    assert np.median(MeshRegressor(loss="huber", **LINEAR).fit(X, flat).predict(X)) == pytest.approx(3.0, abs=1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["lm", "adam", "sgd"])
def test_every_solver_lowers_every_loss(loss, solver):
    """From one point of a convex problem, with steps that are small enough."""
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


@pytest.mark.parametrize("loss", ["huber", "poisson"])
def test_files_know_the_loss(loss, tmp_path):
    model = MeshRegressor(hidden=3, loss=loss, max_epochs=5, random_state=0).fit(X, COUNTS)
    model.save(tmp_path / "m.mesh")
    again = meshnn.load(tmp_path / "m.mesh")
    assert again.loss == loss
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    from meshnn.loading import load_fitted

    np.testing.assert_array_equal(load_fitted(tmp_path / "m.mesh").predict(X), model.predict(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_cross_entropy_of_outputs_that_are_sure(dtype):
    """An output is its weight times 1: loss and slope down to the last digits, and no overflow."""
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
    with pytest.raises(
        MeshError, match=r"for binary_cross_entropy y must be from 0 to 1, got 2\.0 at sample 0, output 0"
    ):
        mesh.gradient([[1.0]], [[2]], "binary_cross_entropy")


def test_losses_that_do_not_fit_are_refused():
    with pytest.raises(MeshError, match="unknown loss of a classifier 'huber'"):
        MeshClassifier(loss="huber").fit(X, COUNTS > 1)
    with pytest.raises(MeshError, match="unknown loss of a regressor 'hubert'; did you mean 'huber'"):
        MeshRegressor(loss="hubert").fit(X, LINE)
    with pytest.raises(MeshError, match=r"for poisson y must not be negative, got -.* at sample"):
        MeshRegressor(loss="poisson").fit(X, LINE)


def test_on_the_command_line(tmp_path):
    table = tmp_path / "claims.csv"
    rows = "\n".join(f"{a},{b},{int(c)}" for (a, b), c in zip(X.tolist(), COUNTS, strict=True))
    table.write_text(f"a,b,count\n{rows}\n")
    out = tmp_path / "m.mesh"
    options = ["--target", "count", "--task", "regress", "--loss", "poisson", "--max-epochs", "5", "--out", str(out)]
    done = run("fit", str(table), *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert meshnn.load(out).loss == "poisson"
    done = run("predict", str(out), str(table))
    assert done.returncode == 0, done.stderr
    done = run("fit", str(table), "--target", "count", "--task", "classify", "--loss", "poisson")
    assert done.returncode == 2
    assert "--loss poisson is for --task regress" in done.stderr


def test_counts_need_no_task_on_the_command_line(tmp_path):
    """Whole numbers would be taken for classes; a loss of numbers says that they are not."""
    table = tmp_path / "claims.csv"
    rows = "\n".join(f"{a},{b},{int(c)}" for (a, b), c in zip(X.tolist(), COUNTS, strict=True))
    table.write_text(f"a,b,count\n{rows}\n")
    done = run(
        "fit", table, "--target", "count", "--loss", "poisson", "--max-epochs", "3", "--out", tmp_path / "m.mesh"
    )
    assert done.returncode == 0, done.stderr
    done = run("info", tmp_path / "m.mesh", "--json")
    assert json.loads(done.stdout)["minimised"] == "poisson"
    done = run("fit", table, "--target", "count", "--loss", "poison")
    assert done.returncode == 2
    assert "did you mean 'poisson'" in done.stderr


def test_a_fitted_model_keeps_its_loss():
    model = MeshRegressor(hidden=2, max_epochs=3, random_state=0).fit(X, COUNTS)
    before = model.predict(X)
    model.set_params(loss="poisson")
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(MeshError, match="but loss changed since it was built"):
        model.partial_fit(X, COUNTS)


def test_the_scale_of_huber_counts_weights_as_repetitions():
    from meshnn.losses.huber import Huber

    values, weight = RNG.standard_normal((50, 2)) ** 3, RNG.integers(0, 4, 50).astype(float)
    weighted = Huber().scaling(values, weight)
    repeated = Huber().scaling(np.repeat(values, weight.astype(int), axis=0), None)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12)
