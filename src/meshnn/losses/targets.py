"""`Targets`: what the outputs of a batch are compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshnn import checks
from meshnn.arrays import Array, BoolArray
from meshnn.losses.loss import Loss

__all__ = ["Targets"]


class Targets(NamedTuple):
    """Targets of some samples, and how much each sample counts."""

    loss: Loss
    values: Array  # (batch, 1) labels as numbers, or (batch, n_outputs) values
    share: Array  # (batch, 1) each sample's share of the mean
    even: bool = False  # known to be the same for all

    @classmethod
    def make(cls, loss: Loss, y: Any, sample_weight: Any, size: int, n_outputs: int, dtype: np.dtype[Any]) -> Targets:
        """From what is handed in for `size` samples, checked."""
        share = checks.shares(sample_weight, size, dtype)
        return cls(loss, loss.targets(y, size, n_outputs, dtype), share, sample_weight is None)

    def of(self, rows: Any, scale: float = 1.0) -> Targets:
        """Those of some samples, with shares so many times as large."""
        return Targets(self.loss, self.values[rows], self.share[rows] * self.share.dtype.type(scale))

    @property
    def counting(self) -> BoolArray | None:
        """Mask of the samples that count at all; None if all do.

        The others must not be looked at: one that overflows, times no share, would make every sum NaN.
        """
        if self.even:
            return None
        found: BoolArray = self.share[:, 0] != 0
        return None if found.all() else found
