"""Mean and spread of columns of numbers."""

from __future__ import annotations

import numpy as np

from meshnn.arrays import Array

__all__ = ["moments"]


def moments(values: Array, weight: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation of columns; 1 where a column is constant, to rounding."""
    # in units of the largest number (a power of 2, so that nothing is rounded): squares overflow and vanish early
    largest = np.abs(values).max(axis=0)
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1021, 1023))
    in_units = values / unit
    mean = np.average(in_units, axis=0, weights=weight)
    scale = np.sqrt(np.average((in_units - mean) ** 2, axis=0, weights=weight))
    constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return mean * unit, np.where(constant, 1.0, scale * unit)
