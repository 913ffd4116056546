"""The absolute error, rounded off at 0 (Huber, 1964): squared up to a width, by its size beyond.

    |d| <= b   d^2 / 2              slope d
    |d| >  b   b (|d| - b / 2)      slope b sign(d)

The curvature is slope / d: that of the parabola which touches the loss at d and lies nowhere below it. The true one is
0 for every error beyond the width, which would tell a second-order step nothing about how far to go.
"""

from __future__ import annotations

from meshnn.codes import HUBER_WIDTH
from meshnn.kernels._jit import jit_inline
from meshnn.kernels._row import dot, load, mul, store, width
from meshnn.kernels.losses.diagonal import counted

__all__ = ["curve", "loss"]


@jit_inline
def loss(Y, y, r, G, scratch):
    """Errors beyond the width count by their size."""
    b = Y.dtype.type(HUBER_WIDTH)
    half = Y.dtype.type(0.5)
    share = load(r, 0)
    total = Y.dtype.type(0)
    for o in range(G.shape[0]):
        for l in range(width(G)):
            d = Y[o, l] - y[o, l]
            near = -b if d < -b else (b if d > b else d)
            G[o, l] = near
            scratch[0, l] = near * (d - half * near)
        total += dot(share, counted(share, load(scratch, 0)))
        store(G, o, mul(share, counted(share, load(G, o))))
    return total


@jit_inline
def curve(Y, y, P):
    """Slope over error."""
    b = Y.dtype.type(HUBER_WIDTH)
    one = Y.dtype.type(1)
    for o in range(P.shape[0]):
        for l in range(width(P)):
            size = abs(Y[o, l] - y[o, l])
            P[o, l] = b / size if size > b else one
