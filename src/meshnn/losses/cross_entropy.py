"""Cross-entropy of the softmax of the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import checks, codes
from meshnn.arrays import Array
from meshnn.losses.loss import Loss

__all__ = ["CrossEntropy"]


class CrossEntropy(Loss):
    """Of classes: one output each, labels from 0."""

    name = "cross_entropy"
    code = codes.CROSS_ENTROPY
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
