"""Estimators of sequences: inputs, readout, training, files, errors."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone

from commands import meshnn
from meshnn import MeshError, MeshSequenceClassifier, MeshSequenceRegressor, Topology, load
from meshnn.errors import DataError, TrainingInterrupted
from meshnn.estimators.sequence_estimators import delay, recurrent
from meshnn.estimators.sequences import Reading, as_sequences, padded
from meshnn.loading import load_fitted
from meshnn.training import LM, Adam, Checkpoint, EarlyStopping
from meshnn.training.structure import Prune

READOUTS = ("last", "mean", "all")
QUICK = {"hidden": 3, "max_epochs": 3, "l2": 1e-3, "random_state": 0}
AUTO = {"hidden": "auto"}  # a graph is given


def sequences(n=12, features=2, seed=0, least=3, most=9):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rng.integers(least, most), features)) for _ in range(n)]


def answers(X, readout, kind, seed=1):
    """Return one target per sequence, or one per step."""
    rng = np.random.default_rng(seed)
    one = (lambda n: rng.permutation(n) % 2) if kind == "labels" else rng.standard_normal
    return [one(len(x)) for x in X] if readout == "all" else one(len(X))


# -- inputs ------------------------------------------------------------------------------------------------------


def test_forms_of_sequences():
    array = np.arange(24.0).reshape(2, 4, 3)
    for given in (array, list(array), [a.tolist() for a in array], array.astype(np.float32)):
        found = as_sequences(given)
        np.testing.assert_array_equal(found.data, array.reshape(8, 3))
        assert found.lengths.tolist() == [4, 4]
    flat = as_sequences(array[:, :, 0])
    assert flat.shape == (2, 1)
    np.testing.assert_array_equal(as_sequences([array[0, :, 0], array[1, :2, 0]]).data[:, 0], [0, 3, 6, 9, 12, 15])


def test_there_may_be_more_features_than_sequences():
    X = sequences(features=150)
    model = MeshSequenceClassifier(**QUICK).fit(X, answers(X, "last", "labels"))
    assert model.mesh_.topology.n_inputs == 150


@pytest.mark.parametrize(("X", "words"), [
    (3.0, "float"), ("text", "X must be a list"), ([], "no sequences"), (np.zeros(4), r"\(4,\)"),
    (np.zeros((3, 0, 2)), "sequence 0 of X .*0, 2"), (np.zeros((2, 2, 2, 2)), r"\(2, 2, 2\)"),
    ([np.zeros((3, 2)), np.zeros((4, 3))], "sequence 1 of X has 3 features, expected 2"),
    ([np.zeros((2, 2)), [["a", "b"]]], "sequence 1 of X"),
    ([np.zeros((3, 2)), np.array([[0, 1], [2, np.nan]])], "nan at sequence 1, step 1, feature 1"),
])  # fmt: skip
def test_sequences_that_are_none(X, words):
    with pytest.raises(DataError, match=words):
        MeshSequenceClassifier(**QUICK).fit(X, [0, 1, 0])


@pytest.mark.parametrize(("y", "words"), [
    ([[0, 1, 0]], "1 sequences, but X has 2"), ([[0, 1, 0], [1]], "sequence 1 has 2 steps"),
    ([[0, 1, 0], [[0, 1], [1, 1]]], "sequence 1 .*2, 2"), (5, "y must be a list of arrays"),
])  # fmt: skip
def test_answers_that_do_not_fit(y, words):
    X = [np.zeros((3, 1)), np.zeros((2, 1))]
    with pytest.raises(DataError, match=words):
        MeshSequenceRegressor(readout="all", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="2, 3"):
        MeshSequenceRegressor(**QUICK).fit(X, [0.0, 1.0, 2.0])


def test_padding_and_ticks_worked_by_hand():
    X = as_sequences([[1.0, 2.0, 3.0], [4.0]])
    assert padded(X, 5, 1)[:, :, 0].T.tolist() == [[1, 2, 3, 3, 3], [4, 4, 4, 4, 4]]
    assert padded(X, 7, 2)[:, :, 0].T.tolist() == [[1, 1, 2, 2, 3, 3, 3], [4] * 7]
    # the last step is read at tick 3 (index 2) and reaches the outputs one tick later
    assert Reading(1, 1, "last").read_at(X.lengths)[0].tolist() == [3, 1]
    at, whose = Reading(2, 1, "all").read_at(X.lengths)
    assert (at.tolist(), whose.tolist()) == ([2, 4, 6, 2], [0, 0, 0, 1])


def test_delays_worked_by_hand():
    for topology, through_all, shortest in (
        (Topology.layered([2, 3, 1]), 1, 1),
        (Topology.layered([2, 3, 3, 1]), 2, 2),
        (Topology.layered([2, 1]), 0, 0),
        (Topology.mesh(2, 4, 1), 1, 0),
        (recurrent("chain", 5, 2, 3), 1, 1),
        (recurrent("columns", 5, 2, 3), 1, 1),
    ):
        assert (delay(topology, causal=False), delay(topology, causal=True)) == (through_all, shortest), topology


def test_graphs_by_name():
    chain = recurrent(None, "auto", 12, 9)
    assert (chain.n_hidden, chain.n_edges) == (20, 20 * 13 + 20 + 19 + 20 * 9 + 9)
    assert chain == recurrent("chain", 20, 12, 9)
    assert recurrent("columns", 4, 1, 1).n_edges == 4 * 2 + 4 + 4 + 1
    assert recurrent("mesh", "auto", 12, 9).n_edges <= 500
    assert recurrent(None, "auto", 300, 9).n_hidden == 4  # the minimum, for any number of edges
    still = [LM(), Adam(learning_rate=1e-12)]
    model = MeshSequenceClassifier(hidden=4, mesh="columns", max_epochs=1, l2=0.0, solver=still)
    mesh = model.fit(sequences(), answers(range(12), "last", "labels")).mesh_
    loops = mesh.topology.src == mesh.topology.dst
    np.testing.assert_allclose(mesh.weights[loops], np.linspace(0, 0.95, 4), atol=1e-6)


# -- readout -------------------------------------------------------------------------------------------------------


def outputs_one_by_one(model, X, weights=None):
    """Return the readout of each sequence, by loops over steps and ticks with a dense matrix in torch."""
    mesh, t, scaling = model.mesh_, model.mesh_.topology, model.preprocessing_.scaling
    weights = torch.tensor(mesh.weights, dtype=torch.float64) if weights is None else weights
    A = torch.zeros((t.n_neurons, t.n_neurons), dtype=torch.float64)
    A = A.index_put((torch.tensor(t.src.astype(np.int64)), torch.tensor(t.dst.astype(np.int64))), weights)
    linear = torch.tensor([name == "identity" for name in mesh.activations])
    per, lag = model.ticks or 1, delay(t, causal=model.readout == "all")
    found = []
    for x in X:
        steps = torch.tensor((np.asarray(x) - scaling.x_mean) / scaling.x_scale)
        s, after = torch.zeros(t.n_neurons - t.n_clamped, dtype=torch.float64), []
        for step in torch.cat([steps.repeat_interleave(per, dim=0), steps[-1:].repeat(lag, 1)]):
            total = (torch.cat([step, torch.ones(int(t.bias), dtype=torch.float64), s]) @ A)[t.n_clamped :]
            s = torch.where(linear, total, torch.tanh(total))
            after.append(s[-t.n_outputs :])
        read = torch.stack(after[per - 1 + lag :: per])
        assert len(read) == len(x)
        found.append({"last": read[-1], "mean": read.mean(dim=0), "all": read}[model.readout])
    return found


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("options", [{}, {"mesh": "mesh"}, {"ticks": 2}, {"mesh": Topology.layered([2, 3, 2])} | AUTO])
def test_outputs_are_those_of_loops(readout, options):
    X = sequences()
    model = MeshSequenceRegressor(readout=readout, solver="lm", **QUICK | options)
    Y = [np.stack([y, -y], axis=-1) for y in answers(X, readout, "values")]
    model.fit(X, Y if readout == "all" else np.array(Y))
    assert model.mesh_.dtype == np.float64
    new = sequences(seed=7, least=1, most=40)  # shorter and longer than the training sequences
    got, want = (
        model.predict(new),
        [model.preprocessing_.scaling.values(w.numpy()) for w in outputs_one_by_one(model, new)],
    )
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-10)
    for k in (0, 5):  # bit-identical for a single sequence
        np.testing.assert_array_equal(model.predict(new[k : k + 1])[0], got[k])
    array = np.stack([x[:3] for x in X])
    assert model.predict(array).shape == ((12, 3, 2) if readout == "all" else (12, 2))


def torch_loss(model, X, y, weight, per_class):
    """Return the mean loss of all sequences, each run separately, and its gradient with respect to the weights."""
    w = torch.tensor(np.asarray(model.mesh_.weights, np.float64), requires_grad=True)
    total = mass = 0.0
    for read, labels, share in zip(outputs_one_by_one(model, X, w), y, weight, strict=True):
        labels = torch.tensor(np.atleast_1d(labels))
        shares = torch.tensor(per_class)[labels] * float(share)
        each = torch.nn.functional.cross_entropy(torch.atleast_2d(read), labels, reduction="none")
        total, mass = total + (each * shares).sum(), mass + float(shares.sum())
    (gradient,) = torch.autograd.grad(total / mass, w)
    return float(total.detach() / mass), gradient.numpy()


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 3.0}])
def test_what_is_minimised_is_the_mean_over_sequences(readout, class_weight):
    X, weight = sequences(), np.arange(12) % 4 * 0.5  # some weights are 0
    y = answers(X, readout, "labels")
    model = MeshSequenceClassifier(readout=readout, solver="lm", class_weight=class_weight, **QUICK)
    model.fit(X, y, sample_weight=weight)
    _, part, _ = model._checked(X, y, weight, model.preprocessing_, first=False)
    samples = model.preprocessing_.dataset(model.mesh_, part, model._loss)
    got = model.mesh_.engine("gradient").gradient(model.mesh_.values, samples.X, samples.targets)
    want, gradient = torch_loss(model, X, y, weight, [1.0, 3.0 if class_weight else 1.0])
    np.testing.assert_allclose(got.loss, want, rtol=1e-10)
    np.testing.assert_allclose(got.grad, gradient, rtol=1e-8, atol=1e-11)


def test_scaling_is_that_of_all_steps():
    X = [x * [3.0, 1.0] + [100.0, 0.0] for x in sequences()]
    weight = np.arange(1.0, 13.0)
    model = MeshSequenceRegressor(**QUICK).fit(X, np.arange(12.0), sample_weight=weight)
    rows, shares = np.concatenate(X), np.repeat(weight, [len(x) for x in X])
    mean, scaling = np.average(rows, axis=0, weights=shares), model.preprocessing_.scaling
    np.testing.assert_allclose(scaling.x_mean, mean)
    np.testing.assert_allclose(scaling.x_scale, np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=shares)))


# -- training ------------------------------------------------------------------------------------------------------


def test_memory_is_learned_if_the_task_requires_it():
    """The target is the step before the last, which requires memory."""
    X = [x[:, 0] for x in sequences(120, 1, seed=3, least=4, most=9)]
    y = np.array([x[-2] for x in X])
    model = MeshSequenceRegressor(hidden=4, l2=1e-6, solver="lm", max_epochs=60, random_state=0).fit(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.9
    forgetful = MeshSequenceRegressor(mesh=Topology.layered([1, 4, 1]), **QUICK | AUTO | {"max_epochs": 60})
    assert forgetful.fit(X[:80], y[:80]).score(X[80:], y[80:]) < 0.5


def test_every_step_is_learned():
    X = [x[:, 0] for x in sequences(40, 1, seed=3, least=4, most=12)]
    before = [np.concatenate([[0.0], x[:-1]]) for x in X]
    model = MeshSequenceRegressor(4, readout="all", l2=1e-6, solver="lm", max_epochs=60, random_state=0)
    assert model.fit(X[:30], before[:30]).score(X[30:], before[30:]) > 0.9
    labels = [np.where(b > 0, "up", "down") for b in before]
    clf = MeshSequenceClassifier(4, readout="all", l2=1e-4, max_epochs=20, batch_size=8, random_state=0)
    hits = np.concatenate(clf.fit(X[:30], labels[:30]).predict(X[:30])) == np.concatenate(labels[:30])
    assert clf.score(X[:30], labels[:30]) == hits.mean()
    np.testing.assert_allclose(np.concatenate(clf.predict_proba(X)).sum(axis=1), 1.0)


def test_options_of_the_estimators():
    X, y = sequences(40), answers(range(40), "last", "labels")
    longer = sequences(10, seed=5, least=12, most=20)
    options = {"l2": 1e-3, "max_epochs": 12, "early_stopping": EarlyStopping(scoring="accuracy"), "random_state": 0}
    model = MeshSequenceClassifier(4, n_restarts=2, class_weight="balanced", **options)
    model.fit(X, y, X_val=longer, y_val=answers(range(10), "last", "labels"))
    assert model.mesh_.ticks == 19 + 1
    pruned = MeshSequenceClassifier(4, max_epochs=30, structure=Prune(to=20), random_state=0).fit(X, y)
    assert pruned.mesh_.topology.n_edges == 20
    steps = [np.arange(len(x)) % 2 for x in X]
    options = {"max_epochs": 8, "readout": "all", "structure": Prune(to=30), "random_state": 0}
    causal = MeshSequenceClassifier(4, **options).fit(X, steps)
    assert causal.reading_.delay == 0
    a, b = causal.decision_function([X[0], np.concatenate([X[0][:2], X[0][2:] + 9])])
    np.testing.assert_array_equal(a[:2], b[:2])
    assert clone(model.set_params(readout="mean")).readout == "mean"
    several = MeshSequenceClassifier(**QUICK).fit(X, np.stack([y, 1 - y, y], axis=1))
    assert several.predict(X).shape == (40, 3)


def test_a_warm_start_takes_longer_sequences():
    X, y = sequences(), answers(range(12), "last", "labels")
    model = MeshSequenceClassifier(warm_start=True, **QUICK).fit(X, y)
    model.fit(sequences(least=10, most=20), y)
    assert model.mesh_.ticks > 11
    with pytest.raises(MeshError, match="readout changed since the net was built"):
        model.set_params(readout="mean").fit(X, y)


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("kind", [MeshSequenceClassifier, MeshSequenceRegressor])
def test_files(kind, readout, tmp_path):
    X = sequences()
    classifies = kind is MeshSequenceClassifier
    y = answers(X, readout, "labels" if classifies else "values")
    model = kind(readout=readout, mesh="columns", ticks=2, **QUICK).fit(X, y)
    model.save(tmp_path / "m.mesh")
    again, fitted, pickled = load(tmp_path / "m.mesh"), load_fitted(tmp_path / "m.mesh"), pickle.dumps(model)
    assert type(again) is kind
    assert again.get_params() == model.get_params()
    model.set_params(readout="last" if readout == "mean" else "mean", ticks=1)  # affects only the next fit
    for other in (again, fitted, pickle.loads(pickled)):
        for name in ("predict", "predict_proba")[: 1 + classifies]:
            for a, b in zip(getattr(model, name)(X), getattr(other, name)(X), strict=True):
                np.testing.assert_array_equal(a, b)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert "holds a sequence model" in meshnn("predict", tmp_path / "m.mesh", tmp_path / "t.csv").stderr


def test_an_interrupted_run_goes_on(tmp_path):
    X = sequences()
    y = answers(X, "all", "labels")
    options = QUICK | {"max_epochs": 6, "readout": "all"}
    want = MeshSequenceClassifier(**options).fit(X, y)

    def interrupt(row, mesh):
        if row.epoch == 3:
            raise KeyboardInterrupt

    path = tmp_path / "run.mesh"
    with pytest.raises(TrainingInterrupted, match="after epoch 3"):
        MeshSequenceClassifier(callbacks=[Checkpoint(path), interrupt], **options).fit(X, y)
    got = MeshSequenceClassifier(callbacks=Checkpoint(path), **options).fit(X, y)
    np.testing.assert_array_equal(got.mesh_.weights, want.mesh_.weights)
    with pytest.raises(MeshError, match="X"):  # different data of the same size
        MeshSequenceClassifier(callbacks=Checkpoint(path), **options).fit([x + 1 for x in X], y)


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "words"), [
    ({"readout": "lst"}, "'lst'; did you mean 'last'"), ({"mesh": "chian"}, "'chian'; did you mean 'chain'"),
    ({"hidden": (3, 3)}, r"hidden .*\(3, 3\)"), ({"hidden": "many"}, "many"), ({"ticks": 0}, "ticks .*got 0"),
    ({"readout": "all", "early_stopping": EarlyStopping(scoring="accuracy")}, "scoring must be a function of"),
])  # fmt: skip
def test_options_that_are_refused(options, words):
    X = sequences()
    y = answers(X, options.get("readout", "last"), "labels")
    with pytest.raises(MeshError, match=words):
        MeshSequenceClassifier(**QUICK | options).fit(X, y)


def test_there_is_no_partial_fit():
    assert not hasattr(MeshSequenceClassifier(), "partial_fit")
    with pytest.raises(MeshError, match="not available for sequences"):
        MeshSequenceRegressor(**QUICK).fit(sequences(), np.arange(12.0)).predict(sequences(), return_std=True)


def test_a_scorer_of_steps():
    X = sequences()
    y = answers(X, "all", "labels")
    options = QUICK | {"readout": "all", "early_stopping": EarlyStopping(scoring=lambda e, X, y: e.score(X, y))}
    model = MeshSequenceClassifier(**options).fit(X, y)
    assert all(0.0 <= score <= 1.0 for score in model.validation_scores_)
