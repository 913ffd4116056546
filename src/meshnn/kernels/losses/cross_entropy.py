"""Softmax and cross-entropy: log(sum exp(Y)) - Y[label]; shifted by the largest output, so it cannot overflow.

The Hessian by the outputs, diag(p) - p p', has rank n_outputs - 1. It is L D L' in closed form (Tanabe and Sagae,
1992): with q_i = p_{i+1} + ... + p_last, column i is sqrt(share p_i q_i / q_{i-1}) (J_i - sum_{k>i} p_k J_k / q_i), so
one column less than outputs is enough: a classifier of two classes costs as much as one output.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit_inline, jit_inner
from meshnn.kernels._row import (
    add,
    div,
    dot,
    fma,
    larger,
    load,
    mul,
    ones,
    root,
    store,
    sub,
    where_equal,
    where_same,
    width,
    zeros,
)
from meshnn.kernels.elementary import exp, log
from meshnn.kernels.losses.diagonal import counted

__all__ = ["columns", "curve", "loss"]


@jit_inline
def loss(Y, y, r, G, scratch):
    """With the shares of the hits added to row 1 of scratch."""
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


@jit_inner
def curve(Y, y, P):
    """P becomes the softmax of Y; exact zeros are lifted to the smallest number that divides safely."""
    n_outputs = P.shape[0]
    for l in range(width(P)):
        top = Y[0, l]
        for o in range(1, n_outputs):
            top = max(top, Y[o, l])
        total = P.dtype.type(0)
        for o in range(n_outputs):
            P[o, l] = exp(Y[o, l] - top)
            total += P[o, l]
        for o in range(n_outputs):
            P[o, l] = max(P[o, l] / total, P.dtype.type(1e-30))


@jit_inner
def columns(C, live, P, r, R, column):
    """L samples for each output but the last, next to each other."""
    n_outputs = P.shape[0]
    count = C.shape[0] // n_outputs
    pieces = R.shape[1] // width(C)  # R as rows of samples: piece c of row e is row e * pieces + c
    for e in range(live.shape[0]):
        rest = mul(load(P, n_outputs - 1), load(C, (n_outputs - 1) * count + live[e]))  # sum of p_k J_k over k > i
        q = load(P, n_outputs - 1)
        for i in range(n_outputs - 2, -1, -1):
            p, J = load(P, i), load(C, i * count + live[e])
            weight = root(mul(load(r, 0), div(mul(p, q), add(p, q))))
            store(R, e * pieces + column + i, mul(weight, sub(J, div(rest, q))))
            rest = fma(rest, p, J)
            q = add(q, p)
    return column + n_outputs - 1
