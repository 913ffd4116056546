"""Default sizes of networks, and tables with more columns than rows."""

import itertools

import numpy as np
import pytest

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology, storage
from meshnn.estimators.builder import hidden_of
from meshnn.estimators.scaling import Rotation
from meshnn.training import Checkpoint, EarlyStopping


@pytest.mark.parametrize("n_inputs", [1, 10, 50, 300, 5000])
@pytest.mark.parametrize("n_samples", [20, 300, 5000, 10**6])
def test_more_samples_get_more_neurons_and_more_columns_fewer(n_samples, n_inputs):
    count = hidden_of(n_samples, n_inputs)
    assert 4 <= count <= 128
    assert count >= hidden_of(n_samples, 2 * n_inputs)
    assert hidden_of(2 * n_samples, n_inputs) >= count or n_samples > 5000  # then time may limit the size
    if n_samples <= 5000 and count > 4:
        assert count * (n_inputs + 1 + count) <= 3000


def test_hidden_and_activation_by_default():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 2)), rng.integers(0, 2, 150)
    model = MeshClassifier(n_members=1, embedding=None, max_epochs=1, l2=0.01, random_state=0).fit(X, y)
    assert model.mesh_.topology.n_hidden == hidden_of(150, 2) == 32
    assert model.mesh_.activations[:4] == ["relu", "elu", "relu", "elu"]
    some = MeshClassifier(hidden=16, n_members=1, embedding=None, max_epochs=1, l2=0.01, random_state=0).fit(X, y)
    assert some.mesh_.activations[:2] == ["relu", "elu"]
    tried = MeshClassifier(hidden=8, n_members=1, embedding=None, max_epochs=1, random_state=0).fit(X, y)
    assert set(tried.mesh_.activations[:8]) == {"tanh"}  # lm is a candidate, and it requires smooth activations
    tiny = MeshClassifier(n_members=1, embedding=None, max_epochs=1, l2=0.01, random_state=0).fit(X[:60], y[:60])
    assert (tiny.mesh_.topology.n_hidden, set(tiny.mesh_.activations[:16])) == (16, {"tanh"})
    few = MeshClassifier(hidden=5, n_members=1, embedding=None, max_epochs=1, l2=0.01, random_state=0).fit(X, y)
    assert set(few.mesh_.activations[:5]) == {"tanh"}
    values = MeshRegressor(n_members=1, embedding=None, max_epochs=1, l2=0.01, random_state=0).fit(X, X[:, 0])
    assert (values.solver_, values.mesh_.topology.n_hidden, values.mesh_.activations[0]) == ("lm", 16, "tanh")
    chosen = MeshClassifier(activation="sin", max_epochs=1, l2=0.01, random_state=0).fit(X, y)
    assert set(chosen.mesh_.activations[:32]) == {"sin"}
    with pytest.raises(Exception, match='hidden must be "auto", a whole number'):
        MeshClassifier(hidden="many").fit(X, y)


@pytest.mark.parametrize("ticks", [2, 3])
def test_a_rotation_is_undone_exactly(ticks):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(6, 11)), rng.normal(size=(20, 11))
    X -= X.mean(axis=0)
    turn = Rotation.of(X)
    assert turn.width == 5  # 6 rows with mean 0 have rank 5
    turned = turn.inputs(X)
    assert np.isclose(np.mean(turned**2), 1)
    assert np.allclose(turned.T @ turned, np.diag(np.diag(turned.T @ turned)), atol=1e-9)  # principal axes
    ratio = np.linalg.norm(X[0] - X[1]) / np.linalg.norm(turned[0] - turned[1])
    assert np.isclose(np.linalg.norm(X[2] - X[4]), ratio * np.linalg.norm(turned[2] - turned[4]))  # same distances
    small = Mesh(Topology.mesh(5, 3, 2), ticks, ["relu", "elu", "tanh"], dtype="float64", random_state=1)
    large = turn.undone(small)
    assert large.topology.n_inputs == 11
    assert np.allclose(large.forward(new), small.forward(turn.inputs(new)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "options"), [(MeshClassifier, {}), (MeshRegressor, {"hidden": 4, "l2": 0.01})])
def test_a_wide_table_is_learned_and_kept(kind, options, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 150)) * 3 + 5
    target = X[:, :40].sum(axis=1)
    y = (target > np.median(target)).astype(int) if kind is MeshClassifier else target
    model = kind(**options, max_epochs=40, random_state=0).fit(X, y)
    assert model.mesh_.topology.n_inputs == model.n_features_in_ == 150
    assert model.score(X, y) > 0.9  # 24 points in 150 dimensions are linearly separable
    assert model.feature_importances_.shape == (150,)
    model.save(tmp_path / "wide.mesh")
    assert np.allclose(meshnn.load(tmp_path / "wide.mesh").predict(X), model.predict(X))
    again = kind(**options, max_epochs=40, random_state=0).fit(X, y)
    assert np.array_equal(again.predict(X), model.predict(X))
    model.set_params(warm_start=True, max_epochs=1).fit(X, y)
    assert model.mesh_.topology.n_inputs == 150


WIDE = {"hidden": 2, "solver": "lm", "l2": 0.1, "max_epochs": 8, "tol": 0, "random_state": 0}


def wide_table():
    X = np.random.default_rng(0).normal(size=(24, 150))
    return X, X[:, :5].sum(axis=1)


def test_callbacks_do_not_change_the_fit_of_a_wide_table(tmp_path):
    """They see a net of the original columns, and so does a checkpoint; an interrupted fit resumes bit by bit."""
    (X, y), path, seen = wide_table(), tmp_path / "run.mesh", []
    model = MeshRegressor(**WIDE).fit(X, y)

    def watch(row, mesh):
        saved = meshnn.load(path).predict(X) if path.exists() else None  # of the row before
        seen.append((mesh.topology.n_inputs, watched.predict(X), saved))

    checkpoint = Checkpoint(path, every=0)
    watched = MeshRegressor(**WIDE, callbacks=[checkpoint, watch])
    watched.fit(X, y)
    assert np.array_equal(watched.predict(X), model.predict(X))
    assert {n_inputs for n_inputs, _, _ in seen} == {150}
    for (_, before, _), (_, _, saved) in itertools.pairwise(seen):
        assert np.allclose(saved, before, rtol=1e-9)
    path.unlink()
    MeshRegressor(**WIDE, callbacks=[checkpoint, lambda row, mesh: row.epoch == 3]).fit(X, y)
    assert np.array_equal(MeshRegressor(**WIDE, callbacks=checkpoint).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("wrong", [np.zeros((149, 23)), np.full((150, 23), np.nan), np.zeros((150, 23), np.float32), 3])
def test_a_checkpoint_with_damaged_axes_is_refused(wrong, tmp_path):
    (X, y), path = wide_table(), tmp_path / "run.mesh"
    options = WIDE | {"callbacks": Checkpoint(path)}
    MeshRegressor(**options).fit(X, y)
    tree = storage.read(path)
    tree["training"]["state"]["axes"] = wrong
    storage.write(path, tree)
    with pytest.raises(MeshError, match="cannot resume from the checkpoint"):
        MeshRegressor(**options).fit(X, y)


def test_a_scorer_and_callbacks_of_scikit_learn_do_not_change_the_fit_of_a_wide_table():
    X, y = wide_table()
    held = {"early_stopping": EarlyStopping(scoring="neg_mean_squared_error"), "standardize": True}
    scored = MeshRegressor(**WIDE | held).fit(X, y)
    told = []
    watched = MeshRegressor(**WIDE | held, callbacks=lambda row, mesh: told.append(row)).fit(X, y)
    assert np.array_equal(scored.predict(X), watched.predict(X))
    callback = pytest.importorskip("sklearn.callback")
    bar = MeshRegressor(**WIDE).set_callbacks(callback.ScoringMonitor(scoring="r2")).fit(X, y)
    assert np.array_equal(bar.predict(X), MeshRegressor(**WIDE).fit(X, y).predict(X))


def test_the_penalties_of_a_wide_table_are_saved_and_forgotten(tmp_path):
    """They belong to the axes, so neither a file nor a warm start may hand them to the net of the columns."""
    X, y = wide_table()
    model = MeshRegressor(**WIDE | {"l2": "evidence"}).fit(X, y)
    model.save(tmp_path / "wide.mesh")
    assert np.array_equal(meshnn.load(tmp_path / "wide.mesh").predict(X), model.predict(X))
    assert model.set_params(warm_start=True).fit(X, y).mesh_.topology.n_inputs == 150


def test_rows_of_a_wide_table_that_do_not_count_are_not_there():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 130)), rng.integers(0, 2, 24)
    more = np.concatenate((X, np.full((4, 130), 1e6)))
    weight = np.repeat([1.0, 0.0], [24, 4])
    options = {"l2": 0.1, "max_epochs": 20, "random_state": 0}
    alone = MeshClassifier(**options).fit(X, y, sample_weight=np.ones(24))
    beside = MeshClassifier(**options).fit(more, np.concatenate((y, [0] * 4)), sample_weight=weight)
    assert np.allclose(alone.predict_proba(X), beside.predict_proba(X), atol=1e-5)
