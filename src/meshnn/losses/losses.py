"""The losses there are: a class each, with its facts, its targets and its curvature."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import checks
from meshnn.arguments import known, real_number
from meshnn.arrays import Array
from meshnn.codes import LossCode
from meshnn.errors import DataError, MeshError
from meshnn.losses.loss import Loss, ValueLoss
from meshnn.losses.moments import moments


class CrossEntropy(Loss):
    """Of classes: one output each, labels from 0."""

    name = "cross_entropy"
    code = LossCode.CROSS_ENTROPY
    classifies = by_label = True
    likelihood = True

    def columns(self, n_outputs: int) -> int:
        """One less than there are outputs: probabilities add up to 1."""
        return max(n_outputs - 1, 1)

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Labels."""
        return checks.labels(y, size, n_outputs).astype(dtype)[:, None]

    def given(self, targets: Array) -> Array:
        """Labels as whole numbers."""
        return targets[:, 0].astype(np.int64)

    def predicted(self, outputs: Array) -> Array:
        """Probabilities."""
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        found: Array = powers / powers.sum(axis=1, keepdims=True)
        return found

    def log_predicted(self, outputs: Array) -> Array:
        """Without a detour over probabilities, which may be 0."""
        below = outputs - outputs.max(axis=1, keepdims=True)
        found: Array = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
        return found

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Of diag(p) - p p'."""
        p = self.predicted(outputs)
        found: Array = np.einsum("no,noe->ne", p, J**2) - np.einsum("no,noe->ne", p, J) ** 2
        return found


class BinaryCrossEntropy(ValueLoss):
    """Of labels that a sample has or has not, one output each."""

    name = "binary_cross_entropy"
    code = LossCode.BINARY_CROSS_ENTROPY
    classifies = True
    several = True
    likelihood = True

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """0 or 1, or a probability."""
        values = super().targets(y, size, n_outputs, dtype)
        wrong = (values < 0) | (values > 1)
        if wrong.any():
            b, o = np.argwhere(wrong)[0].tolist()
            raise DataError(f"for {self.name} y must be from 0 to 1, got {values[b, o]} at sample {b}, output {o}")
        return values

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """p (1 - p)."""
        e = np.exp(-np.abs(outputs))
        found: Array = e / (1.0 + e) ** 2
        return found

    def predicted(self, outputs: Array) -> Array:
        """Probabilities."""
        e = np.exp(-np.abs(outputs))
        found: Array = np.where(outputs < 0, e, 1.0) / (1.0 + e)
        return found

    def log_predicted(self, outputs: Array) -> Array:
        """Without a detour over probabilities, which may be 0."""
        found: Array = np.minimum(outputs, 0.0) - np.log1p(np.exp(-np.abs(outputs)))
        return found


class SquaredError(ValueLoss):
    """Of values with noise of one size."""

    name = "squared_error"
    code = LossCode.SQUARED_ERROR
    by_moments = True

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """1."""
        return np.ones(outputs.shape)

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        return moments(targets, weight)


class Huber(ValueLoss):
    """Of values with outliers: errors beyond 1 (in units of the targets' usual spread) count by their size."""

    name = "huber"
    code = LossCode.HUBER

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Slope over error, see the kernel."""
        found: Array = LossCode.HUBER_WIDTH / np.maximum(np.abs(outputs - targets), LossCode.HUBER_WIDTH)
        return found

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Median and what it says about the spread: outliers must not set the scale that they are measured with."""
        middle, usual = moments(targets, weight)
        for c in range(targets.shape[1]):
            median = _median(targets[:, c], weight)
            # of a normal distribution, half of the values lie within 0.67 standard deviations of the median
            spread = _median(np.abs(targets[:, c] - median), weight) / 0.6744897501960817
            if np.isfinite(median) and 0 < spread < np.inf:
                middle[c], usual[c] = median, spread
        return middle, usual


def _median(values: Array, weight: Array | None) -> float:
    """Where half of the weight lies below."""
    weight = np.ones(len(values)) if weight is None else weight
    return float(np.quantile(values, 0.5, weights=weight, method="inverted_cdf"))


class Poisson(ValueLoss):
    """Of counts: an output is the logarithm of a rate."""

    name = "poisson"
    code = LossCode.POISSON
    likelihood = True
    logarithmic = True

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Counts, or what is counted like them: no number below 0."""
        values = super().targets(y, size, n_outputs, dtype)
        if (values < 0).any():
            b, o = np.argwhere(values < 0)[0].tolist()
            raise DataError(f"for {self.name} y must not be negative, got {values[b, o]} at sample {b}, output {o}")
        return values

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """The rate."""
        return self.predicted(outputs)

    def predicted(self, outputs: Array) -> Array:
        """The rate."""
        with np.errstate(over="ignore"):
            found: Array = np.exp(outputs)
        return found


class Quantile(ValueLoss):
    """The value that a share `level` of the targets lies below; levels are rounded to thousandths.

    With d = output - target, level 0.9 counts -d by 0.9 and d by 0.1. Near 0 the kink is a parabola, so that gradients
    exist everywhere; the smallest value is 0.
    """

    by_moments = True
    streams = False

    def __init__(self, level: Any) -> None:
        checked = real_number("quantile", level, "a number from 0.001 to 0.999", lambda v: 0.001 <= v <= 0.999)
        thousandths = round(1000 * checked)
        self.level = thousandths / 1000
        self.code, self.name = LossCode.QUANTILE + thousandths, f"quantile:{self.level}"

    @classmethod
    def named(cls, name: str) -> Quantile:
        """Return the loss of a name with a level, like "quantile:0.9"."""
        try:
            return cls(float(name.partition(":")[2]))
        except (ValueError, MeshError):
            wanted = "the level of a quantile is a number from 0.001 to 0.999, as in 'quantile:0.9'"
            raise MeshError(f"unknown loss {name!r}: {wanted}") from None

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Slope over error of the symmetric part, see the kernel."""
        found: Array = 0.5 / np.maximum(np.abs(outputs - targets), LossCode.QUANTILE_WIDTH)
        return found

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        return moments(targets, weight)


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (CrossEntropy(), BinaryCrossEntropy(), SquaredError(), Huber(), Poisson())
} | {"quantile": Quantile(0.5)}


def loss_named(name: str) -> Loss:
    """Return the loss of a name; that of a quantile may have a level: "quantile:0.9"."""
    if isinstance(name, str) and name.startswith("quantile:"):
        return Quantile.named(name)
    return LOSSES[known("loss", name, LOSSES)]
