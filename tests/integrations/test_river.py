"""`meshnn.integrations.river`: all that river asks of its own models, its pipelines, its evaluation."""

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
#: Checks that river 0.26 has for them.
COUNTS = {"classifier": 65, "regressor": 28, "forecaster": 16}


def checks():
    for name, make in MODELS.items():
        for k, check in enumerate(yield_checks(make())):
            slow = [pytest.mark.slow] if "memory" in check.__name__ else []  # a second each
            yield pytest.param(make, k, id=f"{name}-{k}-{check.__name__}", marks=slow)


@pytest.mark.parametrize(("make", "number"), list(checks()))
def test_checks_of_river(make, number):
    random.seed(number)  # checks shuffle features
    model = make()
    list(yield_checks(model))[number](model.clone())


@pytest.mark.parametrize("name", MODELS)
def test_what_they_are(name):
    """All checks are run; parameters are those of the model outside of river, with another name of the seed."""
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


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_the_same_as_outside_of_river(name, tmp_path):
    """Same seed, same samples, same bits; and files go from one to the other."""
    inside = MODELS[name](hidden=4, seed=3)
    outside = OUTSIDE[name](hidden=4, random_state=3)
    data = datasets.ImageSegments() if name == "classifier" else datasets.TrumpApproval()
    rows = list(data)[:60]  # a set that is not read to its end leaves its file open
    for x, y in rows[:40]:
        assert inside.predict_one(x) == outside.predict_one(x)
        inside.learn_one(x, y)
        outside.learn_one(x, y)
    assert bits(inside) == bits(outside)
    inside.save(tmp_path / "inside.mesh")
    outside.save(tmp_path / "outside.mesh")
    loaded = meshnn.load(tmp_path / "inside.mesh")
    assert type(loaded) is type(outside)
    back = MODELS[name].load(tmp_path / "outside.mesh")
    assert type(back) is MODELS[name]
    assert back.seed == 3
    copies = [inside, outside, loaded, back, copy.deepcopy(inside), pickle.loads(pickle.dumps(inside))]
    for x, y in rows[40:]:
        for model in copies:
            model.learn_one(x, y)
    assert all(bits(model) == bits(inside) for model in copies)
    other = next(make for kind, make in MODELS.items() if kind != name)
    with pytest.raises(FileError, match=r"see meshnn\.load"):
        other.load(tmp_path / "inside.mesh")


def test_forecasts_are_the_same_as_outside_of_river(tmp_path):
    """Dates are left out; other features are learned; files go from one to the other."""
    inside, outside = (
        RiverMeshForecaster(season=4, hidden=2, seed=3),
        MeshForecaster(season=4, hidden=2, random_state=3),
    )
    rows = [({**x, "odd": k % 2}, y) for k, (x, y) in enumerate(list(datasets.AirlinePassengers())[:40])]
    xs = [{**x, "odd": 1} for x, _ in rows[:3]]
    for k, (x, y) in enumerate(rows):
        inside.learn_one(y, x)
        outside.learn_one(y, {"odd": k % 2})
    inside.save(tmp_path / "inside.mesh")
    outside.save(tmp_path / "outside.mesh")
    models = [inside, meshnn.load(tmp_path / "inside.mesh"), RiverMeshForecaster.load(tmp_path / "outside.mesh")]
    models += [copy.deepcopy(inside), pickle.loads(pickle.dumps(inside))]
    assert [type(model) for model in models[1:]] == [MeshForecaster, *[RiverMeshForecaster] * 3]
    for model in models:
        given = [{"odd": 1}] * 3 if type(model) is MeshForecaster else xs
        assert model.forecast(3, given) == outside.forecast(3, [{"odd": 1}] * 3)
        assert model.forecast_interval(2) == outside.forecast_interval(2)
    before = bits(inside)
    with pytest.raises(DataError, match="'May'"):
        inside.learn_one(1.0, {"month": "May"})
    with pytest.raises(DataError, match="got list"):
        inside.learn_one(1.0, [1.0])
    assert bits(inside) == before


def test_evaluation():
    """The larger class of Phishing has 56 %; the mean of all passengers is off by 101; a model unfed by 40."""
    score = evaluate.progressive_val_score
    model = preprocessing.StandardScaler() | RiverMeshClassifier(seed=0)
    assert score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.8
    model, late = RiverMeshRegressor(seed=0), {"moment": "ordinal_date", "delay": 9}
    assert score(datasets.TrumpApproval(), model, metrics.MAE(), **late).get() < 3
    run = getattr(evaluate, "evaluate", None) or time_series.evaluate  # it has moved
    found = run(datasets.AirlinePassengers(), RiverMeshForecaster(season=12, seed=0), metrics.MAE(), horizon=3)
    assert max(metric.get() for metric in found.metrics) < 60


def test_pipelines_and_ensembles():
    """Text goes through an encoder; bagging clones and seeds it; mini-batches are frames."""
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
