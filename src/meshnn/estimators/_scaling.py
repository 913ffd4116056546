"""`Scaling`: features (and the targets of regression) brought to mean 0 and variance 1, learned with the weights.

Where the outputs have an activation with bounds, targets are brought to where it can reach them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.checks import all_finite
from meshnn.codes import ACTIVATIONS, RANGES
from meshnn.errors import DataError, MeshError
from meshnn.losses import Loss
from meshnn.losses.moments import is_constant, mean_and_spread
from meshnn.memory import check_fits

__all__ = ["Scaling", "check_activation", "check_written_out", "is_sparse", "moments", "row_blocks"]

#: Between bounds, targets fill all but this share at either end.
MARGIN = 0.1
#: Targets between the bounds stay as they are if their standard deviation is at least this share of the distance.
WIDE = 0.05
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
    def learn(
        cls, X: Any, targets: Array, weight: Array | None, wanted: bool, loss: Loss, activation: str = "identity"
    ) -> Scaling:
        """From training samples; nothing is scaled unless `wanted`, and targets as loss and activation have it."""
        n_outputs = targets.shape[1] if targets.ndim == 2 else 1
        x_mean, x_scale, x_constant = np.zeros(X.shape[1]), np.ones(X.shape[1]), None
        y, y_constant = (np.zeros(n_outputs), np.ones(n_outputs)), None
        if wanted:
            x_mean, spread = moments(X, weight)
            x_constant = spread == 0.0
            x_scale = np.where(x_constant, 1.0, spread)
            y = loss.scaling(targets, weight)
            y_constant = mean_and_spread(targets, weight)[1] == 0.0 if loss.by_moments else None
        if activation in RANGES and not loss.classifies:
            y = _within_reach(activation, targets if weight is None else targets[weight > 0], y, wanted)
            y_constant = None  # no moments: other samples do not move it
        return cls(x_mean, x_scale, y[0], y[1], x_constant, y_constant)

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


def check_activation(activation: str, loss: Loss, n_outputs: int) -> None:
    """Refuse an activation that keeps the outputs from being what the loss takes them for."""
    low, high = RANGES.get(known("output_activation", activation, ACTIVATIONS), (-np.inf, np.inf))
    named = f'output_activation="{activation}"'
    if loss.several and np.isfinite([low, high]).any():
        raise MeshError(
            f"{named} gives numbers from {low:g} to {high:g}, so that the probability of a label, their sigmoid, "
            'could not be any; use output_activation="identity"'
        )
    if loss.classifies and np.isfinite(high):
        most = 1 / (1 + (n_outputs - 1) * np.exp(low - high))
        raise MeshError(
            f"{named} keeps the outputs between {low:g} and {high:g}, and their softmax below {most:.3f}: "
            'no class could have a higher probability; use output_activation="identity"'
        )
    if loss.logarithmic and np.isfinite(low):
        raise MeshError(
            f"{named} keeps the outputs above {low:g}, but with loss={loss.name!r} they are logarithms of rates; "
            'use output_activation="identity"'
        )


def _within_reach(activation: str, targets: Array, usual: tuple[Array, Array], wanted: bool) -> tuple[Array, Array]:
    """What to subtract and to divide by, so that the targets lie where outputs can be."""
    (low, high), (mean, scale) = RANGES[activation], usual
    least, most = targets.min(axis=0), targets.max(axis=0)
    inside = (least >= low) & (most <= high)
    positive = low == 0 and np.isinf(high)  # asked for so that predictions are: their 0 stays where it is
    if not inside.all() and (positive or not wanted):
        column = int(np.argmin(inside))
        wrong = least[column] if least[column] < low else most[column]
        advice = "" if positive else " or standardize=True"
        raise DataError(
            f'output_activation="{activation}" gives numbers from {low:g} to {high:g}, but y holds {wrong:g}; '
            f'use output_activation="identity"{advice}'
        )
    if not wanted:
        return usual
    if positive:
        return np.zeros_like(mean), scale
    if np.isinf(high):  # no more than the least target needs
        return np.minimum(mean, least - (1 - MARGIN) * low * scale), scale
    width = high - low
    fits = inside & (scale >= WIDE * width)
    filling = (most / 2 - least / 2) / ((0.5 - MARGIN) * width)
    filling = np.where(filling > 0, filling, scale)  # of a constant
    return np.where(fits, 0.0, most / 2 + least / 2 - filling * (low + high) / 2), np.where(fits, 1.0, filling)


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


def moments(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Mean and spread, which is 0 where a column is constant."""
    if not is_sparse(X):
        return mean_and_spread(X, weight)
    columns = X.tocsc()
    found = [mean_and_spread(columns[:, part].toarray(), weight) for part in row_blocks(X.shape[1], X.shape[0])]
    return np.concatenate([mean for mean, _ in found]), np.concatenate([scale for _, scale in found])


def _scaled(values: Array, mean: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is refused by name
        found = (values - mean) / scale
        if all_finite(found):
            return found
        # the difference of two numbers near the end of the range may be infinite, though their quotients are not
        return np.where(np.isfinite(found), found, values / scale - mean / scale)
