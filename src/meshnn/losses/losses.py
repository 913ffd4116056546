"""Losses. Each is an object with its properties, targets and curvature; `_core/losses.hpp` has the arithmetic."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from meshnn import checks
from meshnn.arguments import known, real_number
from meshnn.arrays import Array
from meshnn.codes import LossCode
from meshnn.errors import DataError, MeshError


class Loss:
    """Base class of losses; the compiled core has the arithmetic."""

    name: str
    code: int  # in the kernels
    classifies: ClassVar[bool] = False  # targets are labels, so correct predictions can be counted
    by_label: ClassVar[bool] = False  # a target is one label, not one value per output
    several: ClassVar[bool] = False  # multilabel: each output is a separate label
    by_moments: ClassVar[bool] = False  # targets are scaled by their mean and standard deviation
    likelihood: ClassVar[bool] = False  # a negative log-likelihood, which has no noise variance to estimate
    logarithmic: ClassVar[bool] = False  # outputs are logarithms of predictions and must be unbounded
    streams: ClassVar[bool] = True  # whether streams support it
    least: ClassVar[float] = -np.inf  # the smallest target allowed
    most: ClassVar[float] = np.inf  # the largest target allowed

    def columns(self, n_outputs: int) -> int:
        """Return the number of columns per sample in a square root of the curvature."""
        return n_outputs

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Return checked targets for the kernels: `(size, 1)` labels or `(size, n_outputs)` values."""
        raise NotImplementedError

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Return the diagonal of J' H J per sample `(size, n_parameters)`, from J `(size, n_outputs, n_parameters)`."""
        raise NotImplementedError

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Return the offset and the scale of each column of targets."""
        width = targets.shape[1] if targets.ndim == 2 else 1
        return moments(targets, weight) if self.by_moments else (np.zeros(width), np.ones(width))

    def predicted(self, outputs: Array) -> Array:
        """Return the prediction, on the scale of the targets, for outputs."""
        return outputs

    def log_predicted(self, outputs: Array) -> Array:
        """Return the logarithms of the predicted probabilities for outputs."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<loss {self.name}>"


class ValueLoss(Loss):
    """A loss with one numeric target per output, whose Hessian with respect to the outputs is diagonal."""

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Return finite values `(size, n_outputs)`."""
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
        """Return the sum over outputs o of hessian[o] J[o]^2."""
        return np.asarray(np.einsum("no,noe->ne", self.hessian(outputs, targets), J**2))

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return the diagonal of the Hessian with respect to the outputs, `(size, n_outputs)`."""
        raise NotImplementedError


class CrossEntropy(Loss):
    """Cross-entropy of the softmax of the outputs, one output per class, with labels from 0."""

    name = "cross_entropy"
    code = LossCode.CROSS_ENTROPY
    classifies = by_label = True
    likelihood = True

    def columns(self, n_outputs: int) -> int:
        """Return n_outputs - 1, because the probabilities add up to 1."""
        return max(n_outputs - 1, 1)

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """Return labels `(size, 1)`."""
        return checks.labels(y, size, n_outputs).astype(dtype)[:, None]

    def predicted(self, outputs: Array) -> Array:
        """Return probabilities."""
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def log_predicted(self, outputs: Array) -> Array:
        """Return log probabilities, not computed from the probabilities, which may underflow to 0."""
        below = outputs - outputs.max(axis=1, keepdims=True)
        return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Return the diagonal of J' (diag(p) - p p') J."""
        p = self.predicted(outputs)
        return np.asarray(np.einsum("no,noe->ne", p, J**2) - np.einsum("no,noe->ne", p, J) ** 2)


class BinaryCrossEntropy(ValueLoss):
    """Cross-entropy of the sigmoid of each output, for multilabel targets."""

    name = "binary_cross_entropy"
    code = LossCode.BINARY_CROSS_ENTROPY
    classifies = True
    several = True
    likelihood = True
    least, most = 0.0, 1.0  # a label, or its probability

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return p (1 - p)."""
        e = np.exp(-np.abs(outputs))
        return np.asarray(e / (1.0 + e) ** 2)

    def predicted(self, outputs: Array) -> Array:
        """Return probabilities."""
        e = np.exp(-np.abs(outputs))
        return np.asarray(np.where(outputs < 0, e, 1.0) / (1.0 + e))

    def log_predicted(self, outputs: Array) -> Array:
        """Return log probabilities, not computed from the probabilities, which may underflow to 0."""
        return np.asarray(np.minimum(outputs, 0.0) - np.log1p(np.exp(-np.abs(outputs))))


class SquaredError(ValueLoss):
    """Half the squared distance, for values with noise of constant variance."""

    name = "squared_error"
    code = LossCode.SQUARED_ERROR
    by_moments = True

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return 1."""
        return np.ones(outputs.shape)


class Huber(ValueLoss):
    """The Huber loss, for values with outliers: quadratic for errors up to 1 in scaled units, linear beyond."""

    name = "huber"
    code = LossCode.HUBER

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return slope divided by error, see the kernel."""
        return np.asarray(LossCode.HUBER_WIDTH / np.maximum(np.abs(outputs - targets), LossCode.HUBER_WIDTH))

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Return the median and a spread from the median deviation, which outliers hardly affect."""
        centre, scale = moments(targets, weight)
        for c in range(targets.shape[1]):
            median = _median(targets[:, c], weight)
            # half of the values of a normal distribution lie within 0.67 standard deviations of the median
            spread = _median(np.abs(targets[:, c] - median), weight) / 0.6744897501960817
            if np.isfinite(median) and 0 < spread < np.inf:
                centre[c], scale[c] = median, spread
        return centre, scale


def _median(values: Array, weight: Array | None) -> float:
    """Return the weighted median."""
    weight = np.ones(len(values)) if weight is None else weight
    return float(np.quantile(values, 0.5, weights=weight, method="inverted_cdf"))


class Poisson(ValueLoss):
    """Half the Poisson deviance, for counts; an output is the logarithm of a rate."""

    name = "poisson"
    code = LossCode.POISSON
    likelihood = True
    logarithmic = True
    least = 0.0  # counts, or rates

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return the rate."""
        return self.predicted(outputs)

    def predicted(self, outputs: Array) -> Array:
        """Return the rate."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(outputs))


class Quantile(ValueLoss):
    """The pinball loss of a quantile: a share `level` of the targets lies below the prediction.

    With d = output - target and level 0.9, the loss is -0.9 d for d < 0 and 0.1 d for d > 0. Near 0 a parabola replaces
    the kink, so that the gradient exists everywhere; the minimum is 0. Levels are rounded to thousandths.
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
        """Return the loss for a name with a level, such as "quantile:0.9"."""
        try:
            return cls(float(name.partition(":")[2]))
        except (ValueError, MeshError):
            wanted = "the level of a quantile is a number from 0.001 to 0.999, as in 'quantile:0.9'"
            raise MeshError(f"unknown loss {name!r}: {wanted}") from None

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Return slope divided by error of the symmetric part, see the kernel."""
        return np.asarray(0.5 / np.maximum(np.abs(outputs - targets), LossCode.QUANTILE_WIDTH))


def moments(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return mean and standard deviation of columns; the deviation of a constant column is replaced by 1."""
    mean, spread = mean_and_spread(values, weight)
    return mean, np.where(spread == 0.0, 1.0, spread)


def is_constant(mean: Array, spread: Array) -> Array:
    """Return a mask of the columns whose spread is no larger than rounding errors."""
    found: Array = spread <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return found


def mean_and_spread(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return mean and standard deviation of columns; the deviation of a column that is constant to rounding is 0."""
    # dividing by a power of 2 near the largest number rounds nothing and keeps squares from over- and underflow
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
    """Return the loss for a name; a quantile may have a level: "quantile:0.9"."""
    if isinstance(name, str) and name.startswith("quantile:"):
        return Quantile.named(name)
    return LOSSES[known("loss", name, LOSSES)]
