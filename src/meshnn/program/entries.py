"""Weights in the order of a plan's entries, and gradients back from it: as a whole, or by pieces where that is large.

A plan of many edges is gone through in pieces, because an index of 64 bits or a sum in float64 for each of them would
be larger than the plan itself. The sums are the same, in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.methods import Plan

__all__ = ["gradient_of", "weights_of"]

Array = NDArray[Any]
#: Entries from which on a gradient is taken as it came, or added up in pieces of so many.
LARGE, PIECE = 1 << 21, 1 << 20


def weights_of(plan: Plan, values: Array) -> Array:
    """The weight of every entry; 0 for holes."""
    reads = plan.reads
    w = np.empty(len(reads), values.dtype)
    first = len(values) if plan.ordered else 0
    w[:first] = values[:first]
    for begin in range(first, len(reads), PIECE):
        values.take(reads[begin : begin + PIECE], out=w[begin : begin + PIECE], mode="clip")
    if len(plan.holes):
        w[plan.holes] = 0
    return w


def gradient_of(plan: Plan, entries: Array | None) -> Array:
    """The gradient by the numbers, in float64; where there are many, as it came if they came one by one."""
    if entries is not None and plan.straight:
        return entries if len(entries) > LARGE else entries.astype(np.float64, copy=False)
    if entries is None or len(entries) <= LARGE:  # of nothing bincount counts integers
        return np.bincount(plan.gives, entries, plan.n_gradient).astype(np.float64, copy=False)
    found = np.zeros(plan.n_gradient)
    for begin in range(0, len(entries), PIECE):
        piece = slice(begin, begin + PIECE)
        np.add.at(found, plan.gives[piece].astype(np.intp), entries[piece].astype(np.float64, copy=False))
    return found
