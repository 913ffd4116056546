"""`Embedding`: piecewise-linear features of numeric columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray

#: Maximum number of inputs with ramps: more would take the time that the neurons need.
WIDEST = 500
#: Minimum width of a ramp relative to its distance from 0, so that a net in float32 computes it to 0.1 %.
NARROWEST = 1e-3


def ramps_of(n_samples: int, n_columns: int) -> int:
    """Return the default number of ramps per column: 6, and more for more than 5,000 samples and few columns."""
    return max(6, min(round(6 * (n_samples / 5_000) ** (2 / 3)), WIDEST // n_columns - 1))


@dataclass(frozen=True)
class Embedding:
    """Ramps between quantiles of each column, as further inputs of a net.

    A ramp is 0 up to one quantile and 1 from the next one. Linear functions of ramps are continuous, piecewise linear
    and constant in the tails, so steps and thresholds need few neurons. Ramps have the mean 0 and the variance 1.
    """

    n_columns: int
    column: IntArray  # (n_ramps,)
    begin: FloatArray  # (n_ramps,) the quantile at which a ramp begins to rise
    end: FloatArray
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def learn(cls, X: Array, count: int) -> Embedding | None:
        """Return at most `count` ramps per column of the training inputs, or None if no column has any.

        Columns with two values have none, and tables with many columns have fewer ramps, or none.
        """
        several = [k for k, values in enumerate(X.T) if len(np.unique(values)) > 2] if X.shape[1] < WIDEST else []
        if several:
            count = min(count, (WIDEST - X.shape[1]) // len(several))
        found = []
        for k in several if count > 1 else ():
            values, steps = X[:, k].astype(np.float64), np.linspace(0, 1, count + 1)
            at = _apart(np.quantile(values, steps))
            at = at if len(at) > 3 else _apart(np.quantile(np.unique(values), steps))  # most values are equal
            found += [(k, low, high) for low, high in pairwise(at)]
        if not found:
            return None
        column, begin, end = (np.array(each) for each in zip(*found, strict=True))
        raw = cls(X.shape[1], column, begin, end, np.zeros(len(column)), np.ones(len(column)))
        ramps = raw._ramps(X.astype(np.float64))
        return cls(X.shape[1], column, begin, end, ramps.mean(axis=0), np.maximum(ramps.std(axis=0), 1e-3))

    @property
    def width(self) -> int:
        """Number of inputs of a net behind the embedding: columns and ramps."""
        return self.n_columns + len(self.column)

    def _ramps(self, X: Array) -> Array:
        return np.clip((X[:, self.column] - self.begin) / (self.end - self.begin), 0.0, 1.0)

    def inputs(self, X: Array) -> Array:
        """Return the inputs of a net behind the embedding."""
        return np.concatenate((X, ((self._ramps(X) - self.mean) / self.scale).astype(X.dtype)), axis=1)


def _apart(at: FloatArray) -> FloatArray:
    """Return ascending quantiles without those that are too close to the one before."""
    kept = [float(at[0])]
    for value in at[1:].tolist():
        if value - kept[-1] > max(NARROWEST * max(abs(value), abs(kept[-1])), 1e-30):
            kept.append(value)
    return np.array(kept)
