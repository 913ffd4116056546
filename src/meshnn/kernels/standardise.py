"""Numbers of a stream, each to mean 0 and variance 1 as far as it has been seen, whatever comes.

    moments (7, n)  of every number: how many were seen, mean, variance; and count, mean, squares and wild ones of the
                    block of the stream that is being looked at

The past is forgotten, slowly. What enters mean and variance is cut to some deviations, once enough has been seen to
know them: a wild value moves them by little. Values of another size that stay are another thing: at the end of a block
most of which was wild, or which varied by next to nothing of the deviation, all begins anew with the block. A number
that has stopped to vary says nothing about its size; it fades away as slowly as the rest.
"""

from __future__ import annotations

import math

from meshnn.kernels._jit import jit_inner
from meshnn.kernels.tuples import CENTRE, COUNT, MEAN, SEEN, SQUARES, VARIANCE, WILD_ONES

__all__ = ["observe", "standardise", "unstandardise"]

#: Deviations beyond which a number is wild.
WILD = 10.0
#: Samples before which none is called wild, and those that count in the long run.
WARM, MEMORY = 30.0, 2000.0
#: Numbers in a block, and the share of the variance that is next to nothing. A ramp has more.
BLOCK, NOTHING = 128.0, 1e-4
#: Larger numbers than this are cut to it: their squares must be finite.
LARGEST = 1e100
#: Deviation, as a share of the mean, that is rounding.
ROUNDING = 1e-12


@jit_inner
def _deviation(mean, variance):
    """0 if the number has always been the same."""
    deviation = math.sqrt(variance)
    return deviation if deviation > ROUNDING * abs(mean) else 0.0


@jit_inner
def standardise(x, moments, cut, missing, out):
    """By the moments so far, and cut. `missing` stands for those that are NaN or infinite, or never varied so far.

    It is 0 for features, which say nothing then, and NaN for targets, from which nothing is learned.
    """
    for i in range(x.shape[0]):
        deviation = _deviation(moments[MEAN, i], moments[VARIANCE, i])
        z = missing
        if deviation > 0.0 and math.isfinite(x[i]):
            z = (min(max(x[i], -LARGEST), LARGEST) - moments[MEAN, i]) / deviation
            z = min(max(z, -cut), cut)
        out[i] = z


@jit_inner
def unstandardise(z, moments, out):
    """Back to the numbers' own size; before anything was seen 0."""
    for i in range(z.shape[0]):
        out[i] = moments[MEAN, i] + z[i] * _deviation(moments[MEAN, i], moments[VARIANCE, i])


@jit_inner
def _look_back(moments, i):
    """The end of a block: does it tell of another size than the moments?"""
    block = moments[SQUARES, i] / BLOCK
    varied = _deviation(moments[CENTRE, i], block) > 0.0
    if moments[WILD_ONES, i] > 0.5 * BLOCK or (varied and block < NOTHING * moments[VARIANCE, i]):
        moments[SEEN, i], moments[MEAN, i], moments[VARIANCE, i] = BLOCK, moments[CENTRE, i], block
    moments[COUNT, i], moments[CENTRE, i], moments[SQUARES, i], moments[WILD_ONES, i] = 0.0, 0.0, 0.0, 0.0


@jit_inner
def observe(x, moments):
    """The moments take the numbers in; missing ones change nothing."""
    for i in range(x.shape[0]):
        if not math.isfinite(x[i]):
            continue
        value = min(max(x[i], -LARGEST), LARGEST)
        mean, variance = moments[MEAN, i], moments[VARIANCE, i]
        delta, deviation = value - mean, _deviation(mean, variance)
        if moments[SEEN, i] >= WARM and deviation > 0.0 and abs(delta) > WILD * deviation:
            delta = math.copysign(WILD * deviation, delta)
            moments[WILD_ONES, i] += 1.0
        moments[SEEN, i] += 1.0
        rate = max(1.0 / moments[SEEN, i], 1.0 / MEMORY)
        moments[MEAN, i] = mean + rate * delta
        moments[VARIANCE, i] = (1.0 - rate) * (variance + rate * delta * delta)
        moments[COUNT, i] += 1.0
        away = value - moments[CENTRE, i]
        moments[CENTRE, i] += away / moments[COUNT, i]
        moments[SQUARES, i] += away * (value - moments[CENTRE, i])
        if moments[COUNT, i] >= BLOCK:
            _look_back(moments, i)
