"""Backtest of a forecaster: forecasts from many points in the past of a series, compared with the true values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arguments import whole_number
from meshnn.arrays import Array, IntArray
from meshnn.online._judge import mean_of
from meshnn.online.forecaster import MeshForecaster

__all__ = ["BackTest", "back_test"]


@dataclass(frozen=True)
class BackTest:
    """Forecasts of past values and the values that followed.

    Attributes
    ----------
    origins : (n,) int
        Number of known values at each forecast origin.
    forecasts : (n, horizon)
        Forecasts of the model.
    naive : (n, horizon)
        The last known value, repeated.
    seasonal : (n, horizon)
        The values one season earlier; NaN if no season was known.
    lower, upper : (n, horizon)
        Bounds of the prediction intervals.
    truth : (n, horizon)
        True values; NaN after the end of the series and for missing values.
    """

    origins: IntArray
    forecasts: Array
    naive: Array
    seasonal: Array
    lower: Array
    upper: Array
    truth: Array

    def errors(self, of: str = "forecasts") -> Array:
        """Return the mean absolute error per step ahead `(horizon,)`; NaN for steps without values."""
        return _mean(np.abs(getattr(self, of) - self.truth))

    def covered(self) -> Array:
        """Return the share of values inside their interval per step ahead `(horizon,)`."""
        inside = np.where(np.isnan(self.truth), np.nan, (self.truth >= self.lower) & (self.truth <= self.upper))
        return _mean(inside)


def _mean(values: Array) -> Array:
    return mean_of(np.ones_like(values), values)


def back_test(
    model: MeshForecaster, y: Array, horizon: int, level: float = 0.9, origins: int = 50,
    progress: Callable[[int, int], None] | None = None, X: Sequence[Mapping[Any, float]] | None = None,
) -> BackTest:  # fmt: skip
    """Train a model on a series and forecast from at most `origins` points in the second half of the series.

    Training and forecasting alternate in one pass, so each forecast uses only the values before its origin. At the end
    the model has learned the whole series.

    Parameters
    ----------
    model : MeshForecaster
    y : (n,)
        The series. Missing values are NaN; the first value must be present.
    horizon : int
        Steps to forecast from each origin.
    level : float
        Probability of the prediction intervals.
    origins : int
        Maximum number of origins; 0 only trains.
    progress : callable (done, total) -> None, optional
        Called after each value with the number of values learned and the length of the series.
    X : sequence of dict, optional
        Features of each value. The features of the steps to forecast are assumed known.
    """
    n, horizon = len(y), whole_number("horizon", horizon)
    points = _points(n, horizon, whole_number("origins", origins, least=0))
    shape = (len(points), horizon)
    results = {name: np.full(shape, np.nan) for name in ("forecasts", "naive", "seasonal", "lower", "upper", "truth")}
    number = {t: k for k, t in enumerate(points.tolist())}
    for t, value in enumerate(y.tolist()):
        if (k := number.get(t)) is not None:
            _forecast_from(model, y, X, t, horizon, level, {name: rows[k] for name, rows in results.items()})
        model.learn_one(value, None if X is None else X[t])
        if progress is not None:
            progress(t + 1, n)
    return BackTest(points, **results)


def _points(n: int, horizon: int, most: int) -> IntArray:
    """Return the origins, in the second half of the series and, if possible, a full horizon before its end."""
    least = 10  # values before the first origin
    first = max(n // 2, least)
    last = max(n - horizon, min(first + (n - first) // 2, n - 1))
    if most == 0 or first > last or n <= least:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(np.int64))


def _forecast_from(
    model: MeshForecaster, y: Array, X: Any, t: int, horizon: int, level: float, into: dict[str, Any]
) -> None:  # fmt: skip
    """Write the forecasts from origin t, and the true values, into arrays `(horizon,)`."""
    known, truth = y[:t], y[t : t + horizon]
    count = len(truth)  # the series may end before the horizon
    ahead = None if X is None else X[t : t + count]
    into["truth"][:count] = truth
    into["forecasts"][:count] = model.forecast(count, ahead)
    bounds = model.forecast_interval(count, ahead, level)
    into["lower"][:count], into["upper"][:count] = np.array(bounds).T
    into["naive"][:] = known[np.flatnonzero(np.isfinite(known))[-1]]
    if model.season_ is not None and t >= model.season_:
        into["seasonal"][:] = known[t - model.season_ + np.arange(horizon) % model.season_]
