"""Losses of a chunk and their gradient by the outputs.

    Y   (n_outputs, L)   outputs
    y   (1 or n_outputs, L)   labels as numbers, or target values
    r   (1, L)           each sample's share of the mean; 0 for filled-up samples
    G   (n_outputs, L)   becomes dE/dY, shares included
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.codes import CROSS_ENTROPY
from meshnn.kernels.elementary import exp, log

__all__ = ["loss_chunk"]


@jit
def loss_chunk(code, Y, y, r, G, scratch):
    """Share of the mean loss; its gradient goes to G. scratch is (3, L)."""
    if code == CROSS_ENTROPY:
        return _cross_entropy(Y, y, r, G, scratch)
    return _squared_error(Y, y, r, G)


@jit_inner
def _cross_entropy(Y, y, r, G, scratch):
    """Softmax and cross-entropy: log(sum exp(Y)) - Y[label]; shifted by the largest output, so it cannot overflow."""
    L = width(Y)
    n_outputs = G.shape[0]
    top, total, picked = 0, 1, 2
    for l in range(L):
        scratch[top, l] = Y[0, l]
        scratch[total, l] = 0
    for o in range(1, n_outputs):
        for l in range(L):
            scratch[top, l] = Y[o, l] if Y[o, l] > scratch[top, l] else scratch[top, l]
    for o in range(n_outputs):
        label = Y.dtype.type(o)
        for l in range(L):
            e = exp(Y[o, l] - scratch[top, l])
            G[o, l] = e
            scratch[total, l] += e
            scratch[picked, l] = Y[o, l] if y[0, l] == label else scratch[picked, l]
    loss = Y.dtype.type(0)
    for l in range(L):
        loss += r[0, l] * (scratch[top, l] - scratch[picked, l] + log(scratch[total, l]))
        scratch[total, l] = r[0, l] / scratch[total, l]
    for o in range(n_outputs):
        label = Y.dtype.type(o)
        for l in range(L):
            G[o, l] = G[o, l] * scratch[total, l] - (r[0, l] if y[0, l] == label else Y.dtype.type(0))
    return loss


@jit_inner
def _squared_error(Y, y, r, G):
    """Half the squared distance."""
    loss = Y.dtype.type(0)
    for o in range(G.shape[0]):
        for l in range(width(Y)):
            d = Y[o, l] - y[o, l]
            G[o, l] = r[0, l] * d
            loss += Y.dtype.type(0.5) * r[0, l] * d * d
    return loss
