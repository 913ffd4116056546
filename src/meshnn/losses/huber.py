"""The absolute error, rounded off at 0."""

from __future__ import annotations

import numpy as np

from meshnn import codes
from meshnn.arrays import Array
from meshnn.losses.loss import ValueLoss
from meshnn.losses.moments import moments

__all__ = ["Huber"]

#: The median distance from the median of a normal distribution, in standard deviations.
MEDIAN_DISTANCE = 0.6744897501960817


class Huber(ValueLoss):
    """Of values with outliers: errors beyond 1 (in units of the targets' usual spread) count by their size."""

    name = "huber"
    code = codes.HUBER

    def hessian(self, outputs: Array, targets: Array) -> Array:
        """Slope over error, see the kernel."""
        found: Array = codes.HUBER_WIDTH / np.maximum(np.abs(outputs - targets), codes.HUBER_WIDTH)
        return found

    def scaling(self, targets: Array, weight: Array | None) -> tuple[Array, Array]:
        """Median and what it says about the spread: outliers must not set the scale that they are measured with."""
        middle, usual = moments(targets, weight)
        for c in range(targets.shape[1]):
            median = _median(targets[:, c], weight)
            spread = _median(np.abs(targets[:, c] - median), weight) / MEDIAN_DISTANCE
            if np.isfinite(median) and 0 < spread < np.inf:
                middle[c], usual[c] = median, spread
        return middle, usual


def _median(values: Array, weight: Array | None) -> float:
    """Where half of the weight lies below."""
    weight = np.ones(len(values)) if weight is None else weight
    return float(np.quantile(values, 0.5, weights=weight, method="inverted_cdf"))
