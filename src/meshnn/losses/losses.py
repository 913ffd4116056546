"""Losses: one object each, with its facts, its targets and its curvature; `_core/losses.hpp` has the arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from meshnn import checks
from meshnn.arguments import known, real_number
from meshnn.arrays import Array
from meshnn.codes import LossCode
from meshnn.errors import DataError, MeshError


class Loss:
    """A loss with all of its facts; `_core/losses.hpp` has its arithmetic."""

    name: str
    code: int  # in kernels
    classifies: ClassVar[bool] = False  # targets are labels, so that hits can be counted
    by_label: ClassVar[bool] = False  # a target is one label, not a value for each output
    several: ClassVar[bool] = False  # each output is a label of its own, which a sample has or has not
    by_moments: ClassVar[bool] = False  # targets are scaled by their mean and standard deviation
    likelihood: ClassVar[bool] = False  # the negative logarithm of a probability: there is no noise to be estimated
    logarithmic: ClassVar[bool] = False  # an output is the logarithm of a prediction, so that it must be unbounded
    streams: ClassVar[bool] = True  # streams can learn it
    least: ClassVar[float] = -np.inf  # the smallest target
    most: ClassVar[float] = np.inf  # the largest target

    def columns(self, n_outputs: int) -> int:
        """Columns of a square root of the curvature that a sample fills."""
        return n_outputs

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Return checked targets as kernels take them: `(size, 1)` labels or `(size, n_outputs)` values."""
        raise NotImplementedError

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """The diagonal of J' H J of each sample: `(size, n_parameters)` from J `(size, n_outputs, n_parameters)`."""
        raise NotImplementedError

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Return the offset and scale of targets, column by column."""
        width = targets.shape[1] if targets.ndim == 2 else 1
        return moments(targets, weight) if self.by_moments else (np.zeros(width), np.ones(width))

    def predicted(self, outputs: Array) -> Array:
        """The target that outputs stand for."""
        return outputs

    def log_predicted(self, outputs: Array) -> Array:
        """Logarithms of the probabilities that outputs stand for."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<loss {self.name}>"


class ValueLoss(Loss):
    """A loss of numbers, one target an output, whose Hessian by the outputs is diagonal."""

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Finite values."""
        values = checks.numbers("y", y)
        if values.ndim == 1 and n_outputs == 1:
            values = values[:, None]
        if values.shape != (size, n_outputs):
            raise DataError(f"for {self.name} y must have shape ({size}, {n_outputs}), got {np.shape(y)}")
        with np.errstate(over="ignore"):
            found = np.require(values, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
        right = np.isfinite(found)
        if self.least > -np.inf:
            right &= (found >= self.least) & (found <= self.most)
        if not right.all():
            b, o = np.argwhere(~right)[0].tolist()
            wanted = f"be finite in {dtype}"
            if np.isfinite(found[b, o]):
                wanted = "not be negative" if np.isinf(self.most) else f"be from {self.least:g} to {self.most:g}"
            raise DataError(f"for {self.name} y must {wanted}, got {float(values[b, o])} at sample {b}, output {o}")
        return found

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Each output's share."""
        return np.asarray(np.einsum("no,noe->ne", self.hessian(outputs, targets), J**2))

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Its diagonal, `(size, n_outputs)`."""
        raise NotImplementedError


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

    def predicted(self, outputs: Array) -> Array:
        """Probabilities."""
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def log_predicted(self, outputs: Array) -> Array:
        """Without a detour over probabilities, which may be 0."""
        below = outputs - outputs.max(axis=1, keepdims=True)
        return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Of diag(p) - p p'."""
        p = self.predicted(outputs)
        return np.asarray(np.einsum("no,noe->ne", p, J**2) - np.einsum("no,noe->ne", p, J) ** 2)


class BinaryCrossEntropy(ValueLoss):
    """Of labels that a sample has or has not, one output each."""

    name = "binary_cross_entropy"
    code = LossCode.BINARY_CROSS_ENTROPY
    classifies = True
    several = True
    likelihood = True
    least, most = 0.0, 1.0  # a label, or its probability

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """p (1 - p)."""
        e = np.exp(-np.abs(outputs))
        return np.asarray(e / (1.0 + e) ** 2)

    def predicted(self, outputs: Array) -> Array:
        """Probabilities."""
        e = np.exp(-np.abs(outputs))
        return np.asarray(np.where(outputs < 0, e, 1.0) / (1.0 + e))

    def log_predicted(self, outputs: Array) -> Array:
        """Without a detour over probabilities, which may be 0."""
        return np.asarray(np.minimum(outputs, 0.0) - np.log1p(np.exp(-np.abs(outputs))))


class SquaredError(ValueLoss):
    """Of values with noise of one size."""

    name = "squared_error"
    code = LossCode.SQUARED_ERROR
    by_moments = True

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """1."""
        return np.ones(outputs.shape)


class Huber(ValueLoss):
    """Of values with outliers: errors beyond 1 (in units of the targets' usual spread) count by their size."""

    name = "huber"
    code = LossCode.HUBER

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Slope over error, see the kernel."""
        return np.asarray(LossCode.HUBER_WIDTH / np.maximum(np.abs(outputs - targets), LossCode.HUBER_WIDTH))

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
    least = 0.0  # counts, or rates

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """The rate."""
        return self.predicted(outputs)

    def predicted(self, outputs: Array) -> Array:
        """The rate."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(outputs))


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
        return np.asarray(0.5 / np.maximum(np.abs(outputs - targets), LossCode.QUANTILE_WIDTH))


def moments(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation of columns; 1 where a column is constant, to rounding."""
    mean, spread = mean_and_spread(values, weight)
    return mean, np.where(spread == 0.0, 1.0, spread)


def is_constant(mean: Array, spread: Array) -> Array:
    """Where a spread is no more than rounding."""
    found: Array = spread <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return found


def mean_and_spread(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation of columns; 0 where a column is constant, to rounding."""
    # in units of the largest number (a power of 2, so that nothing is rounded): squares overflow and vanish early
    largest = np.abs(values).max(axis=0)
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1021, 1023))
    in_units = values / unit
    mean = np.average(in_units, axis=0, weights=weight)
    scale = np.sqrt(np.average((in_units - mean) ** 2, axis=0, weights=weight))
    return mean * unit, np.where(is_constant(mean, scale), 0.0, scale * unit)


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (CrossEntropy(), BinaryCrossEntropy(), SquaredError(), Huber(), Poisson())
} | {"quantile": Quantile(0.5)}


def loss_named(name: str) -> Loss:
    """Return the loss of a name; that of a quantile may have a level: "quantile:0.9"."""
    if isinstance(name, str) and name.startswith("quantile:"):
        return Quantile.named(name)
    return LOSSES[known("loss", name, LOSSES)]
