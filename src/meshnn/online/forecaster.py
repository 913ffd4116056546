"""`MeshForecaster`: online forecasting of a time series."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arguments import as_generator, real_number, whole_number
from meshnn.arrays import Array, IntArray
from meshnn.errors import DataError, FileError, MeshError
from meshnn.online._experts import Expert, Tail, find_season, season_search_due, views
from meshnn.online._judge import Judge, mean_of
from meshnn.online._model import Features, OnlineModel, as_number, from_plain, to_plain
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming.state import fill_arrays
from meshnn.tables.names import listed
from meshnn.topology.builders import Seed

__all__ = ["MeshForecaster"]


class MeshForecaster(OnlineModel):
    """A forecaster that learns one value at a time in constant memory.

    The forecast is a weighted mean of several small networks, the experts. They differ in the transformation of the
    series: the series or its logarithm, and its values or their differences to the last value, to the value one season
    ago, or both. Each transformation is used with and without hidden neurons. All experts learn by the extended Kalman
    filter and feed their forecasts back to forecast several steps. Their weights follow from their recent errors, for
    each number of steps ahead separately. After 256 and 1024 values the experts with the lowest weights are dropped.

    Each value may come with features (exogenous inputs). Their names are fixed by the first sample: a new or missing
    name raises an error later; a missing value is NaN or None. The weights are then based on forecasts with known
    features, so pass the future features to `forecast`.

    Parameters
    ----------
    season : "auto", int or None, default="auto"
        Length of a season in steps; None means no season. "auto" estimates it repeatedly, at growing intervals, from
        the first 1536 values. When the estimate changes, the model is trained again on those values.
    lags : int, default=18
        Number of past values that networks with hidden neurons use, in addition to those around one season ago.
    hidden : int, default=8
        Hidden neurons per network; 0 uses linear networks only.
    horizon : int, optional
        Number of steps ahead for which separate weights are estimated; later steps use the last ones. By default the
        season, but at least 12 and at most 24.
    settings : dict, optional
        Settings of the filter, see `meshnn.streaming.kalman.KalmanSettings`.
    random_state : int, Generator or None, default=None
        Source of the initial weights and of the random paths.

    Attributes
    ----------
    n_samples_ : int
        Number of values so far.
    season_ : int or None
        The season in use.

    Examples
    --------
    >>> import math
    >>> from meshnn import MeshForecaster
    >>> model = MeshForecaster(random_state=0)
    >>> for t in range(120):
    ...     model.learn_one(1000 + 10 * t + 100 * math.sin(2 * math.pi * t / 12) + 31 * t % 7)
    >>> [round(value, -2) for value in model.forecast(3)], model.season_
    ([2200.0, 2300.0, 2300.0], 12)
    >>> low, high = model.forecast_interval(3, level=0.9)[0]
    >>> 2150 < low < high < 2250
    True
    """

    kind = "stream forecaster"

    def __init__(
        self, season: int | str | None = "auto", lags: int = 18, hidden: int = 8, horizon: int | None = None,
        settings: Mapping[str, Any] | None = None, random_state: Seed = None,
    ) -> None:  # fmt: skip
        self.season, self.lags, self.hidden, self.horizon = season, lags, hidden, horizon
        self.settings, self.random_state = settings, random_state
        self._experts: list[Expert] = []
        self._judge = Judge(0, 1)
        self._seed = 0
        self.features_ = Features()
        self.n_samples_ = 0
        self.season_: int | None = None

    # -- learning ----------------------------------------------------------------------------------------------------

    def fit(self, y: Any, X: Any = None) -> Self:
        """Learn a series from scratch.

        Parameters
        ----------
        y : Series or list of float
            The series. Missing values are NaN or None; the first value must be present.
        X : DataFrame (n, n_features), optional
            Features. If y is a Series, X must have the same index.
        """
        if hasattr(y, "columns") or getattr(y, "ndim", 1) != 1:
            columns = f" with the columns {listed(list(map(str, y.columns)))}" if hasattr(y, "columns") else ""
            raise DataError(f"y is a {type(y).__name__}{columns}, expected a series of values; pass one column")
        rows: list[Any] = [None] * len(y)
        if X is not None:
            if not hasattr(X, "columns") or len(X) != len(y):
                got = f"{len(X):,} rows" if hasattr(X, "columns") else type(X).__name__
                raise DataError(f"X must be a DataFrame with {len(y):,} rows, one per value of y; got {got}")
            if hasattr(y, "index") and hasattr(X, "index") and not X.index.equals(y.index):
                raise DataError("X and y have different indexes; align them")
            rows = X.to_dict("records")
        fresh = type(self)(**self.get_params())
        for value, x in zip(y, rows, strict=True):
            fresh.learn_one(value, x)
        self.__dict__.update(fresh.__dict__)
        return self

    def learn_one(self, y: float | None, x: Mapping[Hashable, Any] | None = None) -> None:
        """Learn the next value y and its features x.

        A missing value, NaN or None, is replaced by its forecast and not learned; x is optional then.
        """
        self._next(y, x, True)

    def observe_one(self, y: float | None, x: Mapping[Hashable, Any] | None = None) -> None:
        """Append the next value to the series without learning from it; later forecasts depend on it."""
        self._next(y, x, False)

    def _next(self, y: Any, x: Any, learns: bool) -> None:
        missing = y is None or (isinstance(y, float) and y != y)
        value = math.nan if missing else as_number("the next value", y, "pass None if it is missing")
        features = self.features_
        if x is not None and not len(features):
            features.check(_given(x))
            features = features.extended(features.new_names(x))
        row = self._row(features, x, missing)
        if missing and not self.n_samples_:
            raise DataError("the first value is missing; start with a value that is present")
        if not self._experts:
            self._begin()
        if len(features) > len(self.features_):
            self.features_ = features
            self._rows.widen(len(features))
            for expert in self._experts:
                expert.widen(len(features))
        if missing:
            value, learns = float(self._forecast(1, row[None])[0]), False
        self._take(min(max(value, -TUNING.largest), TUNING.largest), row, learns)
        if self.season == "auto" and season_search_due(self.n_samples_):
            self._update_season()
        if most := {256: 8, 1024: 5}.get(self.n_samples_):  # drop all but the best experts
            weight = self._judge.weights(self.n_samples_).max(axis=1)
            best = np.argsort(-weight, kind="stable")[:most]
            self._keep(np.unique(np.append(best, 0)))  # always keep the naive forecast

    def _row(self, features: Features, x: Any, optional: bool) -> Array:
        """Return the features of a step as a row, NaN where missing; raise an error for new or missing names."""
        if x is None and (optional or not len(features)):
            return np.full(len(features), np.nan)
        found = _given(x) if x is not None else {}
        features.check(found)
        if wrong := set(x or ()).symmetric_difference(features.names):
            name = min(wrong, key=lambda name: (name in features.names, repr(name)))
            what = "is missing from x" if name in features.names else "in x is unknown"
            known = ", ".join(map(repr, features.names[:20]))
            raise DataError(f"feature {name!r} {what}; expected the features {known}. Pass NaN for a missing value")
        return np.array(features.fill(found)[0, 0])

    def _begin(self, season: int | None = None) -> None:
        """Check the parameters and create untrained experts."""
        if not self.n_samples_:
            self._seed = int(as_generator(self.random_state).integers(2**31))
            if self.season not in ("auto", None):
                season = whole_number('season, if not "auto" or None,', self.season, most=TUNING.longest_season)
                season = None if season == 1 else season
        lags = whole_number("lags", self.lags, most=1000)
        hidden = whole_number("hidden", self.hidden, least=0, most=1000)
        default = min(max(season or 0, 12), 24)
        horizon = default if self.horizon is None else self.horizon
        horizon = whole_number("horizon", horizon, most=TUNING.longest_horizon)
        settings, seen = dict(self.settings or {}), views(season or 0, lags, hidden)
        experts = [Expert(k, view, self._seed, settings, horizon) for k, view in enumerate(seen)]
        keep = max(TUNING.kept, *(expert.depth + horizon for expert in experts))
        self._past = Tail(keep), Tail(keep)  # the values, and their logarithms
        self._rows = Tail(keep, max(len(self.features_), 1))
        self._learned = Tail(keep)  # 1; 0 for values that were missing or only observed
        self._experts, self._judge, self.season_, self.n_samples_ = experts, Judge(len(experts), horizon), season, 0
        for expert in experts:
            expert.widen(len(self.features_))

    def _take(self, value: float, row: Array, learns: bool) -> None:
        judge = self._judge
        self._rows.append(row if len(row) else math.nan)
        self._learned.append(float(learns))
        seen = self._seen_features()
        if len(self.features_) and learns and len(judge.ages) == 1 and judge.ages[0]:
            # forecast the new value from `age` values before, with the features known since then
            age = int(judge.ages[0])
            features = self._rows.last(min((self.season_ or 0) + 2 + age, self._rows.keep))
            found = [self._path(expert, age + 1, features, age)[-1] for expert in self._experts]
            judge.fill(age, np.array(found), self.n_samples_)
        if value <= 0 and any(expert.view.log for expert in self._experts):
            self._keep(np.array([k for k, expert in enumerate(self._experts) if not expert.view.log]))
        zs = value, math.log(value) if value > 0 else math.nan
        expected = np.empty(len(self._experts))
        for k, expert in enumerate(self._experts):
            log = expert.view.log
            expected[k] = expert.values(expert.learn(self._past[log], zs[log], seen, learns))
        for past, z in zip(self._past, zs, strict=True):
            past.append(z)
        if learns:
            judge.update(value, expected, self.n_samples_)
        self.n_samples_ += 1
        if not len(self.features_):
            if self.n_samples_ % max(1, self.n_samples_ // TUNING.often) == 0:
                judge.note(self._paths(judge.horizon, np.empty((judge.horizon, 0))), self.n_samples_)
        elif not len(judge.ages):  # the forecasts are filled in step by step, when the features are known
            judge.note(np.full((len(self._experts), judge.horizon), np.nan), self.n_samples_)

    def _seen_features(self, future: Array | None = None) -> Array | None:
        """Return the past rows of features that the experts depend on, followed by the future rows."""
        if not len(self.features_):
            return None
        past = self._rows.last(min((self.season_ or 0) + 2, self._rows.keep))
        return past if future is None else np.concatenate([past, future])

    def _update_season(self) -> None:
        """Estimate the season; if it has changed, train new experts on the past values."""
        y = self._past[0].last(min(self.n_samples_, TUNING.kept)).copy()
        season = find_season(y)
        if season == self.season_:
            return
        rows, learned = self._rows.last(len(y)).copy(), self._learned.last(len(y)).copy()
        self._begin(season)
        for value, row, learns in zip(y.tolist(), rows, learned, strict=True):
            self._take(value, row[: len(self.features_)], learns > 0)

    def _keep(self, which: IntArray) -> None:
        self._experts = [self._experts[k] for k in which]
        self._judge.keep(which)

    # -- forecasts ---------------------------------------------------------------------------------------------------

    def forecast(self, horizon: int, xs: Sequence[Mapping[Hashable, Any]] | None = None) -> list[float]:
        """Return forecasts of the next `horizon` values; zeros before the first value.

        `xs` are the features of the future steps, one dictionary per step; by default their means are used.
        """
        horizon = whole_number("horizon", horizon)
        return self._forecast(horizon, self._future(horizon, xs)).tolist() if self.n_samples_ else [0.0] * horizon

    def forecast_interval(
        self, horizon: int, xs: Sequence[Mapping[Hashable, Any]] | None = None, level: float = 0.9
    ) -> list[tuple[float, float]]:
        """Return a (lower, upper) interval for each of the next values, which contains it with probability `level`.

        See `forecast_quantiles`.
        """
        level = real_number("level", level, "a number between 0 and 1", lambda v: 0 < v < 1)
        found = self.forecast_quantiles(horizon, xs, [0.5 - level / 2, 0.5 + level / 2])
        return [(float(low), float(high)) for low, high in found]

    def forecast_quantiles(
        self, horizon: int, xs: Sequence[Mapping[Hashable, Any]] | None = None, levels: ArrayLike = (0.05, 0.5, 0.95)
    ) -> Array:
        """Return quantiles of the next values `(horizon, levels)`.

        The quantiles come from random paths of every expert, with parameters drawn from the covariance of its filter
        and an error added at every step. The spread of the paths at each step ahead is adjusted to that of the recent
        errors; the more errors there are, the stronger is the adjustment. Calls with the same `random_state` and the
        same series return the same quantiles; those of a shorter horizon are the first ones of a longer horizon.

        After n equal values, the next value is assumed to differ with probability 1 / n, typically by as much as the
        value differs from 0. An interval of 90% therefore has zero width only after ten equal values.
        """
        horizon = whole_number("horizon", horizon)
        wanted = np.atleast_1d(np.asarray(levels, dtype=float))
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise MeshError(f"levels must be numbers between 0 and 1, got {levels!r}")
        future = self._future(horizon, xs)
        if not self.n_samples_:
            raise MeshError("the model has not learned any value yet, so it has no quantiles; call learn_one first")
        return self._quantiles(horizon, future, wanted)

    def _quantiles(self, horizon: int, future: Array, levels: Array) -> Array:
        from meshnn.online._paths import draw_all, quantiles, quantiles_of_one

        (low, *_), (high, *_) = self._bounds(False, horizon)
        if low == high:
            count = int(self._learned.last(min(self.n_samples_, TUNING.kept)).sum())  # without filled-in values
            return quantiles_of_one(low, max(count, 1), horizon, levels)
        relevant = self._judge.weights(self.n_samples_).max(axis=1) >= TUNING.ignored
        experts = [expert for expert, kept in zip(self._experts, relevant, strict=True) if kept]
        seen = [(self._past[e.view.log], self._bounds(e.view.log, horizon)) for e in experts]
        seed, weights = (self._seed, self.n_samples_), self._weights(horizon)[relevant]
        paths, shares = draw_all(experts, seen, weights, self._seen_features(future), seed)
        return quantiles(paths, shares, self._forecast(horizon, future), levels, self._judge)

    def _future(self, horizon: int, xs: Any) -> Array:
        rows = np.full((horizon, len(self.features_)), np.nan)
        if xs is not None:
            given = list(xs)
            if len(given) < horizon:
                raise DataError(f"xs has features for {len(given)} steps, expected {horizon}, one dictionary per step")
            for k in range(horizon):
                rows[k] = self._row(self.features_, given[k], False)
        return rows

    def _weights(self, horizon: int) -> Array:
        W = self._judge.weights(self.n_samples_)
        return np.concatenate([W, np.repeat(W[:, -1:], max(horizon - W.shape[1], 0), axis=1)], axis=1)[:, :horizon]

    def _forecast(self, horizon: int, future: Array) -> Array:
        paths = self._paths(horizon, future)
        found = mean_of(self._weights(horizon), paths)
        return np.clip(np.where(np.isfinite(found), found, paths[0]), -TUNING.largest, TUNING.largest)

    def _paths(self, horizon: int, future: Array) -> Array:
        """Return the forecasts of every expert `(experts, horizon)`; NaN for experts with too few values."""
        seen = self._seen_features(future)
        return np.array([self._path(expert, horizon, seen) for expert in self._experts])

    def _path(self, expert: Expert, horizon: int, features: Array | None, ago: int = 0) -> Any:
        log = expert.view.log
        return expert.values(expert.path(self._past[log], horizon, self._bounds(log, horizon), features, ago))

    def _bounds(self, log: bool, horizon: int) -> tuple[list[float], list[float]]:
        """Return bounds per step well outside the range of the series, because fed-back forecasts may diverge."""
        count = min(self.n_samples_, TUNING.kept)
        z = self._past[log].last(count)
        low, high = float(np.nanmin(z)), float(np.nanmax(z))
        margins = (high - low) * (1.0 + np.arange(1, horizon + 1) / count)
        return (low - margins).tolist(), (high + margins).tolist()

    # -- inspection --------------------------------------------------------------------------------------------------

    def explain(self) -> list[tuple[str, float, float]]:
        """Return the name and the weights, one step ahead and at the horizon, of each expert; largest weights first.

        The naive forecast is named "last".
        """
        if not self._experts:
            raise MeshError("the model has not learned any value yet; call learn_one first")
        W = self._judge.weights(self.n_samples_)
        found = [(e.view.name, float(w[0]), float(w[-1])) for e, w in zip(self._experts, W, strict=True)]
        return sorted(found, key=lambda line: -line[1] - line[2])

    # -- files -------------------------------------------------------------------------------------------------------

    def to_tree(self) -> Tree:
        """Return the model as plain values and arrays."""
        tree = super().to_tree()
        tree |= {"n_samples": self.n_samples_, "seed": self._seed,
                 "features": to_plain(self.features_.names, "feature")}  # fmt: skip
        if self._experts:
            tree |= {"season": self.season_, "judge": self._judge.to_tree(),
                     "experts": [expert.to_tree() for expert in self._experts],
                     "past": {name: array.copy() for name, array in self._tails().items()}}  # fmt: skip
        return tree

    def _tails(self) -> dict[str, Array]:
        return {"values": self._past[0].kept, "rows": self._rows.kept, "learned": self._learned.kept}

    @classmethod
    def from_tree(cls, tree: Tree) -> Any:
        """Return the model stored in a tree; raise a `FileError` if the tree, which is not trusted, is inconsistent."""
        model, season = cls._of_params(tree["params"]), tree.get("season")
        model.features_ = Features(tuple(from_plain(tree["features"], "feature")))
        if "judge" in tree and tree["past"]["rows"].shape[1] != max(len(model.features_), 1):
            # checked before the networks grow
            raise FileError(f"the stored rows do not have the {len(model.features_)} features of the model")
        model._begin(None if season is None else whole_number("season", season, 2, TUNING.longest_season))
        model._seed = whole_number("seed", tree["seed"], least=0, most=2**31)
        n_samples = whole_number("n_samples", tree["n_samples"], least=int("judge" in tree), most=2**53)
        if "judge" not in tree:
            if n_samples or len(model.features_):
                raise FileError("the stored model was trained, but its experts are missing")
            return cls._of_params(tree["params"])
        model.n_samples_ = n_samples
        model._restore(tree)
        return model

    def _restore(self, tree: Tree) -> None:
        """Load the experts of a tree into the new ones; experts that are not in the tree are dropped."""
        numbers = [whole_number("expert", part["number"], 0, len(self._experts) - 1) for part in tree["experts"]]
        if numbers[:1] != [0] or numbers != sorted(set(numbers)):
            raise FileError("the stored experts must be in order and include the naive forecast")
        self._keep(np.array(numbers))
        for expert, part in zip(self._experts, tree["experts"], strict=True):
            expert.restore(part)
        self._judge.restore(tree["judge"])
        fill_arrays(self._tails(), tree["past"], gaps=True)
        last = self._past[0].last(min(self.n_samples_, self._past[0].keep))
        if not (np.abs(last) <= TUNING.largest).all():
            raise FileError(f"some of the last {len(last)} stored values are missing or too large")
        if any(expert.view.log for expert in self._experts) and not (last > 0).all():
            raise FileError("an expert uses logarithms, but some of the stored values are not positive")
        self._past[1].last(len(last))[:] = [math.log(value) if value > 0 else math.nan for value in last.tolist()]

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self.to_tree(), "params": self.get_params()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(type(self).from_tree(state["tree"]).__dict__)
        self.__dict__.update(state["params"])


def _given(x: Any) -> Any:
    """Return x without missing features."""
    if not isinstance(x, Mapping):
        return x  # the check of features then raises an error
    return {name: v for name, v in x.items() if v is not None and not (isinstance(v, float) and v != v)}
