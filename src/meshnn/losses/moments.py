"""Mean and spread of columns of numbers."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array

__all__ = ["is_constant", "mean_and_spread", "moments"]


def moments(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation of columns; 1 where a column is constant, to rounding."""
    mean, spread = mean_and_spread(values, weight)
    return mean, np.where(spread == 0.0, 1.0, spread)


def is_constant(mean: Array, spread: Array) -> Array:
    """Where a spread is no more than rounding."""
    found: Array = spread <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return found


def mean_and_spread(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation of columns; 0 where a column is constant, to rounding."""
    # in units of the largest number (a power of 2, so that nothing is rounded): squares overflow and vanish early
    largest = np.abs(values).max(axis=0)
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1021, 1023))
    in_units = values / unit
    mean = np.average(in_units, axis=0, weights=weight)
    scale = np.sqrt(np.average((in_units - mean) ** 2, axis=0, weights=weight))
    return mean * unit, np.where(is_constant(mean, scale), 0.0, scale * unit)
