"""Uncertainty of predictions and importance of features, against formulas and finite differences."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_regression

import meshnn
from commands import meshnn as meshnn_command
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology, storage
from meshnn.storage import FileError
from meshnn.training import structure
from meshnn.training.sensitivity import input_jacobian


def data(n=60, m=3, n_targets=1, seed=0):
    X, y = make_regression(n, m, n_targets=n_targets, noise=20.0, random_state=seed)
    return X, y


def bayes(X, y, weight, l2, new):
    """Compute Bayesian linear regression of standardised X: penalty l2 on the mean loss, none on the intercept."""
    n = weight.sum()
    share = weight / n
    Z, Zn, t = X, new, y
    mean, t_mean = share @ Z, share @ t
    scale, t_scale = np.sqrt(share @ (Z - mean) ** 2), np.sqrt(share @ (t - t_mean) ** 2)
    Z, Zn = (np.column_stack([(a - mean) / scale, np.ones(len(a))]) for a in (Z, Zn))
    t = (t - t_mean) / t_scale
    A = Z.T @ (share[:, None] * Z) + np.diag([l2] * X.shape[1] + [0.0])
    w = np.linalg.solve(A, Z.T @ (share * t))
    gamma = np.trace(np.linalg.solve(A, Z.T @ (share[:, None] * Z)))
    noise = n * (share @ (t - Z @ w) ** 2) / (n - gamma)
    std = np.sqrt(noise * (1 + np.einsum("bi,ij,bj->b", Zn, np.linalg.inv(A), Zn) / n))
    return t_mean + t_scale * (Zn @ w), t_scale * std


@pytest.mark.parametrize("l2", [0.0, 0.03, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_hidden_neurons_it_is_bayesian_linear_regression(l2, weighted):
    X, Y = data(n_targets=2)
    new = 2 * X[:10] + 1
    weight = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else None
    model = MeshRegressor(hidden=0, solver="lm", l2=l2, random_state=0).fit(X, Y, sample_weight=weight)
    values, std = model.predict(new, return_std=True)
    np.testing.assert_array_equal(values, model.predict(new))
    for k in range(2):
        expected = bayes(X, Y[:, k], np.ones(len(X)) if weight is None else weight, l2, new)
        np.testing.assert_allclose(values[:, k], expected[0], rtol=1e-8)
        np.testing.assert_allclose(std[:, k], expected[1], rtol=1e-8)
    one = MeshRegressor(hidden=0, solver="lm", l2=l2, random_state=0).fit(X, Y[:, 0], sample_weight=weight)
    np.testing.assert_allclose(one.predict(new, return_std=True)[1], std[:, 0], rtol=1e-8)


@pytest.mark.parametrize("options", [
    {"solver": "lm", "n_restarts": 3}, {"solver": "adam", "batch_size": None, "l2": 0.01},
    {"solver": "adam", "structure": structure.Prune(to=15)},
])  # fmt: skip
def test_it_is_what_the_jacobian_and_the_penalties_say(options):
    X, y = data()
    model = MeshRegressor(3, ticks=3, max_epochs=20, random_state=0, **options).fit(X, y)
    mesh, inputs = model.mesh_, model.preprocessing_.scaling.inputs(X)
    live = mesh.live_parameters()
    J = mesh.jacobian(inputs)[:, 0, live].astype(np.float64)
    t = mesh.topology
    found = model._laplace
    A = np.linalg.inv(found.roots[0].T @ found.roots[0] * len(X))
    penalties = np.diag(A) - (J**2).mean(axis=0)
    np.testing.assert_allclose(A, J.T @ J / len(X) + np.diag(penalties), atol=1e-5)
    np.testing.assert_allclose(penalties[(t.src == t.n_inputs)[live]], 0, atol=1e-5)
    rest = penalties[(t.src != t.n_inputs)[live]]
    if options["solver"] == "lm":
        assert np.exp(np.log(rest).mean()) == pytest.approx(model.l2_, rel=1e-4)
    else:
        np.testing.assert_allclose(rest, model.l2_, atol=1e-5)


def test_a_neuron_that_is_never_active():
    """Its bias has no penalty and no effect on any sample, so the matrix is singular."""
    X, y = data()
    t = Topology.layered([3, 2, 1])
    weights = np.where((t.dst == 4) & (t.src == 3), -1e3, 0.1)
    mesh = Mesh(t, activation="relu", weights=weights)
    model = MeshRegressor(mesh=mesh, solver="lm", l2=0.1, max_epochs=5).fit(X, y)
    assert (model.mesh_.jacobian(model.preprocessing_.scaling.inputs(X))[:, 0, t.dst == 4] == 0).all()
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()
    none = MeshRegressor(mesh=mesh, solver="lm", l2=0.0, max_epochs=5).fit(X, y)
    with pytest.raises(MeshError, match="l2"):
        none.predict(X, return_std=True)


def test_it_is_saved(tmp_path):
    X, Y = data(n_targets=2)
    model = MeshRegressor(3, max_epochs=20, random_state=0).fit(X, Y)
    model.save(tmp_path / "a.mesh")
    again, fitted = meshnn.load(tmp_path / "a.mesh"), meshnn.loading.load_fitted(tmp_path / "a.mesh")
    std = model.predict(X, return_std=True)[1]
    for other in (again, fitted):
        np.testing.assert_allclose(other.predict(X, return_std=True)[1], std, rtol=1e-4)
        np.testing.assert_array_equal(other.feature_importances_, model.feature_importances_)
    again.save(tmp_path / "b.mesh")
    assert (tmp_path / "a.mesh").read_bytes() == (tmp_path / "b.mesh").read_bytes()
    tree = storage.read(tmp_path / "a.mesh")
    root, noise, shares = tree["laplace"]["roots"][0], tree["laplace"]["noise"], tree["importances"]
    lies = [{"laplace": lie} for lie in (None, 5, {}, {"roots": [root]})]
    lies += [{"laplace": tree["laplace"] | {"roots": lie}} for lie in ([], [root[1:]], [root * np.nan], [root[None]])]
    lies += [{"laplace": tree["laplace"] | {"noise": lie}} for lie in (noise[1:], -noise, noise * np.inf)]
    lies += [{"importances": lie} for lie in (shares[1:], -shares, shares * np.nan)]
    for lie in lies:
        storage.write(tmp_path / "a.mesh", tree | lie)
        with pytest.raises(FileError):
            meshnn.load(tmp_path / "a.mesh")


def test_models_without_a_standard_deviation_report_the_reason():
    X, y = data()
    for loss in ("huber", "poisson"):
        model = MeshRegressor(2, loss=loss, l2=0.01, max_epochs=3, random_state=0).fit(X, np.abs(y))
        with pytest.raises(
            MeshError, match=f'loss="{loss}" has no constant noise variance; fit with loss="squared_error"'
        ):
            model.predict(X, return_std=True)
    stream = MeshRegressor(2, l2=0.01, max_epochs=3, random_state=0).fit(X, y)
    stream.predict(X, return_std=True)
    stream.set_params(solver="adam").partial_fit(X, y)
    assert not hasattr(stream, "feature_importances_")
    with pytest.raises(MeshError, match="partial_fit has not seen all samples"):
        stream.predict(X, return_std=True)


def test_large_nets_use_their_last_layer(tmp_path):
    """Beyond 1000 parameters: a linear regression on the inputs of the outputs, worked by hand."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    Y = np.stack([X[:, 0] * X[:, 1], X[:, 2]], axis=1) + 0.1 * rng.normal(size=(400, 2))
    model = MeshRegressor(hidden=(40, 25), l2=0.01, max_epochs=20, solver="adam", random_state=0).fit(X, Y)
    assert len(model.mesh_.live_parameters()) > 1000
    value, std = model.predict(X[:9], return_std=True)
    np.testing.assert_array_equal(value, model.predict(X[:9]))
    mesh, t, scaling = model.mesh_, model.mesh_.topology, model.preprocessing_.scaling
    states = mesh.states(scaling.inputs(X))[-2].astype(float)
    errors = scaling.targets(Y) - mesh.forward(scaling.inputs(X))
    for k, output in enumerate(np.arange(t.n_neurons)[t.outputs]):
        Z = states[:, t.src[t.dst == output]]
        penalty = np.where(t.src[t.dst == output] == t.n_inputs, 0.0, 0.01)  # no penalty on the bias
        M = Z.T @ Z / 400
        inverse = np.linalg.inv(M + np.diag(penalty))
        noise = (errors[:, k] ** 2).sum() / (400 - np.trace(inverse @ M))
        want = np.sqrt(noise * (1 + np.einsum("ij,jk,ik->i", Z[:9], inverse, Z[:9]) / 400)) * scaling.y_scale[k]
        np.testing.assert_allclose(std[:, k], want, rtol=1e-4)
    assert (model.predict(X[:9] + 30, return_std=True)[1] > std).all()  # far from all samples
    model.save(tmp_path / "m.mesh")
    np.testing.assert_array_equal(meshnn.load(tmp_path / "m.mesh").predict(X[:9], return_std=True)[1], std)


# -- features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("density", [1.0, 0.4])
@pytest.mark.parametrize("ticks", [1, 4])
def test_the_derivative_by_inputs(bias, density, ticks):
    t = Topology.mesh(3, 6, 2, bias=bias, density=density, random_state=1)
    kinds = ["tanh", "gauss", "sigmoid", "sin", "identity", "softplus"]
    mesh = Mesh(t, ticks, kinds, "sigmoid", dtype="float64", random_state=0)
    X, h = np.random.default_rng(0).standard_normal((40, 3)), 1e-5
    expected = np.stack([(mesh.forward(X + h * e) - mesh.forward(X - h * e)) / (2 * h) for e in np.eye(3)], axis=2)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(input_jacobian(mesh, X), expected, rtol=0, atol=1e-8)
    tied = Mesh(t, ticks, kinds, "sigmoid", dtype="float64", tied=np.zeros(t.n_edges), weights=np.full(t.n_edges, 0.3))
    expected = np.stack([(tied.forward(X + h * e) - tied.forward(X - h * e)) / (2 * h) for e in np.eye(3)], axis=2)
    np.testing.assert_allclose(input_jacobian(tied, X), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("standardize", [True, False])
def test_importances_of_a_linear_map_are_its_coefficients_times_spreads(standardize):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)) * [1.0, 5.0, 0.1, 1.0]
    y = 3 * X[:, 0] - 2 * X[:, 1]
    model = MeshRegressor(hidden=0, solver="lm", l2=0.0, standardize=standardize, random_state=0).fit(X, y)
    expected = np.array([3, 2, 0, 0]) * X.std(axis=0)
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), atol=1e-9)


def test_effects_on_all_classes_are_ignored():
    """Feature 0 affects all outputs equally, and feature 1 their difference."""
    X = np.random.default_rng(0).standard_normal((100, 2))
    mesh = Mesh(Topology.layered([2, 2]), weights=[5.0, 1.0, 0.0, 5.0, -1.0, 0.0], tied=[-1] * 6)
    model = MeshClassifier(mesh=mesh, standardize=False, solver="adam", max_epochs=1)
    model.fit(X, (X[:, 1] > 0).astype(int))
    np.testing.assert_allclose(model.feature_importances_, [0, 1], atol=1e-7)


def test_rows_are_evenly_spaced_and_weighted():
    from meshnn.training import sensitivity
    from meshnn.training.api import as_samples

    rng = np.random.default_rng(0)
    X, y, weight = rng.standard_normal((90, 2)), rng.standard_normal((90, 1)), rng.random(90) + 0.1
    mesh = Mesh(Topology.mesh(2, 3, 1), 3, "tanh", dtype="float64", random_state=0)
    found = sensitivity.importances(mesh, as_samples(mesh, X, y, "squared_error", weight), most=45)
    mean = np.average(X, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    expected = np.average(np.abs(input_jacobian(mesh, X[::2])[:, 0]), axis=0, weights=weight[::2]) * spread
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-9)
    X3 = np.broadcast_to(X, (3, *X.shape))
    assert sensitivity.importances(mesh, as_samples(mesh, X3, y, "squared_error")) is None  # a sequence


def test_info_shows_the_features_that_matter_most(tmp_path):
    X = np.random.default_rng(0).standard_normal((100, 12))
    model = MeshRegressor(hidden=0, solver="lm", l2=0.0, random_state=0).fit(X, X[:, 3] + 3 * X[:, 7] / X[:, 7].std())
    model.save(tmp_path / "a.mesh")
    shown = json.loads(meshnn_command("info", tmp_path / "a.mesh", "--json").stdout)["importances"]
    assert (len(shown), sorted(shown, key=shown.get)[-2:]) == (8, ["feature 3", "feature 7"])
