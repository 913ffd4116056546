"""One way to see a series: as it is or its logarithm, its values or their differences, by a net that learns online.

z   the series, or its logarithm          w = z - base      what the net learns, from w of some steps before
base   0, the last value, that of a season ago, or that plus the last change over a season
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

__all__ = ["Expert", "ExpertView", "Tail", "find_season", "is_time_to_look", "views"]


class Tail:
    """The last values of what is appended to, NaN before the first; so many at least."""

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
        """The last `count`, at most `keep`, oldest first: a view."""
        return self._rows[self._end - count : self._end]

    def back(self, steps: Any) -> Any:
        """Return the value that lies a number of steps back, 1 being the last one, or an array for several numbers."""
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
        """All that is kept: a view."""
        return self.last(self.keep)


class ExpertView(NamedTuple):
    """The inputs of an expert."""

    log: bool  # the logarithm
    first: bool  # differences to the last value
    season: int  # differences to that of a season ago; 0: none
    lags: tuple[int, ...]  # steps back of what it learns from; none: the base is the forecast
    hidden: int

    @property
    def name(self) -> str:
        parts = ["log"] * self.log + ["last"] * self.first + ["season"] * bool(self.season)
        kind = "" if not self.lags else ("net" if self.hidden else "linear")
        return " ".join([*parts, kind] if kind else parts)


def views(season: int, lags: int, hidden: int) -> list[ExpertView]:
    """All that are tried; the first is the naive forecast."""
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
    """A net that forecasts one step of a series from what it saw. Paths may begin `horizon` values before the last one.

    `number` says which of the views of a forecaster it has.
    """

    def __init__(self, number: int, view: ExpertView, seed: int, settings: dict[str, Any], horizon: int) -> None:
        self.number, self.view = number, view
        self.lags: IntArray = np.array(view.lags, dtype=np.int64)
        reach = view.season + view.first  # values that the base needs
        self.depth = max(reach, max(view.lags, default=1)) + 1
        self.w, self.errors = Tail(self.depth + horizon), Tail(TUNING.errors)
        self.mesh: Mesh | None = None
        self.stream: Stream | None = None
        if view.lags:
            t, rng = _topology(len(view.lags), view.hidden), np.random.default_rng(seed + number)
            self.mesh = Mesh(t, 2 if t.n_hidden else 1, "tanh", dtype="float64", random_state=0)
            weights = rng.standard_normal(t.n_edges) * TUNING.lag_weight / math.sqrt(t.n_clamped)
            weights[t.dst == t.n_neurons - 1] = 0.0  # it begins with its base and the mean
            self.mesh.weights = weights
            # nets with hidden neurons look back for more samples
            default = {"replays": 500} if view.hidden else {"p0": 0.3, "replays": 200}
            settings = {"most": 3e-4, **default, **settings}
            self.stream = self.mesh.stream("squared_error", "ekf", memory="none", scale=True, **settings)
            self._row = np.full((1, 1, t.n_inputs), np.nan)

    def widen(self, features: int) -> None:
        """Inputs for so many features in all."""
        if self.mesh is not None and self.stream is not None:
            new = len(self.lags) + features - self.mesh.topology.n_inputs
            if new > 0:
                self.mesh.grow_stream(self.stream, new)
                self._row = np.full((1, 1, self.mesh.topology.n_inputs), np.nan)

    # -- one step ----------------------------------------------------------------------------------------------------

    def base(self, z: Any) -> Any:
        """Of the next value, from `z(k)`, which is that of k steps ago; NaN if it is not known yet."""
        season, first = self.view.season, self.view.first
        if season:
            return z(season) + z(1) - z(season + 1) if first else z(season)
        return z(1) if first else 0.0

    def change(self, x: Array) -> Array:
        """Features as the series is seen: the last of their rows, less those of the base."""
        return np.asarray(x[-1] - self.base(lambda k: x[-1 - k]))

    def learn(self, z: Tail, value: float, features: Array | None, learns: bool) -> float:
        """Take the next z in; what it was forecast to be, NaN if it could not be. Missing values are not learned."""
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

    def path(self, z: Tail, horizon: int, bounds: tuple[float, float], features: Array | None, ago: int = 0) -> Array:
        """Return the next z `(horizon,)`, each from those before; NaN if the base is not known yet.

        `features` are rows of the past, at least those that the base needs, and of the steps to come. With `ago` the
        path begins that many values before the last one.
        """
        stream, (low, high) = self.stream, bounds

        def step(base: Any, w: Array, seen: Array | None, k: int) -> Any:
            value = base if stream is None else base + float(stream.peek_rows(self._fill(w, seen))[0, 0])
            return min(max(value, low), high) if value == value else value

        past = [tail.last(self.depth + ago)[: self.depth] for tail in (z, self.w)]
        return self.follow(past, horizon, features, step)

    def follow(self, past: list[Array], horizon: int, features: Array | None, step: Any) -> Array:
        """Return the next z `(horizon, ...)` after past z and w `(depth, ...)`, of one path or many beside each other.

        `step` gives the next value from its base, the w that the net looks at, rows of features and its number.
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
        """In the units of the series."""
        with np.errstate(over="ignore"):
            return np.minimum(np.exp(z), TUNING.largest) if self.view.log else z

    # -- files -------------------------------------------------------------------------------------------------------

    def to_tree(self) -> Tree:
        stream = None if self.stream is None else self.stream.to_tree()
        return {"number": self.number, "w": self.w.kept.copy(), "errors": self.errors.kept.copy(), "stream": stream}

    def restore(self, tree: Tree) -> None:
        """Go on where an expert of the same view and features was, as a tree says that may come from anywhere."""
        fill_arrays({"w": self.w.kept, "errors": self.errors.kept}, {k: tree[k] for k in ("w", "errors")}, gaps=True)
        if self.stream is not None:
            self.stream.restore(tree["stream"])


def _topology(d: int, hidden: int) -> Topology:
    """Inputs and bias to hidden neurons and to the output, hidden neurons to the output."""
    check_fits(32.0 * (d + 1) * (hidden + 1), "the edges of a forecaster", "take fewer hidden neurons or lags")
    inner = np.indices((d + 1, hidden)).reshape(2, -1).T + np.array([0, d + 1])
    outer = np.stack([np.arange(d + 1 + hidden), np.full(d + 1 + hidden, d + 1 + hidden)], axis=1)
    return Topology(d, hidden, 1, np.concatenate([inner, outer]))


def is_time_to_look(count: int) -> bool:
    """Whether a season should be looked for after this number of values.

    >>> [n for n in range(400) if is_time_to_look(n)]
    [24, 36, 48, 72, 96, 144, 192, 288, 384]
    """
    times = 24, 36  # and twice, four times, ... as many
    return count <= TUNING.kept and any(count % k == 0 and (count // k).bit_count() == 1 for k in times)


def find_season(y: Array) -> int | None:
    """Return the first high peak of the autocorrelation of the changes, or None; 2.5 seasons must have been seen.

    >>> import numpy as np
    >>> t = np.arange(60)
    >>> find_season(0.3 * t + np.sin(2 * np.pi * t / 12)), find_season(0.3 * t)
    (12, None)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.diff(y)
        change -= np.median(change)
        wide = 5.0 * np.median(np.abs(change))
        if wide > 0:  # a few wild changes say nothing about the others
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
    least = max(0.25, 2.2 / np.sqrt(n))  # some standard errors of white noise
    peaks = 2 + np.flatnonzero((inner > r[1:-2]) & (inner >= r[3:]) & (inner > least))
    if not peaks.size:
        return None
    # multiples of a season have peaks, too: the shortest that is almost as high as the highest
    return int(peaks[r[peaks] >= 0.85 * r[peaks].max()][0])
