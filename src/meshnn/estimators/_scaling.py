"""`Scaling`: features (and the targets of regression) brought to mean 0 and variance 1, learned with the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.losses import Loss
from meshnn.losses.moments import is_constant, mean_and_spread
from meshnn.memory import check_fits

__all__ = ["Scaling", "check_written_out", "is_sparse", "row_blocks"]

#: Numbers of a sparse matrix that are written out at a time: bounds the memory that this adds.
BLOCK = 2**21


def is_sparse(X: Any) -> bool:
    """Whether it is a matrix of scipy.sparse; asks nothing of scipy, which takes long to import."""
    return hasattr(X, "tocsr")


def check_written_out(X: Any, dtype: Any = np.float32) -> None:
    """Refuse a sparse matrix that would not fit in memory."""
    if is_sparse(X):
        what = f"a sparse X of {X.shape[0]:,} x {X.shape[1]:,}, written out,"
        advice = "take fewer samples at a time (partial_fit), or fewer features"
        check_fits(float(np.dtype(dtype).itemsize) * X.shape[0] * X.shape[1], what, advice)


def row_blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Rows in blocks of about `BLOCK` numbers."""
    step = max(1, BLOCK // max(width, 1))
    return (slice(begin, begin + step) for begin in range(0, n_rows, step))


@dataclass(frozen=True)
class Scaling:
    """What to subtract and to divide by."""

    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array
    #: Columns that have not varied so far, whose scale is 1 for want of another; None if that is not known.
    x_constant: Array | None = None
    y_constant: Array | None = None

    @classmethod
    def learn(cls, X: Any, targets: Array, weight: Array | None, wanted: bool, loss: Loss) -> Scaling:
        """From training samples; nothing is scaled unless `wanted`, and targets as their loss has it."""
        n_outputs = targets.shape[1] if targets.ndim == 2 else 1
        if not wanted:
            return cls(np.zeros(X.shape[1]), np.ones(X.shape[1]), np.zeros(n_outputs), np.ones(n_outputs))
        mean, spread = _moments(X, weight)
        y_mean, y_scale = loss.scaling(targets, weight)
        y_constant = mean_and_spread(targets, weight)[1] == 0.0 if loss.by_moments else None
        return cls(mean, np.where(spread == 0.0, 1.0, spread), y_mean, y_scale, spread == 0.0, y_constant)

    def joined(self, more: Scaling, share: float) -> Scaling:
        """That of all samples, if others are a share of them; of targets, if it is known which were constant."""
        x = _joined(self.x_mean, self.x_scale, self.x_constant, more.x_mean, more.x_scale, more.x_constant, share)
        y = _joined(self.y_mean, self.y_scale, self.y_constant, more.y_mean, more.y_scale, more.y_constant, share)
        return Scaling(x[0], x[1], y[0], y[1], x[2], y[2])

    def inputs(self, X: Any, dtype: Any = np.float64) -> Array:
        """Features as the net sees them; those of a sparse matrix are written out, in the dtype that is asked for."""
        if not is_sparse(X):
            return _scaled(X, self.x_mean, self.x_scale)
        check_written_out(X, dtype)
        found = np.empty(X.shape, dtype)
        for part in row_blocks(*X.shape):
            with np.errstate(over="ignore"):  # refused by name
                found[part] = _scaled(X[part].toarray(), self.x_mean, self.x_scale)
        return found

    def targets(self, targets: Array) -> Array:
        """Targets as the net is to give them; labels as they are."""
        return targets if targets.ndim == 1 else _scaled(targets, self.y_mean, self.y_scale)

    def values(self, outputs: Array) -> Array:
        """Outputs of the net in the units of the targets."""
        return outputs * self.y_scale + self.y_mean


def _joined(
    mean: Array,
    scale: Array,
    constant: Array | None,
    mean2: Array,
    scale2: Array,
    constant2: Array | None,
    share: float,
) -> tuple[Array, Array, Array | None]:
    """Mean and scale of a mixture of two; squares overflow early, so there are none."""
    if constant is None or constant2 is None:
        return mean, scale, constant
    rest = 1.0 - share
    between = math.sqrt(share * rest)
    joined = rest * mean + share * mean2
    spread, spread2 = math.sqrt(rest) * np.where(constant, 0, scale), math.sqrt(share) * np.where(constant2, 0, scale2)
    with np.errstate(over="ignore"):
        found = np.hypot(np.hypot(spread, spread2), between * mean2 - between * mean)
    none = is_constant(joined, found)
    return joined, np.where(none, 1.0, found), none


def _moments(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Mean and spread, which is 0 where a column is constant."""
    if not is_sparse(X):
        return mean_and_spread(X, weight)
    columns = X.tocsc()
    found = [mean_and_spread(columns[:, part].toarray(), weight) for part in row_blocks(X.shape[1], X.shape[0])]
    return np.concatenate([mean for mean, _ in found]), np.concatenate([scale for _, scale in found])


def _scaled(values: Array, mean: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is refused by name
        found = (values - mean) / scale
        # the difference of two numbers near the end of the range may be infinite, though their quotients are not
        return np.where(np.isfinite(found), found, values / scale - mean / scale)
