"""Half the deviance of Poisson's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import codes
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.losses.loss import ValueLoss

__all__ = ["Poisson"]


class Poisson(ValueLoss):
    """Of counts: an output is the logarithm of a rate."""

    name = "poisson"
    code = codes.POISSON
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
