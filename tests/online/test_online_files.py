"""`MeshStreamClassifier` and `MeshStreamRegressor`: frames, files, copies, accuracy."""

import copy
import math
import pickle

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import meshnn
from meshnn import MeshStreamClassifier, MeshStreamRegressor, Topology
from meshnn.errors import DataError, FileError
from meshnn.training.structure import Grow, Policy
from stream_models import LEARNERS, classifier, label, regressor, samples, value
from trees import bits

# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MeshStreamClassifier, MeshStreamRegressor])
def test_frames_are_rows_one_by_one(make):
    one, many = make(hidden=3, random_state=0), make(hidden=3, random_state=0)
    rows = samples(40)
    del rows[3]["a"], rows[17]["b"]
    X = pd.DataFrame(rows, index=range(100, 140))
    y = pd.Series([k % 3 for k in range(40)], index=X.index)
    for x, target in zip(rows, y, strict=True):
        one.learn_one(x, target)
    many.learn_many(X, y)
    assert bits(one) == bits(many)
    table = make(hidden=3, random_state=0)
    table.learn_many(pa.Table.from_pandas(X, preserve_index=False), y.to_numpy())
    assert bits(one) == bits(table)
    found = many.predict_many(X)
    assert found.index.equals(X.index)
    assert found.tolist() == [one.predict_one(x) for x in rows]
    before = bits(many)
    if make is MeshStreamClassifier:
        table = many.predict_proba_many(X)
        assert table.index.equals(X.index)
        assert table.columns.tolist() == [0, 1, 2]
        assert table.to_dict("records") == [one.predict_proba_one(x) for x in rows]
        assert many.predict_proba_many(X[:0]).shape == (0, 3)
    assert many.predict_many(X[:0]).shape == (0,)
    assert bits(many) == before


def test_frames_of_many_types():
    X = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": pd.array([1, None, 3], "Int64")})
    rows = [{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 0}, {"a": 3, "b": 1, "c": 3}]
    one, *models = (MeshStreamRegressor(hidden=2, random_state=0) for _ in range(3))
    for x, y in zip(rows, [1, 2, 4], strict=True):
        one.learn_one(x, y)
    for model, frame in zip(models, (X, X.astype({"a": object})), strict=True):
        model.learn_many(frame, [1, 2, 4])
        assert bits(model) == bits(one)
    labels = MeshStreamClassifier(hidden=2, random_state=0)
    assert labels.predict_many(X).tolist() == [None] * 3
    assert labels.predict_proba_many(X).shape == (3, 0)
    labels.learn_many(X, [("t", 1), ("t", 2), ("t", 1)])
    assert labels.predict_proba_many(X).columns.tolist() == [("t", 1), ("t", 2)]


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.ones((2, 2)), [0, 1], "ndarray"),
        (pd.DataFrame({"a": [1.0, 2.0]}), [0], "2 rows"),
        (pd.DataFrame({"a": [1.0, math.inf]}), [0, 1], "'a'.*inf"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, "red"]}), [0, 1], "'red'"),
        (pd.DataFrame({"a": [1.0, math.nan]}), [0, 1], "row 1"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), [0], "'a'"),
    ],
)
def test_bad_frames(make, X, y, words):
    model = make()
    before = bits(model)
    with pytest.raises(DataError, match=words):
        model.learn_many(X, y)
    assert bits(model) == before


# -- files and copies -------------------------------------------------------------------------------------------------

KINDS = {
    "two classes": (MeshStreamClassifier, {}, 2),
    "five classes": (MeshStreamClassifier, {}, 5),
    "decoupled": (MeshStreamClassifier, {"settings": {"covariance": "decoupled", "replays": 20}}, 3),
    "adam": (MeshStreamClassifier, {"learner": "adam", "settings": {"rate": 0.02}}, 3),
    "memory": (MeshStreamClassifier, {"memory": "carry", "ticks_per_sample": 2}, 3),
    "columns": (MeshStreamClassifier, {"memory": "carry", "topology": "columns", "learner": "sgd"}, 3),
    "no hidden": (MeshStreamClassifier, {"hidden": 0}, 3),
    "callable": (MeshStreamClassifier, {"topology": Topology.mesh}, 3),
    "regressor": (MeshStreamRegressor, {}, 0),
    "huber": (MeshStreamRegressor, {"loss": "huber", "memory": "carry"}, 0),
    "poisson": (MeshStreamRegressor, {"loss": "poisson", "learner": "adam"}, 0),
    "generator": (MeshStreamRegressor, {"random_state": np.random.default_rng(1)}, 0),
}


@pytest.mark.parametrize(
    ("kind", "copied"),
    [(kind, "file") for kind in KINDS]
    + [(kind, how) for kind in ("five classes", "adam", "memory") for how in ("pickle", "joblib", "deepcopy")]
    + [("regressor", "joblib")],
)
def test_copies_continue_bit_by_bit(kind, copied, tmp_path):
    """Copies are made within a stream, before and after new features and classes."""
    make, params, classes = KINDS[kind]

    def duplicate(model):
        if copied == "file":
            model.save(tmp_path / "a.mesh")
            return meshnn.load(tmp_path / "a.mesh")
        if copied == "joblib":
            joblib.dump(model, tmp_path / "a.joblib")
            return joblib.load(tmp_path / "a.joblib")
        return copy.deepcopy(model) if copied == "deepcopy" else pickle.loads(pickle.dumps(model))

    model = make(**{"hidden": 3, "random_state": 0, **params})
    if not isinstance(model.random_state, np.random.Generator):
        model = duplicate(model)  # a model without training
    copies = []
    for k, x in enumerate(samples(70, "abcd")):
        shown = {name: v for name, v in x.items() if k >= 30 or name != "c"}
        y = min(k // 10, k % classes) if classes else abs(value(x))
        if k % 23 == 5:
            copies.append(duplicate(model))
            assert type(copies[-1]) is make
            assert copies[-1].n_samples_ == model.n_samples_
        want = model.predict_one(shown)
        for other in copies:
            assert other.predict_one(shown) == want
            other.learn_one(shown, y)
        model.learn_one(shown, y)
    assert len(copies) == 3

    def without(tree):
        return {name: value for name, value in bits(tree).items() if name != "params"}

    for other in copies:
        assert without(other) == without(model)
    state = bits(copies[0])
    model.learn_one(samples(1)[0], 1)  # copies share no state
    assert bits(copies[0]) == state


@pytest.mark.parametrize(("x", "y"), [({"a": 1.0}, frozenset([1])), ({b"a": 1.0}, 1)])
def test_names_that_no_file_can_hold(x, y, tmp_path):
    model = MeshStreamClassifier(hidden=2, random_state=0)
    model.learn_one(x, y)
    with pytest.raises(FileError, match=r"frozenset|b'a'"):
        model.save(tmp_path / "a.mesh")
    assert pickle.loads(pickle.dumps(model)).classes_ == [y]


# -- accuracy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [*({"learner": name} for name in LEARNERS), {"loss": "huber"}, {"loss": "poisson"}])
def test_models_learn(params):
    """The target depends on one feature: the error is far below that of guessing and of the mean target."""
    models = [] if "loss" in params else [(MeshStreamClassifier, lambda x: x["a"] > 0, 0.2)]  # chance level: half
    models += [(MeshStreamRegressor, lambda x: 10 + 2 * x["a"], 0.8)]  # the mean has an error of 1.6
    for make, rule, most in models:
        model, errors = make(hidden=4, random_state=0, **params), []
        for x in samples(1500):
            predicted = model.predict_one(x)
            errors.append(abs((predicted or 0) - rule(x)))
            model.learn_one(x, rule(x))
        assert np.mean(errors[1000:]) < most


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_a_target_that_never_varies(loss):
    model = MeshStreamRegressor(hidden=2, loss=loss, random_state=0)
    for x in samples(30):
        model.learn_one(x, 3.0)
    assert model.predict_one(samples(1)[0]) == 3.0


def test_memory_uses_the_previous_sample():
    """The label is the sign of the previous sample, which only a net with memory can predict."""
    right = {}
    for memory in ("none", "carry"):
        model = MeshStreamClassifier(hidden=6, memory=memory, random_state=0)
        last, right[memory] = 0.0, 0
        for k, x in enumerate(samples(2500, "a")):
            if k >= 1500:
                right[memory] += model.predict_one(x) == (last > 0)
            model.learn_one(x, last > 0)
            last = x["a"]
    assert right["none"] < 650
    assert right["carry"] > 800


@pytest.mark.parametrize("classes", [2, 3])
def test_policies_of_structure_receive_the_loss_of_the_true_class(classes):
    """It is the mean log loss of the predictions before each sample was learned."""
    seen = []

    class Look(Policy):
        def propose(self, view, memory):
            seen.append(view.loss)

    model = MeshStreamClassifier(hidden=2, structure=Look(), structure_every=40, random_state=0)
    losses = []
    for k, x in enumerate(samples(80)):
        y = k if k < classes else label(x, classes)
        losses.append(-math.log(model.predict_proba_one(x).get(y, 1.0)))
        model.learn_one(x, y)
    assert seen[1] == pytest.approx(np.mean(losses[40:]), rel=1e-9)
    assert seen[1] < 0.9 * math.log(classes)  # the loss of another class would be larger


def test_policies_of_structure_receive_the_right_labels_after_the_third_class(tmp_path):
    """Targets of samples for policies are 1 and 0 for two classes, and labels from the third class on."""
    model = MeshStreamClassifier(hidden=2, structure=Grow(to=6), structure_every=20, random_state=0)
    met = []
    for k, x in enumerate(samples(50)):
        y = ["first", "second", "third"][2 if k == 33 else k % 2]
        model.learn_one(x, y)
        met.append(model.classes_.index(y))
    assert model._structure.to_tree()["targets"].tolist() == met
    model.save(tmp_path / "a.mesh")
    loaded = meshnn.load(tmp_path / "a.mesh")
    for x in samples(30, seed=4):
        model.learn_one(x, "first")
        loaded.learn_one(x, "first")
    assert bits(model)["stream"] == bits(loaded)["stream"]
