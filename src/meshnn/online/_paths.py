"""Random paths of a series, from which the quantiles of forecasts are computed.

Each path has its own parameters, drawn from the posterior of the filter with covariance P. The network is linearised,
so outputs change by H dtheta. At every step an error is added, drawn from the past one-step errors and scaled to the
noise level estimated by the filter. Values are fed back, so errors accumulate over the steps.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.codes import StreamNumbers
from meshnn.online._experts import Bounds, Expert, Tail
from meshnn.online._judge import Judge
from meshnn.online._tuning import TUNING
from meshnn.streaming.state import mean_and_scale, standardised

__all__ = ["draw_all", "draw_paths", "quantiles", "quantiles_of_one", "weighted_quantiles"]


class _Net:
    """The network of an expert in NumPy, for many paths with different parameters at once."""

    def __init__(self, expert: Expert, count: int, rng: np.random.Generator) -> None:
        mesh: Any = expert.mesh
        stream: Any = expert.stream
        t, learner = mesh.topology, stream.learner
        self.c, n = t.n_clamped, t.n_neurons
        self.A = np.zeros((n, n))
        self.A[t.src, t.dst] = mesh.weights
        P = learner.covariance()
        D = np.zeros((count, n, n))
        D[:, t.src, t.dst] = rng.standard_normal((count, len(P))) @ _root(P).T
        c = self.c
        self.d_direct, self.d_read = D[:, :c, -1].copy(), D[:, c:-1, -1].copy()
        self.d_hidden = D[:, :c, c:-1].copy()
        self.x_mean, self.x_scale = mean_and_scale(stream.room.x_moments)
        y_mean, y_scale = mean_and_scale(stream.room.y_moments)
        self.y_mean, self.y_scale = float(y_mean[0]), float(y_scale[0])
        self.noise = float(np.sqrt(learner.noise[0])) * self.y_scale

    def __call__(self, rows: Array) -> Array:
        """Return outputs `(count,)` for rows `(count, n_inputs)`."""
        c, A = self.c, self.A
        x = standardised(rows, self.x_mean, self.x_scale, StreamNumbers.INPUT_CUT)
        x = np.concatenate([x, np.ones((len(rows), 1))], axis=1)
        a = np.tanh(x @ A[:c, c:-1])
        out = x @ A[:c, -1] + a @ A[c:-1, -1]
        slope = (1.0 - a * a) * A[c:-1, -1]
        change = (x * self.d_direct).sum(axis=1)
        if slope.shape[1]:
            change += (a * self.d_read).sum(axis=1) + ((x[:, None] @ self.d_hidden)[:, 0] * slope).sum(axis=1)
        return np.asarray(self.y_mean + (out + change) * self.y_scale)


def _root(P: Array) -> Array:
    """Return R with R R' = P, where P may be slightly indefinite because of rounding."""
    try:
        return np.linalg.cholesky(P + 1e-10 * np.trace(P) / len(P) * np.eye(len(P)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(P)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def draw_paths(
    expert: Expert, z: Tail, horizon: int, bounds: Bounds, features: Array | None, count: int,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Draw paths `(count, horizon)` of an expert, in the units of the series; a shorter horizon has the same steps."""
    low, high = bounds
    errors = expert.errors.last(expert.errors.keep)
    errors = errors[np.isfinite(errors)]
    errors = np.concatenate([errors, -errors]) if len(errors) else np.zeros(1)
    net = None if expert.mesh is None else _Net(expert, count, rng)
    if net is not None and np.isfinite(net.noise):
        size = float(np.sqrt(np.mean(np.square(errors))))
        errors = errors * (net.noise / size) if size > 0 else errors
    drawn = rng.choice(errors, (horizon, count))

    def step(base: Any, w: Array, features: Array | None, k: int) -> Array:
        value = base + drawn[k]
        if net is not None:
            rows = np.ascontiguousarray(w.T)
            if features is not None:
                seen = expert.change(features)
                rows = np.concatenate([rows, np.broadcast_to(seen, (count, len(seen)))], axis=1)
            value = value + net(rows)
        return np.asarray(np.clip(value, low[k], high[k]))

    past = [np.repeat(tail.last(expert.depth)[:, None], count, axis=1) for tail in (z, expert.w)]
    return np.ascontiguousarray(expert.values(expert.follow(past, horizon, features, step)).T)


def draw_all(
    experts: list[Expert], seen: list[tuple[Tail, Bounds]], weights: Array, features: Array | None,
    seed: tuple[int, int],
) -> tuple[Array, Array]:  # fmt: skip
    """Draw paths `(n, horizon)` of experts; also return the weight of each path per step."""
    horizon = weights.shape[1]
    drawn, shares = [np.empty((0, horizon))], [np.empty((0, horizon))]
    for expert, (z, bounds), w in zip(experts, seen, weights, strict=True):
        rng = np.random.default_rng([*seed, expert.number])
        paths = draw_paths(expert, z, horizon, bounds, features, TUNING.paths, rng)
        if np.isfinite(paths).all():
            drawn.append(paths)
            shares.append(np.repeat(w[None], TUNING.paths, axis=0))
    counts = np.concatenate(shares)
    return np.concatenate(drawn), counts / np.maximum(counts.sum(axis=0), 1e-300)


def quantiles(paths: Array, shares: Array, middle: Array, levels: Array, judge: Judge) -> Array:
    """Return quantiles `(horizon, levels)` around the forecast; their spread combines paths and recent errors."""
    if not len(paths):
        return np.repeat(middle[:, None], len(levels), axis=1)
    factors = _factors(np.sqrt((shares * (paths - middle) ** 2).sum(axis=0)), judge)
    rows = [weighted_quantiles(v, s, levels) for v, s in zip(paths.T, shares.T, strict=True)]
    found = middle[:, None] + factors[:, None] * (np.array(rows) - middle[:, None])
    return np.asarray(np.clip(found, -TUNING.largest, TUNING.largest))


def quantiles_of_one(value: float, count: int, horizon: int, levels: Array) -> Array:
    """Return quantiles `(horizon, levels)` after n equal values: the next one differs with probability 1 / n.

    >>> quantiles_of_one(10.0, 1, 2, np.array([0.05, 0.5, 0.95])).round(1).tolist()
    [[-6.4, 10.0, 26.4], [-13.3, 10.0, 33.3]]
    >>> quantiles_of_one(10.0, 10, 1, np.array([0.05, 0.5, 0.95])).tolist()
    [[10.0, 10.0, 10.0]]
    """
    tail = np.minimum(levels, 1.0 - levels) * count  # as a share of the values that differ, half of them on each side
    size = [NormalDist().inv_cdf(1.0 - share) if share < 0.5 else 0.0 for share in tail.tolist()]
    away = np.where(levels < 0.5, -1.0, 1.0) * np.array(size) * (abs(value) or 1.0)
    found = value + np.sqrt(np.arange(1.0, horizon + 1))[:, None] * away
    return np.asarray(np.clip(found, -TUNING.largest, TUNING.largest))


def _factors(spread: Array, judge: Judge) -> Array:
    """Return the factors `(horizon,)` for the spread of the paths; steps beyond the horizon use the last factor."""
    n = min(len(spread), judge.horizon)
    cases = judge.cases[:n] / np.arange(1, n + 1)  # errors of overlapping forecasts are correlated
    # variances from mean absolute errors, assuming normality: squared errors depend too much on a few outliers
    made = np.pi / 2 * np.square(judge.apart[:n] / np.maximum(judge.cases[:n], 1e-300))
    ratio = np.minimum(made / np.maximum(spread[:n] ** 2, 1e-300), TUNING.furthest)
    found = np.sqrt((cases * ratio + TUNING.trust) / (cases + TUNING.trust))
    return np.append(found, np.repeat(found[-1], len(spread) - n))


def weighted_quantiles(values: Array, weights: Array, levels: Array) -> Array:
    """Return weighted quantiles `(levels,)` of values.

    >>> weighted_quantiles(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0]), np.array([0.5]))
    array([2.33333333])
    """
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    middle = np.cumsum(weights) - 0.5 * weights
    return np.asarray(np.interp(np.asarray(levels) * weights.sum(), middle, values))
