"""Weights in the order of a plan's entries, and gradients back from it.

NumPy would make an index of 64 bits of every number, which takes longer than a large net and more room than its plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.methods import Plan

__all__ = ["gradient_of", "weights_of"]

Array = NDArray[Any]
#: Entries from which on compiled code is faster than NumPy's calls, and from which on a gradient is taken as it came.
SOME, LARGE = 1 << 12, 1 << 21


def weights_of(plan: Plan, values: Array) -> Array:
    """The weight of every entry; 0 for holes."""
    if len(plan.reads) > SOME:
        from meshnn.kernels.steps import read_part

        w = np.empty(len(plan.reads), values.dtype)
        read_part(values, plan.reads, plan.read_runs, plan.holes, w)
        return w
    w = values.take(plan.reads)
    if len(plan.holes):
        w[plan.holes] = 0
    return w


def gradient_of(plan: Plan, entries: Array | None) -> Array:
    """The gradient by the numbers, in float64; where there are many, as it came if they came one by one."""
    if entries is not None and plan.straight:
        return entries if len(entries) > LARGE else entries.astype(np.float64, copy=False)
    if entries is None or len(entries) <= SOME:  # of nothing bincount counts integers
        return np.bincount(plan.gives, entries, plan.n_gradient).astype(np.float64, copy=False)
    from meshnn.kernels.steps import give_part

    found = np.zeros(plan.n_gradient)
    give_part(entries, plan.gives, plan.give_runs, found)
    return found
