"""`MeshForecaster` for sktime: in its pipelines, its splitters, its evaluation; `update` is one online step a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meshnn.online import MeshForecaster as OnlineForecaster

try:
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
except ImportError as error:  # an optional dependency: say how to get it
    raise ImportError("sktime is not installed; pip install 'meshnn[sktime]' brings it") from error

__all__ = ["MeshForecaster"]


class MeshForecaster(BaseForecaster):  # type: ignore[misc]
    """`meshnn.MeshForecaster` for sktime: a forecaster that learns every value once, also those of `update`.

    `fit` on a series and `update` with more of it end in the same model as `fit` on all of it, bit by bit. With
    `update_params=False` values are seen but not learned. Missing values, features (`X`, of which columns that are
    missing in the future count as their mean) and intervals work; in-sample forecasts do not: they would need all of
    the past.

    Parameters
    ----------
    season : "auto", int or None
        Steps of a season; found from the series, given, or none.
    lags : int
        Steps that nets with hidden neurons look back, besides those around a season.
    hidden : int
        Hidden neurons of each net.
    horizon : int, optional
        Steps ahead that nets are judged by; by default the season, but at least 12 and at most 24.
    settings : dict, optional
        Of the Kalman filter, see `meshnn.streaming.kalman.KalmanSettings`.
    random_state : int, Generator or None

    Attributes
    ----------
    forecaster_ : meshnn.MeshForecaster

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from meshnn.integrations.sktime.forecaster import MeshForecaster
    >>> y = load_airline()
    >>> forecaster = MeshForecaster(random_state=0).fit(y[:120])
    >>> forecaster = forecaster.update(y[120:132])
    >>> ahead = forecaster.predict(fh=[1, 2, 3])
    >>> bool((abs(ahead - y[132:135]) < 60).all())
    True
    """

    _tags = {  # noqa: RUF012  sktime's way
        "object_type": "forecaster",
        "authors": ["meshnn"],
        "maintainers": ["meshnn"],
        "python_dependencies": None,
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:non_contiguous_X": True,
        "capability:update": True,
        "capability:categorical_in_X": False,
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": False,
        "enforce_index_type": None,
    }

    _config = {"remember_data": False}  # noqa: RUF012  nothing of the past is needed again

    def __init__(
        self,
        season: int | str | None = "auto",
        lags: int = 18,
        hidden: int = 8,
        horizon: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.season, self.lags, self.hidden, self.horizon = season, lags, hidden, horizon
        self.settings, self.random_state = settings, random_state
        super().__init__()
        self._y = self._X = None  # sktime's, should somebody set remember_data

    def _fit(self, y: Any, X: Any, fh: Any) -> MeshForecaster:
        self.forecaster_ = OnlineForecaster(
            self.season, self.lags, self.hidden, self.horizon, self.settings, self.random_state
        )
        self._until, self._name = None, y.name
        self._take(y, X, True)
        return self

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> MeshForecaster:
        self._take(y, X, update_params)
        return self

    def _take(self, y: Any, X: Any, learns: bool) -> None:
        """Values in their order; those that were seen before are left out, steps between that are not there missing."""
        values = y.to_numpy(dtype=float, na_value=np.nan)
        rows = None if X is None else _rows(X.reindex(y.index))
        before = self._until if self._until is not None else y.index[:1]
        steps = _steps(y.index, before, len(y) if self._until is None else None)
        model, expected = self.forecaster_, 1 if self._until is not None else 0
        for k, step in enumerate(steps):
            if step < expected:
                continue
            if not model.n_samples_ and np.isnan(values[k]):
                expected = step + 1
                continue
            for _ in range(expected, step):
                model.learn_one(None)
            missing = dict.fromkeys(model.features_.names) or None
            (model.learn_one if learns else model.observe_one)(values[k], missing if rows is None else rows[k])
            expected = step + 1
        if len(y) and steps[-1] >= 0:
            self._until = y.index[-1:]

    def _predict(self, fh: Any, X: Any = None) -> Any:
        steps, horizon = self._ahead(fh)
        found = np.array(self.forecaster_.forecast(horizon, self._future(horizon, X)))
        index = fh.to_absolute_index(self.cutoff)
        return pd.Series(found[steps - 1], index=index, name=self._name)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: Any) -> Any:
        steps, horizon = self._ahead(fh)
        levels = np.array(alpha, dtype=float)
        inside = np.clip(levels, 1e-6, 1 - 1e-6)  # 0 and 1 are asked for, too
        found = self.forecaster_.forecast_quantiles(horizon, self._future(horizon, X), inside)
        columns = pd.MultiIndex.from_product([self._get_varnames(), list(alpha)])
        return pd.DataFrame(found[steps - 1], index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _ahead(self, fh: Any) -> tuple[Any, int]:
        steps = np.asarray(fh.to_relative(self.cutoff).to_numpy(), dtype=np.int64)
        return steps, int(steps.max())

    def _future(self, horizon: int, X: Any) -> list[dict[Any, float]] | None:
        if X is None:
            return None
        every = ForecastingHorizon(np.arange(1, horizon + 1), is_relative=True).to_absolute_index(self.cutoff)
        return _rows(X.reindex(every))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """For sktime's own checks."""
        return [{"random_state": 0}, {"season": 4, "hidden": 2, "lags": 3, "random_state": 1}]


def _rows(X: Any) -> list[dict[Any, float]]:
    """One dictionary per row, NaN where a value is missing."""
    names, values = list(X.columns), X.to_numpy(dtype=float, na_value=np.nan)
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


def _steps(index: Any, before: Any, regular: int | None) -> Any:
    """Of each time, the steps since `before`; one after the other if the index does not say how long a step is."""
    try:
        found = ForecastingHorizon(index, is_relative=False).to_relative(before).to_numpy()
        return np.asarray(found, dtype=np.int64)
    except (ValueError, TypeError, AttributeError):
        count = len(index) if regular is None else regular
        fresh = np.asarray(index > before[0])
        return np.arange(count) if regular is not None else np.where(fresh, np.cumsum(fresh), 0)
