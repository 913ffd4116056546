"""Weights of the experts of a forecaster, from their recent errors at each number of steps ahead.

The forecasts of all experts are recorded at intervals. When the values arrive, the absolute errors are added to
exponentially decaying sums. The forecast h steps ahead is the mean of the experts, weighted by a power of the inverse
of their mean errors h steps ahead.
"""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.online._tuning import TUNING
from meshnn.storage import Tree
from meshnn.streaming.state import fill_arrays

__all__ = ["Judge"]


class Judge:
    """Errors of the experts per step ahead.

    Attributes
    ----------
    total, count : arrays (experts, horizon)
        Decaying sums of the absolute errors, and of ones.
    apart, cases : arrays (horizon,)
        The same sums for the weighted mean of the experts.
    ages : array (origins,)
        Number of values since each recorded forecast was made.
    pending : array (origins, experts + 1, horizon)
        The recorded forecasts; the last row of each is the weighted mean.
    """

    def __init__(self, experts: int, horizon: int) -> None:
        self.total, self.count = np.zeros((experts, horizon)), np.zeros((experts, horizon))
        self.apart, self.cases = np.zeros(horizon), np.zeros(horizon)
        self.ages: IntArray = np.zeros(0, dtype=np.int64)
        self.pending = np.zeros((0, experts + 1, horizon))

    @property
    def horizon(self) -> int:
        return self.total.shape[1]

    def update(self, value: float, expected: Array, seen: int) -> None:
        """Add the errors for a new value, given the one-step forecasts of the experts (NaN: no forecast)."""
        half = min(max(TUNING.fade_share * seen, TUNING.fade_shortest), TUNING.fade_longest)
        slow = 0.5 ** (1.0 / half)
        fast = 0.5 ** (1.0 / max(TUNING.fade_faster * half, TUNING.fade_shortest))
        for sums, fading in ((self.total, slow), (self.count, slow), (self.apart, fast), (self.cases, fast)):
            sums *= fading
        self.ages += 1
        together = mean_of(self.weights(seen)[:, :1], expected[:, None])
        now = np.append(expected, together)
        then = self.pending[np.arange(len(self.ages)), :, self.ages - 1]
        later = self.ages > 1
        self._add(np.append(0, self.ages[later] - 1), value, np.concatenate([now[None], then[later]]))
        keep = self.ages < self.horizon
        if not keep.all():
            self.ages, self.pending = self.ages[keep], self.pending[keep]

    def _add(self, h: IntArray, value: float, expected: Array) -> None:
        """Add the errors of forecasts `(len(h), experts + 1)` made h + 1 steps ahead."""
        errors = np.abs(expected - value).T
        good = np.isfinite(errors)
        errors = np.where(good, errors, 0.0)
        self.total[:, h] += errors[:-1]
        self.count[:, h] += good[:-1]
        self.apart[h] += errors[-1]
        self.cases[h] += good[-1]

    def note(self, forecasts: Array, seen: int) -> None:
        """Record forecasts `(experts, horizon)`."""
        together = mean_of(self.weights(seen), forecasts)
        self.pending = np.concatenate([self.pending, np.concatenate([forecasts, together[None]])[None]])
        self.ages = np.append(self.ages, 0)

    def fill(self, h: int, forecasts: Array, seen: int) -> None:
        """Record the forecasts `(experts,)` for step h + 1 of the only pending origin."""
        together = mean_of(self.weights(seen)[:, h : h + 1], forecasts[:, None])
        self.pending[0, :, h] = np.append(forecasts, together)

    def weights(self, seen: int) -> Array:
        """Return the weight of each expert per step ahead `(experts, horizon)`; 0 for experts without errors so far."""
        known = self.count[:, 0] > 0
        power = min(max(seen / TUNING.values_per_power, TUNING.mild), TUNING.strict)
        W = np.zeros_like(self.total)
        if not known.any():
            W[0] = 1.0  # the naive forecast
            return W
        before, borrowed = np.zeros(int(known.sum())), 0.0
        total, count = self.total[known], self.count[known]
        for h in range(self.horizon):
            mean = (total[:, h] + borrowed * before) / (count[:, h] + borrowed)
            rounding = 1e-12 * mean.max() + 1e-300
            share = ((mean.min() + rounding) / (mean + rounding)) ** power
            W[known, h] = share / share.sum()
            before, borrowed = mean, TUNING.borrowed
        return W

    def keep(self, which: IntArray) -> None:
        """Drop all other experts."""
        self.total, self.count = self.total[which], self.count[which]
        self.pending = self.pending[:, np.append(which, self.pending.shape[1] - 1)]

    def to_tree(self) -> Tree:
        return {name: array.copy() for name, array in vars(self).items()}

    def restore(self, tree: Tree) -> None:
        """Load the errors from a tree, which is not trusted; the number of experts and steps must agree."""
        noted, (experts, horizon) = len(tree["ages"]), self.total.shape
        self.ages, self.pending = np.zeros(noted, np.int64), np.zeros((noted, experts + 1, horizon))
        limits = dict.fromkeys(("total", "count", "apart", "cases"), (0.0, np.finfo(float).max))
        fill_arrays(vars(self), tree, limits | {"ages": (0, horizon - 1)})


def mean_of(weights: Array, values: Array) -> Array:
    """Return the weighted mean of each column without its NaN; NaN for columns without numbers."""
    weights = np.where(np.isfinite(values), weights, 0.0)
    total = weights.sum(axis=0)
    sums = (weights * np.where(weights > 0, values, 0.0)).sum(axis=0)
    return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)
