"""Models of meshnn for sktime: classification and regression of panels of time series, and forecasting.

Each class wraps an estimator of meshnn, whose parameters are set as `estimator__hidden` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshnn.estimators import MeshSequenceClassifier, MeshSequenceRegressor
from meshnn.online import MeshForecaster

try:
    import pandas as pd
    from sktime.classification.base import BaseClassifier
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
    from sktime.regression.base import BaseRegressor
except ImportError as error:  # an optional dependency
    raise ImportError("sktime is not installed; install it with pip install 'meshnn[sktime]'") from error

__all__ = ["MeshTimeSeriesClassifier", "MeshTimeSeriesForecaster", "MeshTimeSeriesRegressor"]


class _PanelMixin:
    """Fits an estimator of sequences to panels of sktime."""

    _default: Any
    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["meshnn"],
        "maintainers": ["meshnn"],
        "python_dependencies": "meshnn",
        "property:randomness": "stochastic",
        "X_inner_mtype": ["df-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:categorical_in_X": False,
    }

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: NDArray[Any]) -> Any:
        self.estimator_ = self._default() if self.estimator is None else deepcopy(self.estimator)
        if self.estimator_.get_params(deep=False)["readout"] == "all":
            raise ValueError('readout is "all", which predicts every step; for sktime use "last" or "mean"')
        self.estimator_.fit(_sequences(X), y)
        return self

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict(_sequences(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return parameters that fit fast, for sktime's checks."""
        small = {"hidden": 3, "max_epochs": 2, "l2": 1e-3, "random_state": 0}
        other = small | {"mesh": "mesh", "readout": "mean", "solver": "lm"}
        return [{"estimator": cls._default(**options)} for options in (small, other)]


class MeshTimeSeriesClassifier(_PanelMixin, BaseClassifier):  # type: ignore[misc]
    """`meshnn.MeshSequenceClassifier` as an sktime classifier.

    It accepts all panels of sktime with one or several variables and equal or different lengths.

    Parameters
    ----------
    estimator : MeshSequenceClassifier, optional
        With readout "last" or "mean". None: default parameters.

    Attributes
    ----------
    estimator_ : MeshSequenceClassifier

    Examples
    --------
    >>> from meshnn import MeshSequenceClassifier
    >>> from meshnn.integrations.sktime import MeshTimeSeriesClassifier
    >>> from sktime.datasets import load_italy_power_demand
    >>> X, y = load_italy_power_demand(split="train", return_type="numpy3D")
    >>> net = MeshSequenceClassifier(hidden=6, l2=0.01, max_epochs=300, random_state=0)
    >>> bool((MeshTimeSeriesClassifier(net).fit(X, y).predict(X) == y).mean() > 0.9)
    True
    """

    _default = MeshSequenceClassifier
    _tags = _PanelMixin._tags | {"capability:predict_proba": True, "capability:class_weight": True}

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(_sequences(X))


class MeshTimeSeriesRegressor(_PanelMixin, BaseRegressor):  # type: ignore[misc]
    """`meshnn.MeshSequenceRegressor` as an sktime regressor, see `MeshTimeSeriesClassifier`.

    Parameters
    ----------
    estimator : MeshSequenceRegressor, optional

    Attributes
    ----------
    estimator_ : MeshSequenceRegressor

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn import MeshSequenceRegressor
    >>> from meshnn.integrations.sktime import MeshTimeSeriesRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (60, 1, 8))
    >>> y = X[:, 0, -1] - X[:, 0, -2]
    >>> model = MeshTimeSeriesRegressor(MeshSequenceRegressor(hidden=4, random_state=0)).fit(X, y)
    >>> bool(np.corrcoef(model.predict(X), y)[0, 1] > 0.9)
    True
    """

    _default = MeshSequenceRegressor


def _sequences(X: Any) -> Any:
    """Return sequences (length, variables); the last axis of sktime's arrays is time."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    return [frame.to_numpy(dtype=np.float64) for frame in X]


class MeshTimeSeriesForecaster(BaseForecaster):  # type: ignore[misc]
    """`meshnn.MeshForecaster` as an sktime forecaster, which learns every value of `fit` and `update` once.

    `fit` on a part of a series and `update` with the rest result in exactly the same model as `fit` on all of it. With
    `update_params=False`, values are observed but not learned. Missing values, features (`X`; columns missing in the
    future count as their mean) and intervals are supported. In-sample forecasts are not, because no past values are
    stored.

    Parameters
    ----------
    season, lags, hidden, horizon, settings, random_state
        As for `meshnn.MeshForecaster`.

    Attributes
    ----------
    forecaster_ : meshnn.MeshForecaster

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from meshnn.integrations.sktime import MeshTimeSeriesForecaster
    >>> y = load_airline()
    >>> forecaster = MeshTimeSeriesForecaster(random_state=0).fit(y[:120])
    >>> forecaster = forecaster.update(y[120:132])
    >>> ahead = forecaster.predict(fh=[1, 2, 3])
    >>> bool((abs(ahead - y[132:135]) < 60).all())
    True
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["meshnn"],
        "maintainers": ["meshnn"],
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "capability:categorical_in_X": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:update": True,
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": False,
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
        self._y = self._X = None  # set by sktime if remember_data is set

    def _fit(self, y: Any, X: Any, fh: Any) -> MeshTimeSeriesForecaster:
        self.forecaster_ = MeshForecaster(**self.get_params(deep=False))
        self._until, self._name = None, y.name
        self._take(y, X, True)
        return self

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> MeshTimeSeriesForecaster:
        self._take(y, X, update_params)
        return self

    def _take(self, y: Any, X: Any, learns: bool) -> None:
        """Learn or observe new values in order; steps that are left out between them are missing values."""
        values = y.to_numpy(dtype=float, na_value=np.nan)
        rows = None if X is None else _rows(X.reindex(y.index))
        first = self._until is None
        steps = _steps(y.index, y.index[:1] if first else self._until)
        model, expected = self.forecaster_, 0 if first else 1
        for k, step in enumerate(steps):
            if step < expected:
                continue
            if model.n_samples_ or not np.isnan(values[k]):
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
        inside = np.clip(levels, 1e-6, 1 - 1e-6)  # sktime allows 0 and 1
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
        """Return parameters for sktime's checks."""
        return [{"random_state": 0}, {"season": 4, "hidden": 2, "lags": 3, "random_state": 1}]


def _rows(X: Any) -> list[dict[Any, float]]:
    """Return one dictionary per row, NaN where a value is missing."""
    names, values = list(X.columns), X.to_numpy(dtype=float, na_value=np.nan)
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


def _steps(index: Any, before: Any) -> Any:
    """Return the steps from `before` to each time; consecutive numbers if the index has no frequency."""
    try:
        found = ForecastingHorizon(index, is_relative=False).to_relative(before).to_numpy()
        return np.asarray(found, dtype=np.int64)
    except (ValueError, TypeError, AttributeError):
        fresh = np.asarray(index > before[0])
        return np.where(fresh, np.cumsum(fresh), 0)
