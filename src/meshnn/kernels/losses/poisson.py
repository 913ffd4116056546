"""Counts with a rate of exp(output): half the deviance of Poisson's distribution, 0 where the rate is the count.

With d = output - log y it is y (e^d - 1 - d), or e^output if y is 0; slope e^output - y, curvature e^output.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit_inline
from meshnn.kernels._row import dot, load, mul, store, width
from meshnn.kernels.elementary import exp, expm1_moderate, log
from meshnn.kernels.losses.diagonal import counted

__all__ = ["curve", "loss"]


@jit_inline
def loss(Y, y, r, G, scratch):
    """The sum over outputs."""
    share = load(r, 0)
    zero, far = Y.dtype.type(0), Y.dtype.type(40)
    tiny = Y.dtype.type(np.finfo(np.float32).tiny)
    total = zero
    for o in range(G.shape[0]):
        for l in range(width(G)):
            rate, count = exp(Y[o, l]), y[o, l]
            d = Y[o, l] - log(tiny if count < tiny else count)
            near = -far if d < -far else (far if d > far else d)
            # far out the 1 does not count, and near the minimum e^d - 1 must not be rounded
            value = count * (expm1_moderate(near) - d) if abs(d) <= far else rate - count * d
            scratch[0, l] = rate if count == zero else value
            G[o, l] = rate - count
        total += dot(share, counted(share, load(scratch, 0)))
        store(G, o, mul(share, counted(share, load(G, o))))
    return total


@jit_inline
def curve(Y, y, P):
    """The rate."""
    for o in range(P.shape[0]):
        for l in range(width(P)):
            P[o, l] = exp(Y[o, l])
