"""How good forecasts of a series would have been: from many points of its past, with what was known then."""

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
    """Forecasts from points of the past.

    Attributes
    ----------
    origins : (n,) how many values were known
    forecasts, naive, seasonal : (n, horizon)
        Of the model, the last value, and the values of a season before; NaN if no season was known.
    lower, upper : (n, horizon)
    truth : (n, horizon)
        NaN beyond the end of the series, and where values are missing.
    """

    origins: IntArray
    forecasts: Array
    naive: Array
    seasonal: Array
    lower: Array
    upper: Array
    truth: Array

    def errors(self, of: str = "forecasts") -> Array:
        """Mean absolute errors `(horizon,)` by steps ahead; NaN where there is none."""
        return _mean(np.abs(getattr(self, of) - self.truth))

    def covered(self) -> Array:
        """Share of values `(horizon,)` inside their interval, by steps ahead."""
        inside = np.where(np.isnan(self.truth), np.nan, (self.truth >= self.lower) & (self.truth <= self.upper))
        return _mean(inside)


def _mean(values: Array) -> Array:
    return mean_of(np.ones_like(values), values)


def back_test(
    model: MeshForecaster, y: Array, horizon: int, level: float = 0.9, origins: int = 50,
    told: Callable[[int, int], None] | None = None, X: Sequence[Mapping[Any, float]] | None = None,
) -> BackTest:  # fmt: skip
    """Let a model learn a series y (n,), and forecast it from at most `origins` points in its second half on the way.

    One pass does both: the model has never seen what it forecasts. Afterwards it has learned the whole series. Missing
    values are NaN, but not the first. `told` gets how many values were learned, of how many. X are the features of each
    value; those of the steps to forecast are taken as known.
    """
    n, horizon = len(y), whole_number("horizon", horizon)
    points = _points(n, horizon, whole_number("origins", origins, least=0))
    shape = (len(points), horizon)
    found = {name: np.full(shape, np.nan) for name in ("forecasts", "naive", "seasonal", "lower", "upper", "truth")}
    number = {t: k for k, t in enumerate(points.tolist())}
    for t, value in enumerate(y.tolist()):
        if (k := number.get(t)) is not None:
            _try(model, y, X, t, horizon, level, {name: rows[k] for name, rows in found.items()})
        model.learn_one(value, None if X is None else X[t])
        if told is not None:
            told(t + 1, n)
    return BackTest(points, **found)


def _points(n: int, horizon: int, most: int) -> IntArray:
    """In the second half; those that leave a whole horizon, if there are any."""
    least = 10  # values before the first
    first = max(n // 2, least)
    last = max(n - horizon, min(first + (n - first) // 2, n - 1))
    if most == 0 or first > last or n <= least:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(np.int64))


def _try(
    model: MeshForecaster, y: Array, X: Any, t: int, horizon: int, level: float, into: dict[str, Any]
) -> None:  # fmt: skip
    known, truth = y[:t], y[t : t + horizon]
    count = len(truth)  # no more can be compared
    ahead = None if X is None else X[t : t + count]
    into["truth"][:count] = truth
    into["forecasts"][:count] = model.forecast(count, ahead)
    bounds = model.forecast_interval(count, ahead, level)
    into["lower"][:count], into["upper"][:count] = np.array(bounds).T
    into["naive"][:] = known[np.flatnonzero(np.isfinite(known))[-1]]
    if model.season_ is not None and t >= model.season_:
        into["seasonal"][:] = known[t - model.season_ + np.arange(horizon) % model.season_]
