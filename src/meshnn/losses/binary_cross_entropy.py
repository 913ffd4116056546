"""Cross-entropy of the sigmoid of every output for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import codes
from meshnn.arrays import Array
from meshnn.errors import DataError
from meshnn.losses.loss import ValueLoss

__all__ = ["BinaryCrossEntropy"]


class BinaryCrossEntropy(ValueLoss):
    """Of labels that a sample has or has not, one output each."""

    name = "binary_cross_entropy"
    code = codes.BINARY_CROSS_ENTROPY
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
