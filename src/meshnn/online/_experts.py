"""Expert of a forecaster: one transformation of the series and one network that learns it online.

z      the series, or its logarithm
base   0, the last value, the value one season ago, or the latter plus the last seasonal difference
w      z - base, the target of the network, predicted from w at earlier steps
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming import Stream
from meshnn.streaming.state import fill_arrays
from meshnn.topology import Topology

__all__ = ["Bounds", "Expert", "ExpertView", "Tail", "find_season", "season_search_due", "views"]


#: Lowest and highest value per step of a path.
Bounds = tuple[list[float], list[float]]


class Tail:
    """The last `keep` values, or rows of `width` columns, of a sequence; NaN before the first one."""

    def __init__(self, keep: int, width: int = 0) -> None:
        self.keep = keep
        self._rows = np.full((3 * keep, width) if width else 3 * keep, np.nan)
        self._end = keep

    def append(self, value: Any) -> None:
        if self._end == len(self._rows):
            self._rows[: self.keep] = self._rows[self._end - self.keep : self._end].copy()
            self._end = self.keep
        self._rows[self._end] = value
        self._end += 1

    def last(self, count: int) -> Array:
        """Return a view of the last `count` values, at most `keep`, oldest first."""
        return self._rows[self._end - count : self._end]

    def back(self, steps: Any) -> Any:
        """Return the value a number of steps back, where 1 is the last one; an array of numbers returns an array."""
        return self._rows[self._end - steps]

    def widen(self, width: int) -> None:
        """Set the number of columns; new ones are NaN."""
        if width == self._rows.shape[1]:
            return
        rows = np.full((len(self._rows), width), np.nan)
        rows[:, : self._rows.shape[1]] = self._rows
        self._rows = rows

    @property
    def kept(self) -> Array:
        """A view of the last `keep` values."""
        return self.last(self.keep)


class ExpertView(NamedTuple):
    """The transformation and the network of an expert."""

    log: bool  # whether z is the logarithm of the series
    first: bool  # whether differences to the last value are taken
    season: int  # whether differences to the value this number of steps ago are taken; 0: no
    lags: tuple[int, ...]  # lags of the inputs; without lags the base is the forecast
    hidden: int  # hidden neurons

    @property
    def name(self) -> str:
        parts = ["log"] * self.log + ["last"] * self.first + ["season"] * bool(self.season)
        kind = "" if not self.lags else ("net" if self.hidden else "linear")
        return " ".join([*parts, kind] if kind else parts)


def views(season: int, lags: int, hidden: int) -> list[ExpertView]:
    """Return the views of all experts; the first one is the naive forecast."""
    around = {season - 1, season, season + 1} - {0} if season else set()
    few = tuple(sorted({*range(1, min(lags, 4) + 1)} | around))
    many = tuple(sorted({*range(1, lags + 1)} | around))
    found = [ExpertView(False, True, 0, (), 0)]
    if season:
        found.append(ExpertView(False, False, season, (), 0))
    for log in (False, True):
        for first in (False, True):
            for over in (0, season)[: 1 + bool(season)]:
                found.append(ExpertView(log, first, over, few, 0))
                if hidden:
                    found.append(ExpertView(log, first, over, many, hidden))
    return found


class Expert:
    """A network that forecasts the next value of a series.

    `number` is the index of its view among those of the forecaster. Paths may start up to `horizon` values before the
    last one.
    """

    def __init__(self, number: int, view: ExpertView, seed: int, settings: dict[str, Any], horizon: int) -> None:
        self.number, self.view = number, view
        self.lags: IntArray = np.array(view.lags, dtype=np.int64)
        reach = view.season + view.first  # number of values that the base depends on
        self.depth = max(reach, max(view.lags, default=1)) + 1
        self.w, self.errors = Tail(self.depth + horizon), Tail(TUNING.errors)
        self.mesh: Mesh | None = None
        self.stream: Stream | None = None
        if view.lags:
            t, rng = _topology(len(view.lags), view.hidden), np.random.default_rng(seed + number)
            self.mesh = Mesh(t, 2 if t.n_hidden else 1, "tanh", dtype="float64", random_state=0)
            weights = rng.standard_normal(t.n_edges) * TUNING.lag_weight / math.sqrt(t.n_clamped)
            weights[t.dst == t.n_neurons - 1] = 0.0  # the first forecasts are the base plus the mean of w
            self.mesh.weights = weights
            # networks with hidden neurons benefit from more replays
            default = {"replays": 500} if view.hidden else {"p0": 0.3, "replays": 200}
            settings = {"most": 3e-4, **default, **settings}
            self.stream = self.mesh.stream("squared_error", "ekf", memory="none", scale=True, **settings)
            self._row = np.full((1, 1, t.n_inputs), np.nan)

    def widen(self, features: int) -> None:
        """Add inputs up to the given total number of features."""
        if self.mesh is not None and self.stream is not None:
            new = len(self.lags) + features - self.mesh.topology.n_inputs
            if new > 0:
                self.mesh.grow_stream(self.stream, new)
                self._row = np.full((1, 1, self.mesh.topology.n_inputs), np.nan)

    # -- one step ----------------------------------------------------------------------------------------------------

    def base(self, z: Any) -> Any:
        """Return the base of the next value; `z(k)` is the value k steps ago. NaN if it is not known yet."""
        season, first = self.view.season, self.view.first
        if season:
            return z(season) + z(1) - z(season + 1) if first else z(season)
        return z(1) if first else 0.0

    def change(self, x: Array) -> Array:
        """Return the last row of features, transformed like the series: its base is subtracted."""
        return np.asarray(x[-1] - self.base(lambda k: x[-1 - k]))

    def learn(self, z: Tail, value: float, features: Array | None, learns: bool) -> float:
        """Append the next z, learn it if `learns`, and return its forecast; NaN if there was none."""
        base = self.base(z.back)
        w, expected = value - base, base
        if self.stream is not None:
            row = self._fill(self.w.back(self.lags), features)
            expected = base + float(self.stream.peek_rows(row)[0, 0])
            if learns and w == w:
                self.stream.learn_row(row, w)
        self.w.append(w)
        if learns:
            self.errors.append(value - expected)
        return float(expected)

    def _fill(self, w: Array, features: Array | None) -> Array:
        row: Array = self._row
        row[0, 0, : len(w)] = w
        if features is not None:
            row[0, 0, len(w) :] = self.change(features)
        return row

    # -- many steps --------------------------------------------------------------------------------------------------

    def path(self, z: Tail, horizon: int, bounds: Bounds, features: Array | None, ago: int = 0) -> Array:
        """Return the next z `(horizon,)`, where forecasts are fed back; NaN if the base is not known yet.

        `features` are the past rows that the base depends on, followed by those of the forecast steps. With `ago` the
        path starts that number of values before the last one.
        """
        stream, (low, high) = self.stream, bounds

        def step(base: Any, w: Array, seen: Array | None, k: int) -> Any:
            value = base if stream is None else base + float(stream.peek_rows(self._fill(w, seen))[0, 0])
            return min(max(value, low[k]), high[k]) if value == value else value

        past = [tail.last(self.depth + ago)[: self.depth] for tail in (z, self.w)]
        return self.follow(past, horizon, features, step)

    def follow(self, past: list[Array], horizon: int, features: Array | None, step: Any) -> Array:
        """Return the next z `(horizon, ...)` of one or several parallel paths, given past z and w `(depth, ...)`.

        `step` returns the next value, given its base, the lagged w, the rows of features and the number of the step.
        """
        depth, before = self.depth, 0 if features is None else len(features) - horizon
        zs, ws = (np.concatenate([seen, np.empty((horizon, *seen.shape[1:]))]) for seen in past)
        for k in range(depth, depth + horizon):
            base = self.base(lambda steps, k=k: zs[k - steps])
            seen = None if features is None else features[: before + k - depth + 1]
            zs[k] = step(base, ws[k - self.lags], seen, k - depth)
            ws[k] = zs[k] - base
        return zs[depth:]

    def values(self, z: Any) -> Any:
        """Transform z back to the units of the series."""
        with np.errstate(over="ignore"):
            return np.minimum(np.exp(z), TUNING.largest) if self.view.log else z

    # -- files -------------------------------------------------------------------------------------------------------

    def to_tree(self) -> Tree:
        stream = None if self.stream is None else self.stream.to_tree()
        return {"number": self.number, "w": self.w.kept.copy(), "errors": self.errors.kept.copy(), "stream": stream}

    def restore(self, tree: Tree) -> None:
        """Load the state of an expert with the same view and features from a tree, which is not trusted."""
        fill_arrays({"w": self.w.kept, "errors": self.errors.kept}, {k: tree[k] for k in ("w", "errors")}, gaps=True)
        if self.stream is not None:
            self.stream.restore(tree["stream"])


def _topology(d: int, hidden: int) -> Topology:
    """Return a hidden layer between inputs and output, with direct edges from the inputs to the output."""
    check_fits(32.0 * (d + 1) * (hidden + 1), "the edges of a forecaster", "use fewer hidden neurons or lags")
    inner = np.indices((d + 1, hidden)).reshape(2, -1).T + np.array([0, d + 1])
    outer = np.stack([np.arange(d + 1 + hidden), np.full(d + 1 + hidden, d + 1 + hidden)], axis=1)
    return Topology(d, hidden, 1, np.concatenate([inner, outer]))


def season_search_due(count: int) -> bool:
    """Return whether to search for a season after this number of values.

    >>> [n for n in range(400) if season_search_due(n)]
    [24, 36, 48, 72, 96, 144, 192, 288, 384]
    """
    times = 24, 36  # and these times 2, 4, 8, ...
    return count <= TUNING.kept and any(count % k == 0 and (count // k).bit_count() == 1 for k in times)


def find_season(y: Array) -> int | None:
    """Return the first high peak of the autocorrelation of the differences, or None; y must cover 2.5 seasons.

    >>> import numpy as np
    >>> t = np.arange(60)
    >>> find_season(0.3 * t + np.sin(2 * np.pi * t / 12)), find_season(0.3 * t)
    (12, None)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.diff(y)
        change -= np.median(change)
        wide = 5.0 * np.median(np.abs(change))
        if wide > 0:  # limit the effect of outliers
            change = np.clip(change, -wide, wide)
        change -= change.mean()
        scale = np.abs(change).max(initial=0.0)
    n = len(change)
    most = int(n / 2.5)
    if most < 3 or not 0 < scale < np.inf or scale <= 1e-9 * np.abs(y).max():
        return None
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(change / scale, size)) ** 2
    products = np.fft.irfft(power, size)[: most + 2]
    r = products / products[0]
    inner = r[2:-1]
    least = max(0.25, 2.2 / np.sqrt(n))  # 2.2 standard errors of white noise
    peaks = 2 + np.flatnonzero((inner > r[1:-2]) & (inner >= r[3:]) & (inner > least))
    if not peaks.size:
        return None
    # multiples of a season have peaks as well, so take the shortest one that is almost as high as the highest
    return int(peaks[r[peaks] >= 0.85 * r[peaks].max()][0])
