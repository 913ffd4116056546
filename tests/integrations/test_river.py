"""`meshnn.integrations.river`: river's checks of its own models, pipelines, evaluation."""

import copy
import pickle
import random

import numpy as np
import pandas as pd
import pytest

import meshnn
from meshnn import MeshForecaster, MeshStreamClassifier, MeshStreamRegressor
from meshnn.errors import DataError, FileError
from trees import bits

river = pytest.importorskip("river")

from river import base, compose, datasets, ensemble, evaluate, metrics, preprocessing, time_series  # noqa: E402
from river.checks import yield_checks  # noqa: E402
from river.time_series.base import Forecaster  # noqa: E402

from meshnn.integrations.river import RiverMeshClassifier, RiverMeshForecaster, RiverMeshRegressor  # noqa: E402

MODELS = {"classifier": RiverMeshClassifier, "regressor": RiverMeshRegressor, "forecaster": RiverMeshForecaster}
OUTSIDE = {"classifier": MeshStreamClassifier, "regressor": MeshStreamRegressor, "forecaster": MeshForecaster}
#: Checks of river 0.26 for each of the models.
COUNTS = {"classifier": 65, "regressor": 28, "forecaster": 16}


def checks():
    for name, make in MODELS.items():
        for k, check in enumerate(yield_checks(make())):
            slow = [pytest.mark.slow] if "memory" in check.__name__ else []  # a second per check
            yield pytest.param(make, k, id=f"{name}-{k}-{check.__name__}", marks=slow)


@pytest.mark.parametrize(("make", "number"), list(checks()))
def test_checks_of_river(make, number):
    random.seed(number)  # the checks shuffle features
    model = make()
    list(yield_checks(model))[number](model.clone())


@pytest.mark.parametrize("name", MODELS)
def test_types_and_parameters(name):
    """All checks run; parameters are those of the models outside of river, except for the name of the seed."""
    model, outside = MODELS[name](), OUTSIDE[name]()
    assert not model._unit_test_skips()
    assert len(list(yield_checks(model))) >= COUNTS[name]
    kinds = {"classifier": base.MiniBatchClassifier, "regressor": base.MiniBatchRegressor, "forecaster": Forecaster}
    assert isinstance(model, kinds[name])
    assert isinstance(model, OUTSIDE[name])
    want = outside.get_params()
    want["seed"] = want.pop("random_state")
    assert model.get_params() == want
    model = MODELS[name](hidden=3, seed=4)
    assert model.clone().get_params() == model.get_params() == model._get_params()
    assert model.clone({"hidden": 5}).hidden == 5
    assert "hidden=3, seed=4" in repr(model)


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_models_outside_of_river(name, tmp_path):
    """Predictions are bit-identical, and files are interchangeable; dates are not features of forecasters."""
    series = {"season": 4} if name == "forecaster" else {}
    inside, outside = MODELS[name](hidden=4, seed=3, **series), OUTSIDE[name](hidden=4, random_state=3, **series)
    sets = {"classifier": datasets.ImageSegments, "regressor": datasets.TrumpApproval}
    rows = list(sets.get(name, datasets.AirlinePassengers)())[
        :60
    ]  # a data set that is not read to the end leaves its file open

    def learn(model, x, y, k):
        if name == "forecaster":
            model.learn_one(y, (x if isinstance(model, Forecaster) else {}) | {"odd": k % 2})
        else:
            model.learn_one(x, y)

    def predicted(model, x):
        if name != "forecaster":
            return model.predict_one(x)
        future = [(x if isinstance(model, Forecaster) else {}) | {"odd": 1}] * 3
        return model.forecast(3, future), model.forecast_interval(2)

    for k, (x, y) in enumerate(rows[:40]):
        learn(inside, x, y, k)
        learn(outside, x, y, k)
    assert bits(inside) == bits(outside)
    inside.save(tmp_path / "inside.mesh")
    outside.save(tmp_path / "outside.mesh")
    loaded, back = meshnn.load(tmp_path / "inside.mesh"), MODELS[name].load(tmp_path / "outside.mesh")
    assert (type(loaded), type(back), back.seed) == (type(outside), MODELS[name], 3)
    copies = [inside, outside, loaded, back, copy.deepcopy(inside), pickle.loads(pickle.dumps(inside))]
    for k, (x, y) in enumerate(rows[40:]):
        found = [predicted(model, x) for model in copies]
        assert all(other == found[0] for other in found)
        for model in copies:
            learn(model, x, y, k)
    assert all(bits(model) == bits(inside) for model in copies)
    other = next(make for kind, make in MODELS.items() if kind != name)
    with pytest.raises(FileError, match=r"see meshnn\.load"):
        other.load(tmp_path / "inside.mesh")


def test_features_that_are_no_numbers_are_refused():
    model = RiverMeshForecaster(seed=0)
    before = bits(model)
    for given, named in (({"month": "May"}, "'May'"), ([1.0], "got list")):
        with pytest.raises(DataError, match=named):
            model.learn_one(1.0, given)
    assert bits(model) == before


def test_evaluation():
    """Errors of baselines: 44 % on Phishing (majority class), 101 passengers (mean), 40 passengers (no training)."""
    score = evaluate.progressive_val_score
    model = preprocessing.StandardScaler() | RiverMeshClassifier(seed=0)
    assert score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.8
    model, late = RiverMeshRegressor(seed=0), {"moment": "ordinal_date", "delay": 9}
    assert score(datasets.TrumpApproval(), model, metrics.MAE(), **late).get() < 3
    run = getattr(evaluate, "evaluate", None) or time_series.evaluate  # depends on the version of river
    found = run(datasets.AirlinePassengers(), RiverMeshForecaster(season=12, seed=0), metrics.MAE(), horizon=3)
    assert max(metric.get() for metric in found.metrics) < 60


def test_pipelines_and_ensembles():
    """Text passes through an encoder; bagging clones and seeds the model; mini-batches are DataFrames."""
    rows = [({"colour": "red" if k % 2 else "blue", "size": k % 5}, bool(k % 2)) for k in range(200)]
    texts = compose.SelectType(str) | preprocessing.OneHotEncoder()
    model = texts + compose.SelectType(int) | RiverMeshClassifier(hidden=4, seed=0)
    bag = ensemble.BaggingClassifier(RiverMeshClassifier(hidden=2, seed=0), n_models=3, seed=0)
    for x, y in rows:
        model.learn_one(x, y)
        bag.learn_one({"size": x["size"], "red": x["colour"] == "red"}, y)
    assert [model.predict_one(x) for x, _ in rows[:10]] == [y for _, y in rows[:10]]
    assert bag.predict_one({"size": 1, "red": True}) is True
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), columns=list("abc"))
    model = preprocessing.StandardScaler() | RiverMeshClassifier(hidden=2, seed=0)
    model.learn_many(X, pd.Series(np.where(X["a"] > 0, "up", "down")))
    assert model.predict_many(X).index.equals(X.index)
    assert set(model.predict_proba_many(X).columns) == {"up", "down"}
