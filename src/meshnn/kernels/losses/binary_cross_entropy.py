"""Labels that a sample has or has not, each for itself: log(1 + e^z) - y z, for an output z and a target y of 0 to 1.

With e = exp(-|z|) nothing overflows, and nothing is made of 1 - p, which is all rounding where an output is sure: the
loss is log(1 + e) + max(z, 0) - y z, the slope p - y with p = 1 / (1 + e^-z), the curvature e / (1 + e)^2 = p (1 - p).
"""

from __future__ import annotations

from meshnn.kernels._jit import jit_inline
from meshnn.kernels._row import dot, load, mul, store, width
from meshnn.kernels.elementary import exp, log1p_unit
from meshnn.kernels.losses.diagonal import counted

__all__ = ["curve", "loss"]


@jit_inline
def loss(Y, y, r, G, scratch):
    """The sum over outputs; a sample is a hit if all its outputs are on the right side of 0."""
    share = load(r, 0)
    zero, half, one = Y.dtype.type(0), Y.dtype.type(0.5), Y.dtype.type(1)
    for l in range(width(G)):
        hit = one
        for o in range(G.shape[0]):
            hit = hit if (Y[o, l] > zero) == (y[o, l] > half) else zero
        scratch[1, l] += r[0, l] * hit
    total = zero
    for o in range(G.shape[0]):
        for l in range(width(G)):
            z, target = Y[o, l], y[o, l]
            e = exp(-abs(z))
            less = e / (one + e)  # the smaller one of p and 1 - p
            scratch[0, l] = log1p_unit(e) + (z * (one - target) if z > zero else -z * target)
            # of a label that is there as it is: sums may be taken in another order, and 1 - (1 + less) is rounded
            sure = -less if target == one else (one - target) - less
            G[o, l] = sure if z > zero else less - target
        total += dot(share, counted(share, load(scratch, 0)))
        store(G, o, mul(share, counted(share, load(G, o))))
    return total


@jit_inline
def curve(Y, y, P):
    """p (1 - p)."""
    one = Y.dtype.type(1)
    for o in range(P.shape[0]):
        for l in range(width(P)):
            e = exp(-abs(Y[o, l]))
            P[o, l] = e / ((one + e) * (one + e))
