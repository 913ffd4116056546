"""The pinball loss of a quantile, rounded off at 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn import codes
from meshnn.arguments import real_number
from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.losses.loss import ValueLoss
from meshnn.losses.moments import moments

__all__ = ["Quantile"]


class Quantile(ValueLoss):
    """The value that a share `level` of the targets lies below; levels are rounded to thousandths.

    With d = output - target, level 0.9 counts -d by 0.9 and d by 0.1. Within codes.QUANTILE_WIDTH of 0 the kink is a
    parabola, so that gradients exist everywhere; the smallest value is 0.
    """

    by_moments = True
    streams = False

    def __init__(self, level: Any) -> None:
        checked = real_number("quantile", level, "a number from 0.001 to 0.999", lambda v: 0.001 <= v <= 0.999)
        thousandths = round(1000 * checked)
        self.level = thousandths / 1000
        self.code, self.name = codes.QUANTILE + thousandths, f"quantile:{self.level}"

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
        found: Array = 0.5 / np.maximum(np.abs(outputs - targets), codes.QUANTILE_WIDTH)
        return found

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        return moments(targets, weight)
