"""`Loss`: everything about a loss but its kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from meshnn import checks
from meshnn.arrays import Array
from meshnn.errors import DataError

__all__ = ["Loss", "ValueLoss"]


class Loss:
    """What a loss is, in one object; `_core/losses.hpp` has its arithmetic."""

    name: str
    code: int  # in kernels
    #: Whether targets are labels, so that one can count hits.
    classifies: ClassVar[bool] = False
    #: Whether a target is one label, not a value for each output.
    by_label: ClassVar[bool] = False
    #: Whether each output is a label of its own, which a sample has or has not.
    several: ClassVar[bool] = False
    #: Whether targets are scaled by their mean and standard deviation.
    by_moments: ClassVar[bool] = False
    #: Whether it is the negative logarithm of a probability, so that there is no noise left to be estimated.
    likelihood: ClassVar[bool] = False
    #: Whether an output is the logarithm of what it stands for, so that it must be free to be any number.
    logarithmic: ClassVar[bool] = False
    #: Whether streams can learn it.
    streams: ClassVar[bool] = True

    def columns(self, n_outputs: int) -> int:
        """Columns of a square root of the curvature that a sample fills."""
        return n_outputs

    def targets(self, y: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Array:
        """What is handed in, checked, as kernels take it: `(size, 1)` labels or `(size, n_outputs)` values."""
        raise NotImplementedError

    def given(self, targets: Array) -> Array:
        """The inverse of `targets`."""
        return targets

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """The diagonal of J' H J of each sample: `(size, n_parameters)` from J `(size, n_outputs, n_parameters)`."""
        raise NotImplementedError

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """What to subtract from targets and to divide them by before a net learns them, column by column."""
        width = targets.shape[1] if targets.ndim == 2 else 1
        return np.zeros(width), np.ones(width)

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
        finite = np.isfinite(found)
        if not finite.all():
            b, o = np.argwhere(~finite)[0].tolist()
            raise DataError(
                f"y holds {values[b, o]} at sample {b}, output {o}, which is not finite in {dtype}; remove or impute it"
            )
        return found

    def curvature(self, outputs: Array, targets: Array, J: Array) -> Array:
        """Each output's share."""
        found: Array = np.einsum("no,noe->ne", self.hessian(outputs, targets), J**2)
        return found

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Its diagonal, `(size, n_outputs)`."""
        raise NotImplementedError
