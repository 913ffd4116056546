"""Losses of a chunk and their gradient by the outputs.

Y   (n_outputs, L)   outputs
y   (1 or n_outputs, L)   labels as numbers, or target values
r   (1, L)           each sample's share of the mean; 0 for filled-up samples
G   (n_outputs, L)   becomes dE/dY, shares included
scratch (2, L)       row 1 gathers the shares of the samples whose largest output is the label's, chunk after chunk
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline
from meshnn.kernels._row import (
    add,
    div,
    dot,
    fma,
    larger,
    load,
    mul,
    ones,
    store,
    sub,
    where_equal,
    where_same,
    width,
    zeros,
)
from meshnn.kernels.codes import CROSS_ENTROPY
from meshnn.kernels.elementary import exp, log
from meshnn.kernels.forward import run_two

__all__ = ["loss_chunk", "loss_part"]


@jit
def loss_part(ops, forward, w, codes, X, y, share, loss_code, first, last, S, D, G, scratch):
    """Sum of losses of the chunks first to last, without their gradient. S and D may be (2, n, L)."""
    ticks = forward.shape[0] - 1
    loss = 0.0
    for c in range(first, last):
        run_two(ops, forward, w, codes, X, c, S, D)
        Y = S[ticks & 1, S.shape[1] - G.shape[0] :]
        loss += loss_chunk(loss_code, Y, y[0, c], share[0, c], G, scratch)
    return loss


@jit
def loss_chunk(code, Y, y, r, G, scratch):
    """Share of the mean loss; its gradient goes to G."""
    if code == CROSS_ENTROPY:
        return _cross_entropy(Y, y, r, G, scratch)
    return _squared_error(Y, y, r, G)


@jit_inline
def counted(share, value):
    """The value where a sample has a share, else 0: an infinite loss times no share would be NaN."""
    return where_equal(share, 0, sub(share, share), value)


@jit_inline
def _cross_entropy(Y, y, r, G, scratch):
    """Softmax and cross-entropy: log(sum exp(Y)) - Y[label]; shifted by the largest output, so it cannot overflow."""
    n_outputs = G.shape[0]
    label, share = load(y, 0), load(r, 0)
    top = load(Y, 0)
    picked = top
    for o in range(1, n_outputs):
        top = larger(top, load(Y, o))
        picked = where_equal(label, o, load(Y, o), picked)
    hit = zeros(G)
    for o in range(n_outputs - 1, -1, -1):  # downwards: of equal outputs the first one counts, as in argmax
        hit = where_same(load(Y, o), top, where_equal(label, o, ones(G), zeros(G)), hit)
    store(scratch, 1, fma(load(scratch, 1), share, hit))
    for o in range(n_outputs):
        store(G, o, sub(load(Y, o), top))
    for o in range(n_outputs):
        for l in range(width(G)):
            G[o, l] = exp(G[o, l])
    total = zeros(G)
    for o in range(n_outputs):
        total = add(total, load(G, o))
    store(scratch, 0, total)
    for l in range(width(scratch)):
        scratch[0, l] = log(scratch[0, l])
    factor = div(share, total)
    for o in range(n_outputs):
        store(G, o, sub(mul(load(G, o), factor), where_equal(label, o, share, zeros(G))))
    return dot(share, counted(share, add(load(scratch, 0), sub(top, picked))))


@jit_inline
def _squared_error(Y, y, r, G):
    """Half the squared distance."""
    share = load(r, 0)
    total = zeros(G)
    for o in range(G.shape[0]):
        d = counted(share, sub(load(Y, o), load(y, o)))
        store(G, o, mul(share, d))
        total = fma(total, d, d)
    return Y.dtype.type(0.5) * dot(share, total)
