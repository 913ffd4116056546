"""`MeshStreamClassifier` and `MeshStreamRegressor`: dictionaries, labels, new features and classes."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import meshnn
from meshnn import MeshStreamClassifier, MeshStreamRegressor, Topology
from meshnn.errors import DataError, MemoryLimitError, MeshError
from stream_models import LEARNERS, classifier, label, regressor, samples, value
from trees import bits

# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["up", "down"], ["up", "down"]),
        ([(1, "a"), (1, "b"), ((2,), None)], [(1, "a"), (1, "b"), ((2,), None)]),
        ([np.int64(4), np.int64(2), np.int64(9)], [4, 2, 9]),
        ([np.float32(0.1), np.float32(0.2)], [float(np.float32(0.1)), float(np.float32(0.2))]),
        (["text", np.str_("x"), 3, (1, 2), False, np.bool_(False), 0.0], ["text", "x", 3, (1, 2), False]),
    ],
)
def test_labels_of_any_type(given, kept, tmp_path):
    model = MeshStreamClassifier(hidden=2, random_state=0)
    for k, x in enumerate(samples(20)):
        model.learn_one(x, given[k % len(given)])
    assert model.classes_ == kept
    assert [type(y) for y in model.classes_] == [type(y) for y in kept]
    x = samples(1)[0]
    assert list(model.predict_proba_one(x)) == kept
    assert model.predict_one(x) in kept
    model.save(tmp_path / "a.mesh")
    loaded = meshnn.load(tmp_path / "a.mesh")
    assert loaded.classes_ == kept
    loaded.learn_one(x, given[-1])  # a known class
    model.learn_one(x, given[-1])
    assert bits(loaded) == bits(model)


def test_before_anything_was_learned():
    x = {"a": 1.0}
    assert MeshStreamClassifier().predict_one(x) is None
    assert MeshStreamClassifier().predict_proba_one(x) == {}
    assert MeshStreamRegressor().predict_one(x) == 0.0
    with pytest.raises(MeshError, match="call learn_one first"):
        MeshStreamClassifier().explain()
    assert "layered" not in repr(MeshStreamRegressor())


def test_new_classes():
    """Seven clusters appear one after another: each known class has a probability, and finally all are classified."""
    model = MeshStreamClassifier(random_state=0)
    corners = [{"a": math.cos(k), "b": math.sin(k), "c": k % 2} for k in range(7)]
    for k in range(7):
        for met in [*range(k + 1)] * 3:
            model.learn_one(corners[met], f"corner {met}")
            found = model.predict_proba_one(corners[met])
            assert list(found) == model.classes_ == [f"corner {j}" for j in range(len(found))]
            assert sum(found.values()) == pytest.approx(1, abs=1e-12)
            assert all(0 <= p <= 1 for p in found.values())
    for k in [*range(7)] * 60:
        model.learn_one(corners[k], f"corner {k}")
    assert [model.predict_one(x) for x in corners] == model.classes_


def test_late_targets_of_many_classes():
    """Without learning steps, late targets and immediate targets of samples lead to the same result."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 3)), np.array([55, 7])
    found = []
    for delay in (0, 1):
        mesh = meshnn.Mesh(meshnn.Topology.layered([3, 4, 60]), dtype="float64", random_state=0)
        stream = mesh.stream("cross_entropy", "ekf", memory="none", delay=delay, replays=0)
        stream.step(X[0])
        if delay:
            stream.step(X[1])
        stream.learn(y[0], delay=delay)
        found.append(mesh.weights.copy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("memory", ["none", "carry"])
@pytest.mark.parametrize("before", [2, 3])
def test_a_new_class_leaves_the_odds_of_the_others(learner, memory, before):
    """The edges of a new class have weight 0, so its output is 0; with two classes, so is the output of the second."""
    model = classifier(50, before, learner=learner, memory=memory)
    assert len(model.classes_) == before
    points = samples(8, seed=1)
    old = [list(model.predict_proba_one(x).values()) for x in points]
    logits = [model._outputs_of(x) for x in points]
    with model._all_or_nothing():
        model._new_class("new")
    for x, was, z in zip(points, old, logits, strict=True):
        now = list(model.predict_proba_one(x).values())
        np.testing.assert_allclose(np.divide(now[:before], sum(now[:before])), was, rtol=1e-12)
        power = math.exp(z[0]) + 2 if before == 2 else np.exp(z).sum() + 1
        np.testing.assert_allclose(now[-1], 1 / power, rtol=1e-12)


def test_samples_kept_for_later_have_their_class_after_the_third_turned_up():
    model = MeshStreamClassifier(hidden=2, random_state=0, settings={"replays": 30})
    met = []
    for k, x in enumerate(samples(50)):
        y = "third" if k == 25 else "first" if k % 5 == 0 else "second"
        model.learn_one(x, y)
        met.append(model.classes_.index(y))
        kept = model.stream_.room.replay_y[: min(k + 1, 30), 0]
        if len(model.classes_) == 3:
            assert sorted(kept.tolist()) == sorted(met[-30:])


# -- features ---------------------------------------------------------------------------------------------------------


def grown_from(model, whole):
    """Copy the weights of a net with all features into one that has not received the last feature."""
    small, large = model.mesh_.topology, whole.mesh_.topology
    place = {(i, j): w for i, j, w in zip(small.src, small.dst, model.mesh_.weights, strict=True)}
    more, d = large.n_inputs - small.n_inputs, small.n_inputs
    back = {i + (more if i >= d else 0): i for i in range(small.n_neurons)}
    pairs = zip(large.src, large.dst, strict=True)
    whole.mesh_.weights[:] = [place.get((back.get(i), back.get(j)), 0.0) for i, j in pairs]
    whole.stream_.refresh()


@pytest.mark.parametrize("make", [MeshStreamClassifier, MeshStreamRegressor])
@pytest.mark.parametrize("memory", ["none", "carry"])
@pytest.mark.parametrize(
    ("learner", "settings"),
    [("adam", {}), ("sgd", {})] + [("ekf", {"forgetting": 0.0, "covariance": kind}) for kind in ("full", "decoupled")],
)
def test_new_features_equal_features_that_were_missing(make, memory, learner, settings):
    """Without forgetting, because forgetting increases the variance of a weight while its feature is missing."""
    params = {"hidden": 3, "random_state": 0, "memory": memory, "learner": learner, "settings": settings}
    model, whole = make(**params), make(**params)
    rows = [(x, label(x) if make is MeshStreamClassifier else value(x)) for x in samples(60, "abcd")]
    model._row({"a": 0.0, "b": 0.0})
    whole._row(rows[0][0])
    grown_from(model, whole)
    for k, (x, y) in enumerate(rows):
        shown = x if k >= 30 else {name: x[name] for name in "ab"}
        if k % 7 == 3:
            shown = {name: v for name, v in shown.items() if name != "b"}
        for each in (model, whole):
            each.learn_one(shown, y)
    assert model.features_.names == whole.features_.names == ("a", "b", "c", "d")
    for x, _ in rows:
        np.testing.assert_allclose(model._outputs_of(x), whole._outputs_of(x), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.mesh_.weights, whole.mesh_.weights, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_feature_that_is_missing_counts_as_its_mean(make):
    model = make()
    x = {"a": 0.3, "c": -1.0}
    mean = model.stream_.room.x_moments[1, model.features_.names.index("b")]
    assert (model._outputs_of(x) == model._outputs_of({**x, "b": float(mean)})).all()
    assert model.predict_one(x) == model.predict_one({**x, "never met": 5.0})


@pytest.mark.parametrize("make", [MeshStreamClassifier, MeshStreamRegressor])
def test_the_order_of_features_says_nothing(make):
    one, other = make(hidden=3, random_state=0), make(hidden=3, random_state=0)
    for k, x in enumerate(samples(30, ["b", 3, ("t", 1), "a", 1])):
        x = x if k > 5 else {name: x[name] for name in ("b", 3)}
        one.learn_one(x, k % 3)
        other.learn_one(dict(reversed(x.items())), k % 3)
    assert bits(one) == bits(other)
    assert one.features_.names[:2] == (3, "b") or one.features_.names[:2] == ("b", 3)


def test_a_net_that_does_not_fit_is_refused_and_the_model_is_as_it_was(monkeypatch):
    model = classifier()
    before = bits(model)
    for x, y in (({"a": 1.0, "new": 2.0}, 0), ({"a": 1.0}, "new"), ({"new": 2.0}, "new")):
        with monkeypatch.context() as patch:
            patch.setattr("meshnn.memory.available_memory", lambda: 0)
            with pytest.raises(MemoryLimitError):
                model.learn_one(x, y)
        assert bits(model) == before
    model.learn_one({"a": 1.0, "new": 2.0}, "new")
    assert "new" in model.classes_
    assert "new" in model.features_.names


def test_new_names_beyond_the_limit_are_ignored_with_one_warning(tmp_path):
    model = MeshStreamRegressor(hidden=2, max_features=2, random_state=0)
    model.learn_one({"a": 1.0, "b": 2.0, "c": 3.0}, 1.0)  # the first sample may have any number of features
    with pytest.warns(UserWarning, match="'n'"):
        model.learn_one({"a": 1.0, "n": 1.0}, 1)
    for k in range(20):  # a second warning would be an error
        model.learn_one({"a": float(k), f"m{k}": 1.0}, k % 3)
    assert model.features_.names == ("a", "b", "c")
    assert model.mesh_.topology.n_inputs == 3
    model.save(tmp_path / "a.mesh")
    with pytest.warns(UserWarning, match="'y'"):
        meshnn.load(tmp_path / "a.mesh").learn_one({"a": 1.0, "y": 1.0}, 1.0)


def test_numbers_of_any_type():
    one, other = classifier(), classifier()
    one.learn_one({"a": np.float32(1), "b": Decimal(2), "c": True}, 1)
    one.learn_one({"a": np.int8(1), "b": Fraction(1, 2), "c": np.bool_(False)}, 1)
    other.learn_one({"a": 1.0, "b": 2.0, "c": 1.0}, 1)
    other.learn_one({"a": 1.0, "b": 0.5, "c": 0.0}, 1)
    assert bits(one) == bits(other)


# -- invalid samples ---------------------------------------------------------------------------------------------------

BAD_VALUES = ["red", math.nan, -math.inf, None, 10**400, 1j, [1.0], np.ones(1), pd.NA, pd.Timestamp("2020-01-01")]
BAD_SAMPLES = [({"a": 1.0, "b": value, "c": 2.0}, "'b'") for value in BAD_VALUES] + [
    ({"new": "text"}, "'new'"),
    ({}, "empty"),
    (np.ones(3), "ndarray"),
    (pd.DataFrame({"a": [1.0]}), "DataFrame"),
    (None, "NoneType"),
]


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_bad_samples(make, fed):
    model = make(60 if fed else 0)
    before = bits(model)
    for x, words in BAD_SAMPLES:
        for target in (0, 5):  # a known and a new class
            with pytest.raises(DataError, match=f"(?s){words}"):
                model.learn_one(x, target)
        with pytest.raises(DataError, match=f"(?s){words}"):
            model.predict_one(x)
        assert bits(model) == before
    model.learn_one({"a": 1.0}, 0)


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize(
    ("make", "y", "words"),
    [(classifier, y, "missing") for y in (None, math.nan, pd.NA, pd.NaT)]
    + [(classifier, [1], "list"), (classifier, ([1], 2), "tuple")]
    + [(regressor, y, "finite number") for y in ("up", None, math.nan, 10**400, 1j, np.ones(1))]
    + [(lambda n: regressor(n, loss="poisson"), -1, "-1")],
)
def test_bad_targets(make, y, words, fed):
    model = make(60 if fed else 0)
    before = bits(model)
    for x in ({"a": 1.0, "b": 2.0, "c": 3.0}, {"new": 1.0}):
        with pytest.raises(DataError, match=f"(?s){words}"):
            model.learn_one(x, y)
    with pytest.raises(DataError, match=f"(?s){words}"):
        model.learn_many(pd.DataFrame({"a": [1.0, 2.0]}), [1, y])
    assert bits(model) == before


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"learner": "magic"}, "magic"),
        ({"memory": "long"}, "long"),
        ({"topology": "star"}, "star"),
        ({"hidden": -1}, "hidden"),
        ({"activation": "square"}, "square"),
        ({"ticks_per_sample": 0}, "ticks_per_sample"),
        ({"settings": {"speed": 1}}, "speed"),
        ({"learner": "adam", "settings": {"p0": 1.0}}, "p0"),
        ({"topology": lambda d, C: Topology.layered([d + 1, 2, C])}, "3 inputs"),
        ({"topology": lambda d, C: [d, C]}, "list"),
        ({"topology": lambda d, C: Topology.recurrent(d, 3, C)}, r"use meshnn.networks.recurrent\(...\).stream"),
        ({"topology": lambda d, C: Topology.delay_line(d, 5, 3, C)}, "chains of fixed weights"),
        ({"random_state": "today"}, "random_state"),
    ],
)
@pytest.mark.parametrize("make", [MeshStreamClassifier, MeshStreamRegressor])
def test_invalid_parameters(make, params, words):
    """Parameters are validated with the first sample, as in scikit-learn; nothing is learned then."""
    model = make(**params)
    state = dict(model.__dict__)
    for y in (1, 2):
        with pytest.raises(MeshError, match=words):
            model.learn_one(samples(1)[0], y)
    assert model.__dict__ == state
