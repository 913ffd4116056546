"""The estimators in scikit-learn's checks, pipelines and searches, and their training."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology
from meshnn.tables.holdout import HoldoutSplit
from meshnn.training import SGD, Adam, Checkpoint, EarlyStopping, train
from solver_options import solver_with


@parametrize_with_checks([  # a fixed penalty: the search would take most of the time of a fit
    MeshClassifier(hidden=3, solver="adam", l2=0.01, max_epochs=60),
    MeshRegressor(hidden=4, solver="lm", l2=0.01, max_epochs=60),
])  # fmt: skip
def test_all_checks_of_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise one check is skipped
    if "sample_weight_equivalence" in check.func.__name__:
        # repeated samples and weighted samples are split differently into training and hold-out sets
        estimator.set_params(l2=0.1)
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def quick(**options):
    """Fit without the search for penalties, which takes most of the time of a fit; test_search.py tests it."""
    default = {"hidden": "auto" if "mesh" in options else 4, "max_epochs": 30, "l2": 1e-3, "random_state": 0}
    return MeshClassifier(**default | options)


# -- in pipelines, searches and ensembles ------------------------------------------------------------------------------


def test_pipelines_grids_and_cross_validation(iris):
    X, y = iris
    grid = {"meshclassifier__hidden": [2, 4], "meshclassifier__solver": ["lm", "adam"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), quick()), grid, cv=2)
    search.fit(X, y)
    assert search.best_score_ > 0.7
    assert cross_val_score(quick(), X, y, cv=3).mean() > 0.7


@pytest.mark.parametrize(
    "labels", [["b", "a", "c"], [10, -3, 7], [True, False, False], np.array(["b", "a", "c"], object)]
)
def test_labels_of_any_kind(iris, labels):
    X, y = iris
    named = np.asarray(labels)[y]
    model = quick().fit(X, named)
    np.testing.assert_array_equal(model.classes_, np.unique(named))
    assert model.classes_.dtype == named.dtype
    assert np.mean(model.predict(X) == named) > 0.7


@pytest.mark.parametrize("labels", [["a", None], ["a", 1], [1.5, 2.25], ["a", "a"]], ids=str)
def test_labels_that_cannot_be(iris, labels):
    mixed = len({type(label) for label in labels}) > 1
    with pytest.raises(ValueError, match=r"types|continuous|'a'"):
        quick().fit(iris[0], np.array(labels * 75, dtype=object if mixed else None))


def test_outputs_of_two_and_of_more_classes(iris):
    X, y = iris
    model = quick(solver="lm").fit(X, y)  # trained in float64
    assert model.decision_function(X).shape == (150, 3)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), model.predict(X))
    two = quick(solver="lm").fit(X[y > 0], y[y > 0])
    margin = two.decision_function(X[y > 0])
    np.testing.assert_array_equal(two.predict(X[y > 0]), np.where(margin > 0, 2, 1))
    np.testing.assert_allclose(two.predict_proba(X[y > 0])[:, 1], 1 / (1 + np.exp(-margin)), rtol=1e-9)


def test_regression_of_one_and_several_targets():
    X, Y = make_regression(120, 4, n_targets=3, noise=0.1, random_state=0)
    several, flat, column = (
        MeshRegressor(4, l2=1e-3, max_epochs=30, random_state=0).fit(X, y) for y in (Y, Y[:, 0], Y[:, :1])
    )
    assert several.score(X, Y) > 0.9
    assert several.predict(X).shape == Y.shape
    assert flat.predict(X).shape == (120,)
    np.testing.assert_array_equal(column.predict(X), flat.predict(X)[:, None])


# -- topologies ------------------------------------------------------------------------------------------------------


def test_topologies(iris):
    X, y = iris
    given = Topology.layered([4, 5, 3])
    uneven = Mesh(given)
    uneven.activations = ["relu"] * 5 + ["identity", "identity", "tanh"]
    assert quick(mesh=given).fit(X, y).mesh_.topology == given
    made = quick(mesh=lambda n_in, n_out: Topology.cascade(n_in, 3, n_out)).fit(X, y)
    assert made.mesh_.topology == Topology.cascade(4, 3, 3)
    assert quick(hidden=7).fit(X, y).mesh_.topology == Topology.mesh(4, 7, 3)
    assert quick(ticks=2).fit(X, y).mesh_.ticks == 2
    assert quick(activation=["tanh", "relu", "sin", "gauss"]).fit(X, y).mesh_.activations[:2] == ["tanh", "relu"]
    for wrong, message in [
        ({"mesh": Topology.layered([3, 3])}, "3 inputs and 3 outputs, .* 4 features and 3 classes"),
        ({"mesh": Mesh(given), "hidden": 5}, "mesh .*hidden"),
        ({"mesh": given, "hidden": 5}, "mesh .*hidden"),
        ({"mesh": Mesh(given), "ticks": 3, "activation": "relu"}, "mesh .*ticks and activation"),
        ({"mesh": uneven}, "outputs .*different activations"),
        ({"mesh": "mesh"}, "mesh .*'mesh'"),
        ({"mesh": lambda a, b: 5}, "mesh .* got int"),
        ({"hidden": -1}, "hidden .*-1"),
        ({"solver": "newton"}, "newton"),
        ({"solver": Adam}, "class.*Adam"),
        ({"early_stopping": "yes"}, "early_stopping .*yes"),
        ({"callbacks": [Checkpoint]}, "class.*Checkpoint"),
        ({"callbacks": [Checkpoint("a"), Checkpoint("b")]}, "2 checkpoints"),
        ({"random_state": -1}, "random_state .*-1"),
        ({"random_state": "x"}, "random_state .*'x'"),
        ({"warm_start": 1}, "warm_start .*1"),
        ({"standardize": None}, "standardize .*None"),
        ({"class_weight": "even"}, "class_weight .*'even'"),
        ({"class_weight": {0: "x"}}, r"class_weight\[0\] .*'x'"),
        ({"class_weight": {"setosa": 2.0}}, r"'setosa'.* \[0, 1, 2\]"),
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, "weight"),
        ({"max_epochs": 2.5}, "max_epochs .*2.5"),
        ({"activation": 5}, "activation .*int"),
        ({"ticks": "3"}, "ticks .*3"),
        ({"verbose": -1}, "verbose .*-1"),
        ({"l2": "much"}, "l2 .*'much'"),
        ({"l2": "evidence"}, "l2=.evidence. .*'auto'"),
        ({"hidden": "many"}, "hidden .*many"),
    ]:
        model = quick(**wrong)
        with pytest.raises(MeshError, match=message) as refusal:
            model.fit(X, y)
        assert "\n" not in str(refusal.value)
        with pytest.raises(NotFittedError):  # no attributes remain from the failed fit
            model.predict(X)


def test_data_that_cannot_be_used(iris):
    X, y = iris
    for weights, message in (
        (np.where(np.arange(150) == 7, -1.0, 1.0), "sample 7 is -1"), (np.zeros(150), "weight"), (np.ones(149), "149"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            quick().fit(X, y, sample_weight=weights)
    with pytest.raises(MeshError, match="y is a scipy sparse matrix; pass a dense array"):
        MeshRegressor(2).fit(X, sparse.csr_array(X[:, :2]))
    far = quick().fit(X, y)
    with pytest.raises(MeshError, match="X holds inf"):
        far.predict(np.full((2, 4), 1.7e308))


def test_a_refused_fit_leaves_the_model_as_it_was(iris):
    X, y = iris
    model = quick().fit(X, y)
    before, probabilities = set(vars(model)), model.predict_proba(X)
    for features, labels, options in [
        (X[:, :2], y, {"mesh": Topology.layered([4, 3])}),
        (X, np.where(y == 0, "a", "b"), {"activation": "none"}),
        (X, y, {"callbacks": 5}),
        (np.full_like(X, np.nan), y, {}),
    ]:
        model.set_params(mesh=None, activation="tanh", callbacks=None).set_params(**options)
        with pytest.raises(ValueError, match=r"\w"):
            model.fit(features, labels)
        assert set(vars(model)) == before
        np.testing.assert_array_equal(model.predict_proba(X), probabilities)
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])


# -- training --------------------------------------------------------------------------------------------------------


def test_reproducible_whatever_the_threads_and_the_kind_of_seed(iris):
    X, y = iris
    first = quick().fit(X, y)
    for other in (quick(), quick(n_jobs=1), quick(n_jobs=2), clone(first)):
        np.testing.assert_array_equal(other.fit(X, y).mesh_.weights, first.mesh_.weights)
        assert other.history_ == first.history_
    for make in (lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)):
        weights = [quick(random_state=make()).fit(X, y).mesh_.weights for _ in range(2)]
        np.testing.assert_array_equal(*weights)
    unseeded = [quick(random_state=None).fit(X, y).mesh_.weights for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_early_stopping_holds_out_for_real(iris):
    X, y = iris
    options = {"solver": "lm", "max_epochs": 60, "tol": 0, "l2": 1e-4}
    model = quick(early_stopping=EarlyStopping(validation_fraction=0.2), **options).fit(X, y)
    validation = model.history_["validation"]
    assert np.isfinite(validation).all()
    assert len(model.history_) == 60
    # the scaling uses the training samples only: 120 of 150
    assert not np.allclose(model.preprocessing_.scaling.x_mean, X.mean(axis=0))
    # the weights are those of the best epoch
    held_out = HoldoutSplit.stratified(150, 30, int(np.random.SeedSequence(0).generate_state(3)[0]), y).held
    assert np.bincount(y[held_out]).tolist() == [10, 10, 10]
    margins = model.decision_function(X[held_out])
    kept = -(margins - np.logaddexp.reduce(margins, axis=1, keepdims=True))[np.arange(30), y[held_out]].mean()
    assert kept == pytest.approx(validation.min(), rel=1e-9)
    spoilt = X.copy()
    spoilt[held_out] += 100  # hold-out rows do not affect training
    again = quick(early_stopping=EarlyStopping(validation_fraction=0.2), **options).fit(spoilt, y)
    np.testing.assert_array_equal(again.history_["loss"], model.history_["loss"])


def test_early_stopping_of_few_samples(iris):
    X, y = iris
    one_of_a_kind = np.r_[0:20, 50:70, 100]
    model = quick(early_stopping=True, max_epochs=5).fit(X[one_of_a_kind], y[one_of_a_kind])
    assert np.isfinite(model.history_["validation"]).all()
    assert MeshRegressor(2, early_stopping=True, max_epochs=3).fit(X[:2], y[:2]).n_iter_ == 3
    with pytest.raises(MeshError, match="got 1; set early_stopping=False"):
        MeshRegressor(2, early_stopping=True).fit(X[:1], y[:1])
    with pytest.raises(MeshError, match=r"early_stopping .*weight"):
        quick(early_stopping=True).fit(X, y, sample_weight=np.arange(150) == 3)


def test_weights_of_samples_and_classes(iris):
    X, y = iris
    counts = np.where(np.arange(150) % 3 == 0, 2, 1)
    for solver, tolerance in (("lm", 1e-6), ("adam", 1e-4), ("sgd", 1e-4)):
        # few epochs: sums in another order differ in the last digits, and lm amplifies the difference
        options = {"solver": solver, "l2": 1e-3, "batch_size": None, "max_epochs": 5}
        repeated = quick(**options).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
        weighted = quick(**options).fit(X, y, sample_weight=counts)
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=tolerance)
    few = np.r_[0:50, 50:60, 100:150]
    for class_weight in ("balanced", {0: 1.0, 1: 5.0, 2: 1.0}):
        model = quick(class_weight=class_weight, l2=1e-3, max_epochs=5).fit(X[few], y[few])
        by_hand = np.where(y[few] == 1, 5.0, 1.0)
        alike = quick(l2=1e-3, max_epochs=5).fit(X[few], y[few], sample_weight=by_hand)
        np.testing.assert_allclose(model.predict_proba(X), alike.predict_proba(X), atol=1e-4)
    # a label remains text, even if it looks like a number
    texts = quick(class_weight={"1": 5.0}, l2=1e-3, max_epochs=5).fit(X, y.astype(str))
    alike = quick(l2=1e-3, max_epochs=5).fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_allclose(texts.predict_proba(X), alike.predict_proba(X), atol=1e-4)


def test_warm_start_goes_on(iris):
    X, y = iris
    options = {"solver": SGD(momentum=0.0, learning_rate=0.01, schedule="constant"), "batch_size": None}
    model = quick(warm_start=True, max_epochs=5, tol=0, **options).fit(
        X, y
    )  # steps are small, so that each lowers the loss
    losses, mesh = model.history_["loss"].tolist(), model.mesh_
    model.fit(X, y)
    assert model.mesh_ is mesh
    losses += model.history_["loss"].tolist()
    assert losses == sorted(losses, reverse=True)
    np.testing.assert_allclose(losses, quick(max_epochs=10, tol=0, **options).fit(X, y).history_["loss"])
    with pytest.raises(ValueError, match="features"):
        model.fit(X[:, :2], y)
    with pytest.raises(MeshError, match="not among"):
        model.fit(X, y + 1)


def test_partial_fit(iris):
    X, y = iris
    model = quick(solver=Adam(learning_rate=0.05), batch_size=None)
    with pytest.raises(MeshError, match="needs all classes"):
        model.partial_fit(X[:50], y[:50])
    order = np.random.default_rng(0).permutation(150)
    for _ in range(30):
        for part in np.array_split(order, 3):
            model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.score(X, y) > 0.7
    assert model.n_iter_ == len(model.history_) == 90
    assert model._solver_state["moments"]["done"] == 90  # the moments of Adam persist between calls
    with pytest.raises(MeshError, match="but it was"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(MeshError, match="balanced"):
        quick(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    fresh = quick()
    with pytest.raises(MeshError, match="only one class, 0"):
        fresh.partial_fit(X[:50], y[:50], classes=[0])
    fresh.partial_fit(X[:50], y[:50], classes=[0, 1, 2])  # the rejected call left no state
    with pytest.raises(MeshError, match=r"holds the class 7, which is not among \[0, 1, 2\]; name all classes at"):
        fresh.partial_fit(X, np.where(y == 0, 7, y))
    model.set_params(solver="sgd").partial_fit(X, y)  # the moments of Adam do not apply to another solver
    assert model._solver_state["moments"]["done"] == 1


@pytest.mark.parametrize("solver", ["adam", "sgd"])
def test_two_calls_of_partial_fit_are_two_epochs(iris, solver):
    X, y = iris
    model = quick(solver=solver, standardize=False, batch_size=None)
    for _ in range(2):
        model.partial_fit(X, y, classes=[0, 1, 2])
    seed = int(np.random.SeedSequence(0).generate_state(2)[0])
    mesh = Mesh(Topology.mesh(4, 4, 3), activation="tanh", random_state=seed)
    solver = solver_with(solver, schedule="constant")
    rows = list(train(mesh, X, y, solver=solver, batch_size=None, max_epochs=2, tol=0, l2=1e-3))
    np.testing.assert_array_equal(model.mesh_.weights, mesh.weights)
    assert model.history_["loss"].tolist() == [row.loss for row in rows]


def test_an_error_in_a_callback_leaves_the_best_weights_so_far(iris):
    X, y = iris

    def fail(row, mesh):
        if row.epoch == 9:
            raise RuntimeError("no more paper")

    model = quick(callbacks=fail, solver=Adam(learning_rate=0.1), batch_size=20)
    with pytest.raises(RuntimeError, match="no more paper"):
        model.fit(X, y)
    assert model.n_iter_ == len(model.history_) == 9
    assert model.history_[-1].note == "stopped by an error"
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e160, 1e305])
def test_numbers_near_the_limits_of_the_dtype(factor):
    """The scaling brings features and targets into the range of the net, and predictions back."""
    X, y = load_diabetes(return_X_y=True)
    plain = MeshRegressor(4, l2=1e-3, max_epochs=20, random_state=0).fit(X, y)
    power = 2.0 ** np.round(np.log2(factor))  # powers of two scale without rounding
    np.testing.assert_array_equal(clone(plain).fit(X * power, y).predict(X * power), plain.predict(X))
    np.testing.assert_allclose(clone(plain).fit(X, y * power).predict(X) / power, plain.predict(X), rtol=1e-9)
