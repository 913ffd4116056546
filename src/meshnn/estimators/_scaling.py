"""`Scaling`: features (and the targets of regression) brought to mean 0 and variance 1, learned with the weights.

Where the outputs have an activation with bounds, targets are brought to where it can reach them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array
from meshnn.codes import ACTIVATIONS, RANGES
from meshnn.errors import DataError, MeshError
from meshnn.losses import Loss
from meshnn.losses.moments import moments

__all__ = ["Scaling", "check_activation"]

#: Between bounds, targets fill all but this share at either end.
MARGIN = 0.1
#: Targets between the bounds stay as they are if their standard deviation is at least this share of the distance.
WIDE = 0.05


@dataclass(frozen=True)
class Scaling:
    """What to subtract and to divide by."""

    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array

    @classmethod
    def learn(
        cls, X: Array, targets: Array, weight: Array | None, wanted: bool, loss: Loss, activation: str = "identity"
    ) -> Scaling:
        """From training samples; nothing is scaled unless `wanted`, and targets as loss and activation have it."""
        n_outputs = targets.shape[1] if targets.ndim == 2 else 1
        x = moments(X, weight) if wanted else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        y = loss.scaling(targets, weight) if wanted else (np.zeros(n_outputs), np.ones(n_outputs))
        if targets.ndim == 2 and activation in RANGES:
            y = _within_reach(activation, targets if weight is None else targets[weight > 0], y, wanted)
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


def check_activation(activation: str, loss: Loss, n_outputs: int) -> None:
    """Refuse an activation that keeps the outputs from being what the loss takes them for."""
    low, high = RANGES.get(known("output_activation", activation, ACTIVATIONS), (-np.inf, np.inf))
    named = f'output_activation="{activation}"'
    if loss.classifies and np.isfinite(high):
        most = 1 / (1 + (n_outputs - 1) * np.exp(low - high))
        raise MeshError(
            f"{named} keeps the outputs between {low:g} and {high:g}, and their softmax below {most:.3f}: "
            'no class could have a higher probability; use output_activation="identity"'
        )
    if loss.logarithmic and np.isfinite(low):
        raise MeshError(
            f"{named} keeps the outputs above {low:g}, but with loss={loss.name!r} they are logarithms of rates; "
            'use output_activation="identity"'
        )


def _within_reach(activation: str, targets: Array, usual: tuple[Array, Array], wanted: bool) -> tuple[Array, Array]:
    """What to subtract and to divide by, so that the targets lie where outputs can be."""
    (low, high), (mean, scale) = RANGES[activation], usual
    least, most = targets.min(axis=0), targets.max(axis=0)
    inside = (least >= low) & (most <= high)
    positive = low == 0 and np.isinf(high)  # asked for so that predictions are: their 0 stays where it is
    if not inside.all() and (positive or not wanted):
        column = int(np.argmin(inside))
        wrong = least[column] if least[column] < low else most[column]
        advice = "" if positive else " or standardize=True"
        raise DataError(
            f'output_activation="{activation}" gives numbers from {low:g} to {high:g}, but y holds {wrong:g}; '
            f'use output_activation="identity"{advice}'
        )
    if not wanted:
        return usual
    if positive:
        return np.zeros_like(mean), scale
    if np.isinf(high):  # no more than the least target needs
        return np.minimum(mean, least - (1 - MARGIN) * low * scale), scale
    width = high - low
    fits = inside & (scale >= WIDE * width)
    filling = (most / 2 - least / 2) / ((0.5 - MARGIN) * width)
    filling = np.where(filling > 0, filling, scale)  # of a constant
    return np.where(fits, 0.0, most / 2 + least / 2 - filling * (low + high) / 2), np.where(fits, 1.0, filling)


def _scaled(values: Array, mean: Array, scale: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite is refused by name
        found = (values - mean) / scale
        # the difference of two numbers near the end of the range may be infinite, though their quotients are not
        return np.where(np.isfinite(found), found, values / scale - mean / scale)
