"""Half the squared distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn import codes
from meshnn.losses.loss import ValueLoss
from meshnn.losses.moments import moments

__all__ = ["SquaredError"]

Array = NDArray[Any]


class SquaredError(ValueLoss):
    """Of values with noise of one size."""

    name = "squared_error"
    code = codes.SQUARED_ERROR

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """1."""
        return np.ones(outputs.shape)

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        return moments(targets, weight)
