"""Half the squared distance."""

from __future__ import annotations

import numpy as np

from meshnn import codes
from meshnn.arrays import Array
from meshnn.losses.loss import ValueLoss
from meshnn.losses.moments import moments

__all__ = ["SquaredError"]


class SquaredError(ValueLoss):
    """Of values with noise of one size."""

    name = "squared_error"
    code = codes.SQUARED_ERROR
    by_moments = True

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """1."""
        return np.ones(outputs.shape)

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        return moments(targets, weight)
