"""Parameters of estimators that are objects: solvers, early stopping, nets, callbacks of scikit-learn."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import meshnn
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, MeshSequenceClassifier, Topology
from meshnn.training import LM, SGD, Adam, EarlyStopping

X, Y = load_iris(return_X_y=True)
GRAPH = Topology.layered([4, 5, 3])
OPTIONS = {"l2": 1e-3, "max_epochs": 6, "random_state": 0}


def prototype(n_inputs=4, n_outputs=3):
    return Mesh(Topology.mesh(n_inputs, 4, n_outputs), 4, "sin", output_activation="elu", random_state=7)


@pytest.mark.parametrize("kind", [MeshClassifier, MeshRegressor, MeshSequenceClassifier])
def test_parameters_are_few_and_named(kind):
    first, *others = inspect.signature(kind).parameters.values()
    assert first.name == "hidden"
    assert len(others) < 26
    assert {each.kind for each in others} == {inspect.Parameter.KEYWORD_ONLY}
    with pytest.raises(TypeError):
        kind(3, None)


def test_a_grid_search_reaches_into_objects():
    model = MeshClassifier(4, solver=Adam(schedule="constant"), early_stopping=EarlyStopping(0.2), **OPTIONS)
    grid = {"solver__learning_rate": [1e-12, 0.05], "early_stopping__patience": [3, 30]}
    search = GridSearchCV(model, grid, cv=2).fit(X, Y)
    assert search.best_params_["solver__learning_rate"] == 0.05
    assert search.best_estimator_.solver.learning_rate == search.best_estimator_.history_["learning_rate"].max() == 0.05
    assert model.solver == Adam(schedule="constant")  # the parameter is unchanged
    through = make_pipeline(StandardScaler(), model).set_params(meshclassifier__solver__learning_rate=0.1)
    assert through[-1].solver.learning_rate == 0.1
    for name, value in (("solver__learning_rate", -1.0), ("early_stopping__patience", 0)):
        with pytest.raises(MeshError, match=f"{name.split('__')[1]} .*{value}"):
            clone(model).set_params(**{name: value})


def test_patience_decides_when_to_stop():
    model = MeshClassifier(4, solver="lm", tol=1e3, early_stopping=EarlyStopping(None, patience=3), **OPTIONS)
    assert model.fit(X, Y).n_iter_ == 4  # the first epoch, and three with too small a gain
    assert np.isnan(model.history_["validation"]).all()  # no hold-out set


CASES = {
    "solver": {"hidden": 3, "solver": SGD(0.02, "linear", momentum=0.5, nesterov=False)},
    "solvers": {"hidden": 3, "solver": [LM(), Adam(betas=(0.8, 0.99))]},
    "early stopping": {"hidden": 3, "solver": "adam", "early_stopping": EarlyStopping(0.3, 4, "accuracy")},
    "mesh": {"mesh": prototype()},
    "topology": {"mesh": GRAPH, "ticks": 3, "activation": "tanh"},
    "topology alone": {"mesh": GRAPH, "solver": "adam"},
    "callable, mesh": {"mesh": prototype, "solver": "adam"},
    "callable, topology": {"mesh": lambda n, k: Topology.layered([n, 9, k]), "solver": "adam"},
}


@pytest.mark.parametrize("case", CASES)
def test_clones_and_files_learn_alike(case, tmp_path):
    model = MeshClassifier(**CASES[case], **OPTIONS)
    twin = clone(model)
    weights = model.fit(X, Y).mesh_.weights.copy()
    np.testing.assert_array_equal(twin.fit(X, Y).mesh_.weights, weights)
    model.save(tmp_path / "a.mesh")
    again = meshnn.load(tmp_path / "a.mesh")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for name in ("solver", "early_stopping"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.fit(X, Y).mesh_.weights, weights)
    np.testing.assert_array_equal(clone(again).fit(X, Y).mesh_.weights, weights)


@pytest.mark.parametrize("mesh", [prototype(), prototype], ids=["mesh", "callable"])
def test_all_of_a_prototype_is_taken(mesh):
    given = prototype()
    model = MeshClassifier(mesh=mesh, solver=Adam(learning_rate=1e-12), **OPTIONS).fit(X, Y)
    assert model.mesh_.topology == given.topology
    assert (model.mesh_.ticks, model.mesh_.activations) == (4, ["sin"] * 4 + ["elu"] * 3)
    np.testing.assert_allclose(model.mesh_.weights, given.weights, atol=1e-6)
    if mesh is not prototype:
        assert model.mesh_ is not mesh
        np.testing.assert_array_equal(mesh.weights, given.weights)  # the prototype is not trained


def test_a_warm_start_knows_the_prototype():
    model = MeshClassifier(mesh=prototype(), warm_start=True, **OPTIONS).fit(X, Y)
    mesh = model.mesh_
    assert model.set_params(mesh=prototype()).fit(X, Y).mesh_ is mesh  # an equal prototype
    other = prototype()
    other.weights = 2 * other.weights
    with pytest.raises(MeshError, match="mesh changed"):
        model.set_params(mesh=other).fit(X, Y)


@pytest.mark.parametrize("solver", ["lm", LM(), [LM()]], ids=str)
@pytest.mark.parametrize("kind", [MeshClassifier, MeshRegressor])
def test_lm_has_no_partial_fit(kind, solver):
    model = kind(3, solver=solver)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as refusal:
        model.partial_fit(X, Y)
    assert "lm needs all samples at once" in f"{refusal.value} {refusal.value.__cause__}"
    assert hasattr(kind(3, solver=[LM(), SGD()]), "partial_fit")


# -- callbacks of scikit-learn ---------------------------------------------------------------------------------------


class Watch:
    """A callback of scikit-learn that is propagated, counts epochs and can stop the fit after a number of them."""

    max_propagation_depth = None

    def __init__(self, stop_after=None):
        self.stop_after, self.hooks, self.scores = stop_after, [], []

    def setup(self, estimator, context):
        self.hooks.append("setup")

    def teardown(self, estimator, context):
        self.hooks.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.hooks.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.hooks.append(f"end {context.task_name}")
        if context.task_name != "epoch":
            return False
        self.scores.append(fitted_estimator.score(X, y))
        return self.hooks.count("end epoch") == self.stop_after


def test_callbacks_of_sklearn_see_every_epoch_and_stop():
    pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")
    watch = Watch()
    options = {"solver": "lm", "tol": 0} | OPTIONS
    model = MeshClassifier(4, **options).set_callbacks(watch).fit(X, Y)
    assert watch.hooks == ["setup", "begin fit", *["begin epoch", "end epoch"] * 6, "end fit", "teardown"]
    assert watch.scores[-1] == model.score(X, Y)
    np.testing.assert_array_equal(model.mesh_.weights, MeshClassifier(4, **options).fit(X, Y).mesh_.weights)
    watch = Watch(stop_after=3)
    model = MeshClassifier(4, **options).set_callbacks(watch).fit(X, Y)
    assert model.n_iter_ == 3
    assert "callback" in model.history_[-1].note
    assert watch.hooks[-2:] == ["end fit", "teardown"]


def test_callbacks_of_sklearn_go_through_pipelines_and_searches(capsys):
    callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks since 1.9")
    model = MeshClassifier(4, solver="lm", tol=0, **OPTIONS)
    watch = Watch()
    whole = make_pipeline(StandardScaler(), model).set_callbacks(watch, callback.ProgressBar(None)).fit(X, Y)
    assert whole.score(X, Y) > 0.7
    assert watch.hooks.count("end epoch") == 6
    watch = Watch()
    GridSearchCV(model, {"hidden": [2, 3]}, cv=2).set_callbacks(watch, callback.ProgressBar(None)).fit(X, Y)
    assert watch.hooks.count("end epoch") == 5 * 6  # two folds per candidate, and the refit
    assert "MeshClassifier" in capsys.readouterr().out


def test_nested_options_need_an_object():
    with pytest.raises(MeshError, match="solver is 'auto'"):
        MeshClassifier().set_params(solver__learning_rate=0.1)
    for given in (False, True):
        with pytest.raises(MeshError, match=f"early_stopping is {given}"):
            MeshClassifier(early_stopping=given).set_params(early_stopping__patience=3)
    stops = MeshClassifier().set_params(early_stopping=EarlyStopping(), early_stopping__patience=3)
    assert stops.early_stopping.patience == 3
    assert MeshClassifier().set_params(solver=Adam(), solver__learning_rate=0.1).solver.learning_rate == 0.1
