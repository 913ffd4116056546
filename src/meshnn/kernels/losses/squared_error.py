"""Half the squared distance."""

from __future__ import annotations

from meshnn.kernels._jit import jit_inline
from meshnn.kernels._row import dot, fma, load, mul, ones, store, sub, zeros
from meshnn.kernels.losses.diagonal import counted

__all__ = ["curve", "loss"]


@jit_inline
def loss(Y, y, r, G, scratch):
    """d^2 / 2, and d."""
    share = load(r, 0)
    total = zeros(G)
    for o in range(G.shape[0]):
        d = counted(share, sub(load(Y, o), load(y, o)))
        store(G, o, mul(share, d))
        total = fma(total, d, d)
    return Y.dtype.type(0.5) * dot(share, total)


@jit_inline
def curve(Y, y, P):
    """1."""
    for o in range(P.shape[0]):
        store(P, o, ones(P))
