"""`MeshForecaster`: series learned one value at a time."""

import copy
import math
import pickle

import numpy as np
import pytest

import meshnn
from meshnn import MeshForecaster
from meshnn.errors import DataError, MeshError
from meshnn.online._backtest import back_test
from meshnn.online._judge import Judge, mean_of
from meshnn.online._paths import _Net

RNG = np.random.default_rng(0)
SMALL = {"hidden": 2, "lags": 3}


def seasonal(n, noise=1.0, seed=0):
    """Return a positive series with a trend, a season of 12 and noise."""
    t = np.arange(n)
    return 200 + 2 * t + 40 * np.sin(2 * np.pi * t / 12) + noise * np.random.default_rng(seed).standard_normal(n)


def fed(model, values, xs=None):
    for k, value in enumerate(values):
        model.learn_one(value, None if xs is None else xs[k])
    return model


def test_a_trend_and_a_season_are_continued():
    y = seasonal(132)
    model = fed(MeshForecaster(random_state=0), y[:108])
    error = np.abs(np.array(model.forecast(24)) - y[108:]).mean()
    assert model.season_ == 12
    assert error < 6  # the errors of the last value and of the value a year ago exceed 24
    low, high = np.array(model.forecast_interval(24, level=0.9)).T
    assert ((low <= y[108:]) & (y[108:] <= high)).mean() > 0.7
    assert (high - low).max() < 60


def test_a_series_that_no_line_can_follow():
    y = [0.3]
    for _ in range(500):  # the logistic map: no autocorrelation, but the next value is deterministic
        y.append(3.9 * y[-1] * (1 - y[-1]))
    model, errors, naive = MeshForecaster(season=None, random_state=0, lags=3), [], []
    for k, value in enumerate(y):
        if k > 400:
            errors.append(abs(model.forecast(1)[0] - value))
            naive.append(abs(y[k - 1] - value))
        model.learn_one(value)
    assert np.mean(errors) < 0.2 * np.mean(naive)


def test_a_season_that_is_found_is_as_if_it_had_been_given():
    y = seasonal(60)
    found, given = (fed(MeshForecaster(s, random_state=3, **SMALL), y) for s in ("auto", 12))
    assert found.season_ == 12
    assert found.forecast(15) == given.forecast(15)
    assert found.forecast_interval(15) == given.forecast_interval(15)


def test_saved_copied_and_pickled_it_goes_on_bit_by_bit(tmp_path):
    y = seasonal(90)
    xs = [{"a": float(k % 7), ("b", 1): math.sin(k)} for k in range(90)]
    model = fed(MeshForecaster(random_state=0, **SMALL), y[:50], xs[:50])
    model.save(tmp_path / "a.mesh")
    others = [meshnn.load(tmp_path / "a.mesh"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for one in (model, *others):
        fed(one, y[50:], xs[50:])
    ahead = [{"a": 1.0, ("b", 1): 2.0}] * 14
    want = model.forecast(14, ahead), model.forecast_interval(14, ahead), model.explain()
    for one in others:
        assert (one.forecast(14, ahead), one.forecast_interval(14, ahead), one.explain()) == want
        assert one.features_.names == model.features_.names
    model = MeshForecaster(7, random_state=1)
    model.save(tmp_path / "b.mesh")  # before the first value
    assert fed(model, y[:20]).forecast(3) == fed(meshnn.load(tmp_path / "b.mesh"), y[:20]).forecast(3)


@pytest.mark.parametrize("values", [
    [5.0] * 40, [0.0] * 40, [1.0] * 30 + [1e6] * 3 + [1.0] * 10, [1e300, -1e300] * 20, [0, 1] * 20, [3.0],
    [1, None, 3, math.nan] * 10, list(RNG.random(30) * 1e-300), list(1.5 ** np.arange(60.0)),
    [*np.exp(RNG.standard_normal(30)), -1.0, *np.exp(RNG.standard_normal(10))], [np.int64(3), np.float32(4), True] * 8,
], ids=str)  # fmt: skip
def test_nothing_but_numbers_comes_out(values):
    model = MeshForecaster(random_state=0, **SMALL)
    for k, value in enumerate(values):
        model.learn_one(value)
        if k % 9 == 0 or k == len(values) - 1:
            assert np.isfinite(model.forecast(20)).all()
            bounds = np.array(model.forecast_interval(20))
            assert np.isfinite(bounds).all()
            assert (bounds[:, 0] <= bounds[:, 1]).all()


def test_missing_and_observed_values_are_not_learned():
    y = seasonal(80)
    model = fed(MeshForecaster(12, random_state=0, **SMALL), y[:60])
    expected = model.forecast(2)
    before = [expert.mesh.weights.copy() for expert in model._experts if expert.mesh is not None]
    fed(model, [None, math.nan])
    assert model.forecast(1)[0] == pytest.approx(seasonal(63, 0.0)[62], abs=25)
    np.testing.assert_allclose(model._past[0].last(2), expected, rtol=0.05)  # missing values are imputed
    for value in y[62:]:
        model.observe_one(value)
    after = [expert.mesh.weights for expert in model._experts if expert.mesh is not None]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert model.n_samples_ == 80
    assert model.forecast(1)[0] == pytest.approx(seasonal(81, 0.0)[80], abs=25)  # the position in the series is kept


@pytest.mark.parametrize("seed", [0, 1])
def test_an_input_that_explains_everything_is_used_at_every_step_ahead(seed):
    """y = 3 x + noise: the error of least squares is 0.08, that of the mean of y 2.4."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(124)
    y = 3 * x + 0.1 * rng.standard_normal(124)
    xs = [{"x": value} for value in x]
    model, errors = fed(MeshForecaster(random_state=0), y[:60], xs[:60]), []
    for k in range(60, 100):
        errors.append(abs(model.forecast(1, xs[k : k + 1])[0] - y[k]))
        model.learn_one(y[k], xs[k])
    assert np.mean(errors) < 0.15
    assert np.abs(np.array(model.forecast(12, xs[100:112])) - y[100:112]).mean() < 0.15
    assert np.isfinite(model.forecast(4)).all()  # future features may be missing


def test_names_of_features_are_those_of_before():
    xs = [{"price": float(k % 5), "promo": float(k % 3)} for k in range(20)]
    model = fed(MeshForecaster(random_state=0, **SMALL), seasonal(20), xs)
    want, wrong = model.forecast(3, xs[:3]), {"'prmo'": {"price": 1.0, "prmo": 1.0}, "'promo'": {"price": 1.0}}
    for call in (
        lambda x: model.learn_one(1.0, x),
        lambda x: model.observe_one(1.0, x),
        lambda x: model.forecast(1, [x]),
    ):
        for name, x in wrong.items():
            with pytest.raises(DataError, match=name):
                call(x)
    with pytest.raises(DataError, match="'price'"):
        model.learn_one(1.0)
    assert model.forecast(3, xs[:3]) == want
    model.learn_one(1.0, {"price": None, "promo": math.nan})  # values may be missing
    model.learn_one(None)


def test_whole_series_are_fitted():
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2024-01-01", periods=30, freq="D")
    y = pd.Series(seasonal(30), index)
    y.iloc[4] = np.nan
    X = pd.DataFrame({"a": np.arange(30) % 4, "b": np.sin(np.arange(30))}, index)
    X.iloc[7, 1] = np.nan
    rows = X.to_dict("records")
    fitted = MeshForecaster(random_state=0, **SMALL)
    assert fitted.fit(y, X) is fitted
    stepwise = fed(MeshForecaster(random_state=0, **SMALL), y.tolist(), rows)
    assert fitted.forecast(3, rows[:3]) == stepwise.forecast(3, rows[:3])
    assert fitted.fit(y.tolist()).features_.names == ()  # fit starts a new model
    for wrong in (X[:20], X.to_numpy(), X.shift(freq="D")):
        with pytest.raises(DataError, match="X"):
            fitted.fit(y, wrong)
    for table in (X, X.to_numpy()):
        with pytest.raises(DataError, match="one column"):
            fitted.fit(table)


@pytest.mark.parametrize(("call", "match"), [
    (lambda m: m.learn_one("three"), "'three'"),
    (lambda m: m.learn_one(math.inf), "inf"),
    (lambda m: m.learn_one([1.0]), "list"),
    (lambda m: m.learn_one(1.0, {"a": "red"}), "'red'"),
    (lambda m: m.learn_one(1.0, [1.0]), "list"),
    (lambda m: m.forecast(0), "horizon"),
    (lambda m: m.forecast(3, [{"a": 1.0}]), "xs"),
    (lambda m: m.forecast_interval(3, level=1.0), "level"),
    (lambda m: m.forecast_quantiles(3, levels=[0.5, 2.0]), "levels"),
])  # fmt: skip
def test_what_is_refused_leaves_it_as_it_was(call, match):
    model = fed(MeshForecaster(random_state=0, **SMALL), seasonal(20))
    want = model.forecast(5)
    with pytest.raises(MeshError, match=match):
        call(model)
    assert model.forecast(5) == want
    assert model.n_samples_ == 20


def test_before_anything_was_learned():
    model = MeshForecaster()
    assert model.forecast(2) == [0.0, 0.0]
    with pytest.raises(MeshError, match="learn_one"):
        model.forecast_interval(1)
    with pytest.raises(MeshError, match="learn_one"):
        model.explain()
    with pytest.raises(DataError, match="first"):
        model.learn_one(None)
    with pytest.raises(MeshError, match="season"):
        MeshForecaster(season=-3).learn_one(1.0)
    with pytest.raises(MeshError, match="speed"):
        MeshForecaster(settings={"speed": 1}).learn_one(1.0)
    assert repr(MeshForecaster(12, hidden=3)) == "MeshForecaster(season=12, hidden=3)"


def test_memory_does_not_grow():
    model, ages = MeshForecaster(None, hidden=0, lags=1, random_state=0), []
    for value in RNG.standard_normal(1600).cumsum():
        model.learn_one(value)
        ages.append(len(model._judge.ages))
    size = len(pickle.dumps(model))
    fed(model, RNG.standard_normal(300).cumsum())
    assert len(pickle.dumps(model)) <= size
    assert max(ages) <= 12


def test_intervals_of_values_that_are_all_the_same():
    model, widths = MeshForecaster(random_state=0, **SMALL), []
    for _ in range(12):
        model.learn_one(7.0)
        widths.append(float(np.diff(model.forecast_interval(1, level=0.9)[0])[0]))
    np.testing.assert_allclose(widths[0], 2 * 7 * 1.6448536)  # the scale is the distance from 0, without other evidence
    assert (np.diff(widths[:10]) < 0).all()
    assert widths[8] > 0
    assert widths[10:] == [0.0, 0.0]
    gaps = fed(MeshForecaster(random_state=0, **SMALL), [7.0, None, None, None])
    assert np.diff(gaps.forecast_interval(1)[0])[0] == widths[0]  # imputed values are not used as evidence
    other = fed(MeshForecaster(random_state=0, **SMALL), [7.0, 8.0])
    low, high = other.forecast_interval(1)[0]
    assert low < high


def test_intervals_cover_what_they_say():
    rng = np.random.default_rng(5)
    y = [0.0]
    for _ in range(420):
        y.append(0.7 * y[-1] + rng.standard_normal())
    model = MeshForecaster(None, random_state=0, **SMALL)
    test = back_test(model, np.array(y), 4, level=0.8, origins=60)
    assert 0.6 < test.covered().mean() < 0.97
    assert len(model.explain()) <= 9  # other features were dropped after 256 values
    narrow, wide = (np.diff(model.forecast_interval(4, level=level)).ravel() for level in (0.5, 0.95))
    assert (narrow < wide).all()
    # the standard deviation of an AR(1) grows from 1 to 1 / sqrt(1 - 0.49) = 1.4
    deviations = wide / (2 * 1.96)
    assert 0.6 < deviations[0] < 1.8
    assert deviations[0] < deviations[3] < 2.8


@pytest.mark.parametrize("features", [False, True])
def test_a_shorter_horizon_has_the_first_quantiles_of_a_longer_one(features):
    rng, model = np.random.default_rng(0), MeshForecaster(horizon=8, random_state=0)
    for t in range(40):
        x = {"a": float(t % 3)} if features else None
        model.learn_one(50 + t + 9 * math.sin(t / 2) + float(rng.standard_t(2)), x)
    ahead = [{"a": float(t % 3)} for t in range(12)] if features else None
    whole = model.forecast_quantiles(12, ahead)
    for horizon in (1, 3, 8, 11):
        np.testing.assert_allclose(model.forecast_quantiles(horizon, ahead), whole[:horizon], rtol=1e-12)
        np.testing.assert_allclose(model.forecast(horizon, ahead), model.forecast(12, ahead)[:horizon], rtol=1e-12)


def test_a_back_test_sees_what_was_known():
    y = seasonal(60, 0.0)
    y[20] = math.nan
    seen = []
    model = MeshForecaster(12, random_state=0, **SMALL)
    test = back_test(model, y, 12, origins=4, progress=lambda done, of: seen.append((done, of)))
    assert test.origins.tolist() == [30, 36, 42, 48]
    assert seen[-1] == (60, 60)
    again = fed(MeshForecaster(12, random_state=0, **SMALL), y[:36])
    assert test.forecasts[1].tolist() == again.forecast(12)
    np.testing.assert_array_equal(test.naive[1], np.full(12, y[35]))
    np.testing.assert_array_equal(test.seasonal[1], y[24:36])
    np.testing.assert_allclose(test.errors("naive")[0], np.mean([abs(y[t - 1] - y[t]) for t in test.origins]))
    assert back_test(MeshForecaster(random_state=0, **SMALL), y[:8], 3).origins.size == 0


# -- components --------------------------------------------------------------------------------------------------------


def test_weights_by_errors_worked_by_hand():
    judge = Judge(3, 2)
    assert judge.weights(10)[:, 0].tolist() == [1.0, 0.0, 0.0]  # without errors, the naive forecast has weight 1
    judge.update(10.0, np.array([8.0, 9.0, np.nan]), 0)  # errors 2 and 1, power 2: weights 1 and 4
    np.testing.assert_allclose(judge.weights(0)[:, 0], [0.2, 0.8, 0.0])
    np.testing.assert_allclose(judge.weights(0)[:, 1], [0.2, 0.8, 0.0])  # taken from one step ahead
    judge.note(np.array([[7.0, 7.0], [9.0, 12.0], [np.nan, np.nan]]), 1)
    judge.update(9.0, np.array([7.0, 9.0, 9.0]), 1)
    judge.update(10.0, np.array([10.0, 10.0, 10.0]), 2)
    assert len(judge.ages) == 0  # both of its steps have passed
    np.testing.assert_allclose(judge.total[:2, 1], [3.0, 2.0])
    np.testing.assert_allclose(judge.cases[1], 1.0)
    np.testing.assert_allclose(judge.apart[1], abs(0.2 * 7 + 0.8 * 12 - 10))
    assert np.isnan(mean_of(np.ones((2, 1)), np.full((2, 1), np.nan)))


def test_the_net_of_paths_equals_that_of_the_stream():
    """With parameters that differ by 1e-6, the outputs of two nets differ as predicted by the derivative."""
    model = fed(MeshForecaster(12, random_state=0, hidden=3, lags=4), seasonal(80))
    expert = next(e for e in model._experts if e.view.hidden and e.view.first)
    rows = expert.w.last(expert.depth)[-len(expert.lags) :] * np.linspace(0.5, 1.5, 5)[:, None]
    rows[2, 1] = np.nan
    nets, t, weights = [], expert.mesh.topology, expert.mesh.weights.copy()
    for deviation in (0.0, 1e-6):
        expert.stream.learner.set_covariance(deviation**2 * np.eye(t.n_edges))
        nets.append(_Net(expert, 5, np.random.default_rng(0)))
    still, moved = nets
    np.testing.assert_allclose(still(rows), expert.stream.peek_rows(rows[:, None])[:, 0], rtol=1e-9, atol=1e-9)
    for k, row in enumerate(rows):
        D, sides, c = np.zeros_like(moved.A), [], t.n_clamped
        D[:c, -1], D[c:-1, -1], D[:c, c:-1] = moved.d_direct[k], moved.d_read[k], moved.d_hidden[k]
        for sign in (1.0, -1.0):
            expert.mesh.weights = weights + sign * D[t.src, t.dst]
            expert.stream.refresh()
            sides.append(expert.stream.peek(row)[0])
        slope = (sides[0] - sides[1]) / 2
        np.testing.assert_allclose(moved(rows)[k] - still(rows)[k], slope, rtol=1e-3, atol=1e-9)


# -- sktime ------------------------------------------------------------------------------------------------------------


def in_sktime(**parameters):
    module = pytest.importorskip("meshnn.integrations.sktime")
    return module.MeshTimeSeriesForecaster(random_state=0, **(SMALL | parameters))


def test_update_is_as_if_all_had_been_fitted():
    import pandas as pd

    y = pd.Series(seasonal(60), pd.period_range("2001-01", periods=60, freq="M"), name="y")
    whole = in_sktime().fit(y)
    parts = in_sktime().fit(y[:40])
    parts.update(y[38:50])  # two of them were already learned
    parts.update(y[50:])
    assert parts.cutoff[0] == y.index[-1]
    pd.testing.assert_series_equal(whole.predict([1, 3, 12]), parts.predict([1, 3, 12]))
    pd.testing.assert_frame_equal(whole.predict_interval([1, 5]), parts.predict_interval([1, 5]))
    assert parts.forecaster_.n_samples_ == 60
    still = in_sktime().fit(y[:40]).update(y[40:], update_params=False)
    assert still.forecaster_.n_samples_ == 60
    assert not whole.predict([1]).equals(still.predict([1]))


def test_gaps_and_features_in_sktime():
    import pandas as pd

    index = pd.date_range("2024-01-01", periods=50, freq="D")
    X = pd.DataFrame({"x": np.random.default_rng(2).standard_normal(50)}, index)
    y = 5 + 2 * X["x"].rename("y")
    y.iloc[[0, 7]] = np.nan
    model = in_sktime(season=None).fit(y[:40], X[:40])
    assert model.forecaster_.n_samples_ == 39  # training starts with the second value
    got = model.predict([2, 4], X=X.iloc[[41, 43]])
    assert got.index.tolist() == index[[41, 43]].tolist()
    away = model.predict([2, 4], X=X.iloc[[41, 43]] + 1)
    assert (away - got > 0.5).all()  # the true difference is 2
    model.update(y[42:], X[42:])  # two days are missing
    assert model.forecaster_.n_samples_ == 49


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Forecasters. predict_proba requires skpro:UserWarning")  # unused here
def test_sktimes_own_checks():
    checks = pytest.importorskip("sktime.utils.estimator_checks")
    from meshnn.integrations.sktime import MeshTimeSeriesForecaster

    found = checks.check_estimator(MeshTimeSeriesForecaster, raise_exceptions=False, verbose=False)
    assert len(found) > 400
    assert {name: result for name, result in found.items() if result != "PASSED"} == {}
