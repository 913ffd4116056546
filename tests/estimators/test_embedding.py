"""Embeddings of numeric columns, and ensembles as one mesh."""

import shutil

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, MeshSequenceClassifier, Topology
from meshnn.errors import TrainingInterrupted
from meshnn.estimators.embedding import Embedding
from meshnn.estimators.merging import merged
from meshnn.export import CNet
from meshnn.training import Adam, Checkpoint, TimeLimit, ensemble, trainer
from meshnn.training.search import SearchResult
from meshnn.training.structure import Prune
from row_sources import same

BOTH = {"embedding": 3, "n_members": 2, "hidden": 5, "random_state": 0}


def test_ramps_worked_by_hand():
    X = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [2.0, 1.0, 5.0], [3.0, 0.0, 5.0], [4.0, 0.0, 5.0]])
    found = Embedding.learn(X, 2)
    assert found.column.tolist() == [0, 0]  # the second column has two values, the third has one
    assert (found.begin.tolist(), found.end.tolist()) == ([0, 2], [2, 4])
    ramps = np.array([[0, 0], [0.5, 0], [1, 0], [1, 0.5], [1, 1], [0, 0]])
    inputs = found.inputs(np.vstack((X, [[-9.0, 0, 0]])))
    np.testing.assert_allclose(inputs[:, 3:], (ramps - [0.7, 0.3]) / [0.4, 0.4], atol=1e-12)
    np.testing.assert_array_equal(inputs[:5, :3], X)
    assert found.width == 5


def test_columns_with_one_frequent_value_have_ramps_between_the_others():
    values = np.concatenate((np.zeros(97), [1.0, 2.0, 3.0]))[:, None]
    assert Embedding.learn(values, 3).end.tolist() == [1, 2, 3]
    assert Embedding.learn(np.ones((9, 2)), 3) is None
    assert Embedding.learn(np.random.default_rng(0).normal(size=(9, 400)), 3) is None  # 1,600 inputs are too many


def test_wide_tables_have_fewer_ramps_and_narrow_ramps_are_left_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 100))
    assert Embedding.learn(X, 6).width == 500  # 4 ramps per column
    X[:, 1:] = 1.0
    X[0, 0] = 1e9  # after scaling all other values are nearly equal
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    found = Embedding.learn(scaled, 6)
    assert len(found.column) == 1
    assert Embedding.learn(1e-40 * rng.normal(size=(50, 2)), 6) is None


@pytest.mark.parametrize("stretch", [1, 3, 6, 10])
def test_predictions_are_those_of_the_members_with_long_tails_too(stretch):
    """The mesh is in float32: a steep ramp far from 0 would lose its digits."""
    Z = np.random.default_rng(0).normal(size=(400, 3))
    y = np.where(Z[:, 0] > 0.3, 1.0, -1.0) + np.sin(2 * Z[:, 1])
    model = MeshRegressor(max_epochs=20, solver="adam", l2=0.001, random_state=0).fit(np.exp(stretch * Z), y)
    rows = model.history_[19], model.history_[39]
    error = 0.5 * np.mean((model.predict(np.exp(stretch * Z)) - y) ** 2) / y.var()
    assert error < 1.2 * max(row.loss for row in rows) + 0.01


@pytest.mark.parametrize("ticks", [1, 2, 3, 5])
@pytest.mark.parametrize("which", ["embedded", "plain and embedded", "plain", "four"])
def test_one_mesh_equals_the_mean_of_nets_behind_embeddings(ticks, which):
    rng = np.random.default_rng(ticks)
    X, new = rng.normal(size=(60, 4)), 3 * rng.normal(size=(50, 4))
    embedding = Embedding.learn(X, 3)
    kinds = {"embedded": [1], "plain and embedded": [0, 1], "plain": [0, 0], "four": [1, 0, 1, 0]}[which]
    nets, transforms, total = [], [], 0.0
    for k, embedded in enumerate(kinds):
        transform = embedding if embedded else None
        width = embedding.width if embedded else 4
        graph = Topology.mesh(width, 3 + k, 2, density=0.7, self_loops=True, random_state=k)
        net = Mesh(graph, ticks, ["relu", "elu", "tanh", "sin", "leaky_relu", "relu"][: 3 + k], dtype="float64",
                   random_state=k)  # fmt: skip
        net.weights = rng.normal(size=graph.n_edges)
        total = total + (k + 1) * net.forward(new if transform is None else transform.inputs(new))
        nets.append(net)
        transforms.append(transform)
    shares = np.arange(1.0, 1 + len(kinds)) / np.arange(1, 1 + len(kinds)).sum()
    whole = merged(nets, transforms, shares)
    assert not whole.dead_edges().any()
    assert whole.topology.n_inputs == 4
    np.testing.assert_allclose(whole.forward(new), total / np.arange(1, 1 + len(kinds)).sum(), rtol=1e-9, atol=1e-9)


def test_probabilities_are_those_of_the_mean_of_the_logits():
    """The member without ramps is the net of n_members=1 with the same seeds, but without feedback."""
    X, y = load_iris(return_X_y=True)
    seen = []
    model = MeshClassifier(**BOTH, max_epochs=5, l2=0.01, solver="adam")
    model.set_params(
        callbacks=lambda row, mesh: seen.append((row.restart, row.epoch, mesh.forward(scaled), row.seconds))
    )
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model.fit(X, y)
    assert [row[:2] for row in seen] == [(k, epoch) for k in range(2) for epoch in range(1, 6)]
    assert np.all(np.diff([row[3] for row in seen]) > 0)  # seconds of the whole training
    np.testing.assert_allclose(model.mesh_.forward(scaled), (seen[4][2] + seen[9][2]) / 2, atol=1e-5)
    logits = model.mesh_.forward(scaled).astype(float)
    want = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), want, atol=1e-6)


@pytest.mark.parametrize("kind", [MeshClassifier, MeshRegressor])
def test_an_ensemble_is_saved_exported_and_trained_further(kind, tmp_path):
    X, y = (load_breast_cancer if kind is MeshClassifier else load_diabetes)(return_X_y=True)
    model = kind(**BOTH, max_epochs=40, l2=0.01).fit(X, y)
    same(kind(**BOTH, max_epochs=40, l2=0.01).fit(X, y), model)
    outputs = model.predict(X) if kind is MeshRegressor else model.predict_proba(X)
    model.save(tmp_path / "model.mesh")
    read = meshnn.load(tmp_path / "model.mesh")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    assert (read.embedding, read.n_members) == (3, 2)
    assert model.feature_importances_.shape == (X.shape[1],)
    assert np.isclose(model.feature_importances_.sum(), 1)
    if kind is MeshRegressor:
        low, high = model.predict_interval(X, 0.9)
        assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.97
    if shutil.which("gcc"):
        model.to_c(tmp_path / "model.h")
        net = CNet(tmp_path / "model.h")
        found = net.predict_proba(X) if kind is MeshClassifier else net.predict(X).ravel()
        np.testing.assert_allclose(found, outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max())
    before = model.mesh_.weights.copy()
    model.set_params(warm_start=True, max_epochs=1).fit(X, y)
    model.partial_fit(X, y)
    assert model.mesh_.n_parameters == len(before)
    assert not np.array_equal(model.mesh_.weights, before)
    with pytest.raises(MeshError, match="n_members changed"):
        model.set_params(n_members=3).fit(X, y)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_an_integer_header_of_an_ensemble_predicts_nearly_the_same(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    model = MeshClassifier(**BOTH, max_epochs=40, l2=0.01).fit(X, y)
    model.to_c(tmp_path / "model.h", dtype="int8", X=X)
    net = CNet(tmp_path / "model.h")
    assert (net.predict(net.quantise(X)) == model.predict(X)).mean() > 0.97


@pytest.mark.parametrize("member", [0, 1])
def test_an_interrupted_ensemble_resumes_bit_by_bit(member, tmp_path):
    X, y = load_iris(return_X_y=True)
    options = BOTH | {"max_epochs": 12, "n_restarts": 2, "tol": 0}
    path = tmp_path / "run.mesh"

    def stop(row, mesh):
        if (row.restart, row.epoch) == (2 * member + 1, 5):
            raise KeyboardInterrupt

    model = MeshClassifier(**options, callbacks=[Checkpoint(path, every=0), stop])
    with pytest.raises(TrainingInterrupted):
        model.fit(X, y)
    assert model.mesh_.topology.n_inputs == 4  # fitted with the members so far
    assert meshnn.load(path).score(X, y) == model.score(X, y)
    model.set_params(callbacks=Checkpoint(path)).fit(X, y)
    same(model, MeshClassifier(**options).fit(X, y))
    again = clone(model).fit(X, y)  # from the checkpoint of a finished run
    same(again, model)


def test_a_callback_ends_the_training_of_all_members():
    X, y = load_iris(return_X_y=True)
    model = MeshClassifier(**BOTH, l2=0.01, max_epochs=9, callbacks=lambda row, mesh: row.epoch == 2).fit(X, y)
    assert model.history_["restart"].tolist() == [0, 0]
    assert model.mesh_.topology.n_hidden == 5  # the second member has not begun


def test_a_member_that_was_stopped_is_left_out():
    X, y = load_iris(return_X_y=True)
    options = BOTH | {"max_epochs": 9, "tol": 0, "l2": 0.01}
    stopped = MeshClassifier(**options, callbacks=lambda row, mesh: row.restart == 1).fit(X, y)
    assert stopped.history_["restart"].tolist() == [0] * 9 + [1]
    single = MeshClassifier(**options | {"n_members": 1, "embedding": None}).fit(X, y)
    np.testing.assert_array_equal(stopped.predict_proba(X), single.predict_proba(X))
    assert "not part of the model" in stopped.solver_reason_


def test_a_member_that_ended_before_the_stop_is_kept():
    X, y = load_iris(return_X_y=True)
    options = BOTH | {"max_epochs": 4, "tol": 0, "l2": 0.01}
    last = MeshClassifier(**options, callbacks=lambda row, mesh: (row.restart, row.epoch) == (0, 4)).fit(X, y)
    assert last.history_["restart"].tolist() == [0] * 4
    single = MeshClassifier(**options | {"n_members": 1, "embedding": None}).fit(X, y)
    np.testing.assert_array_equal(last.predict_proba(X), single.predict_proba(X))
    three = options | {"n_members": 3}
    second = MeshClassifier(**three, callbacks=lambda row, mesh: (row.restart, row.epoch) == (1, 4)).fit(X, y)
    np.testing.assert_array_equal(second.mesh_.weights, MeshClassifier(**options).fit(X, y).mesh_.weights)


def test_a_time_limit_trains_every_member_for_a_while():
    X, y = load_iris(return_X_y=True)
    short = MeshClassifier(callbacks=TimeLimit(1e-9), random_state=0).fit(X, y)
    assert short.history_["restart"].tolist() == [0, 1]
    single = MeshClassifier(n_members=1, callbacks=TimeLimit(1e-9), random_state=0).fit(X, y)
    assert "hardtanh" not in single.mesh_.activations  # no time to try both


def test_a_warm_start_leaves_lm_if_the_mesh_is_too_large():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    model = MeshRegressor(max_epochs=5, random_state=0).fit(X, np.sin(X[:, 0]) + X[:, 1] ** 2)
    model.solver_ = "lm"
    edges = model.mesh_.topology.n_edges
    assert edges**2 * (300 + edges / 3) > 4e8
    model.set_params(warm_start=True, max_epochs=2).fit(X, X[:, 0])
    assert model.solver_ == "adam"
    assert "more than" in model.solver_reason_


@pytest.mark.parametrize(
    ("n_members", "losses", "trained"),
    [
        (1, (0.2, 0.1), [1]),
        (1, (0.1, 0.2), [0]),
        (2, (0.2, 0.1), [0, 1]),
        (2, (10.0, 0.1), [1]),
        (3, (1, 2, 3), [0, 1, 2]),
    ],
)
def test_held_out_losses_decide_which_members_are_trained(n_members, losses, trained, monkeypatch):
    """300 samples and a squared error 100 times as large: log-likelihoods differ by 300 log(100) / 2 = 691."""
    found = iter(losses)
    monkeypatch.setattr(ensemble, "BEHIND", 600.0)
    monkeypatch.setattr(trainer, "search", lambda *_: SearchResult(Adam(), 0.01, "tried", next(found)))
    x = np.random.default_rng(0).uniform(0, 1, (300, 2))
    model = MeshRegressor(n_members=n_members, max_epochs=2, random_state=0).fit(x, x @ [1.0, 2.0])
    assert sorted(set(model.history_["restart"])) == trained
    assert ("hardtanh" in model.mesh_.activations) == (1 in trained)
    assert model.best_restart_ == trained[0]
    assert model.n_iter_ == 2
    count = len(losses) - len(trained)
    assert model.solver_reason_.count("not trained: its held-out loss is too large") == count


def test_shares_are_inverse_to_the_held_out_losses(monkeypatch):
    found, outputs = iter((0.3, 0.1)), {}
    monkeypatch.setattr(trainer, "search", lambda *_: SearchResult(Adam(), 0.01, "tried", next(found)))
    x = np.random.default_rng(0).uniform(0, 1, (300, 2))
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)

    def look(row, mesh):
        outputs[row.restart] = mesh.forward(scaled)

    model = MeshRegressor(max_epochs=1, random_state=0, callbacks=look).fit(x, x @ [1.0, 2.0])
    np.testing.assert_allclose(model.mesh_.forward(scaled), 0.25 * outputs[0] + 0.75 * outputs[1], atol=1e-5)


def test_a_single_net_without_a_search_has_no_ramps():
    x = np.random.default_rng(0).uniform(0, 1, (300, 2))
    model = MeshRegressor(n_members=1, l2=0.01, max_epochs=2, random_state=0).fit(x, x @ [1.0, 2.0])
    assert "hardtanh" not in model.mesh_.activations


def test_early_stopping_and_tables_with_text():
    X, y = load_iris(return_X_y=True)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["kind"] = np.where(X[:, 0] > 5.8, "large", "small")
    model = MeshClassifier(**BOTH, early_stopping=True, max_epochs=60).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert len(model.validation_scores_) == len(model.loss_curve_)
    assert model.feature_importances_.shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding": "x"}, "embedding"),
        ({"embedding": 3, "activation": "sigmoid"}, "activations that are 0 at 0"),
        ({"embedding": 3, "mesh": Topology.mesh(4, 2, 3), "hidden": "auto"}, "leave out mesh and structure"),
        ({"n_members": 2, "structure": Prune(to=20)}, "leave out mesh and structure"),
        ({"embedding": 0}, "embedding"),
        ({"n_members": 0}, "n_members"),
        ({"n_members": "many"}, "n_members"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(MeshError, match=message):
        MeshClassifier(**{"hidden": 4} | options).fit(*load_iris(return_X_y=True))


def test_an_embedding_without_columns_for_ramps_is_reported():
    X = np.random.default_rng(0).integers(0, 2, (120, 3))
    with pytest.warns(UserWarning, match="no column has ramps"):
        model = MeshClassifier(embedding=3, max_epochs=1, l2=0.01).fit(X, X[:, 0])
    assert "hardtanh" not in model.mesh_.activations


def test_sequences_and_large_data_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(MeshError, match="rows in memory"):
        MeshSequenceClassifier(embedding=3, max_epochs=1).fit(rng.normal(size=(20, 6, 1)), np.arange(20) % 2)
    blocks = iter([(rng.normal(size=(200, 2)), np.arange(200.0))])
    with pytest.raises(MeshError, match="rows in memory"):
        MeshRegressor(n_members=2, max_epochs=1).fit(blocks)
