"""`Scaling`: features (and the targets of regression) brought to mean 0 and variance 1, learned with the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshnn.arrays import Array
from meshnn.losses import Loss
from meshnn.losses.moments import moments

__all__ = ["Scaling"]


@dataclass(frozen=True)
class Scaling:
    """What to subtract and to divide by."""

    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array

    @classmethod
    def learn(cls, X: Array, targets: Array, weight: Array | None, wanted: bool, loss: Loss) -> Scaling:
        """From training samples; nothing is scaled unless `wanted`, and targets as their loss has it."""
        n_outputs = targets.shape[1] if targets.ndim == 2 else 1
        x = moments(X, weight) if wanted else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        y = loss.scaling(targets, weight) if wanted else (np.zeros(n_outputs), np.ones(n_outputs))
        return cls(x[0], x[1], y[0], y[1])

    def inputs(self, X: Array) -> Array:
        """Features as the net sees them."""
        return _scaled(X, self.x_mean, self.x_scale)

    def targets(self, targets: Array) -> Array:
        """Targets as the net is to give them; labels as they are."""
        return targets if targets.ndim == 1 else _scaled(targets, self.y_mean, self.y_scale)

    def values(self, outputs: Array) -> Array:
        """Outputs of the net in the units of the targets."""
        return outputs * self.y_scale + self.y_mean


def _scaled(values: Array, mean: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is refused by name
        found = (values - mean) / scale
        # the difference of two numbers near the end of the range may be infinite, though their quotients are not
        return np.where(np.isfinite(found), found, values / scale - mean / scale)
