"""Gauss-Newton: the gradient of a loss and a square root of its curvature, from the Jacobian of one chunk at a time.

    C   (n_outputs * n_edges, L)   dy/dA of a chunk, one row per output and edge
    p   softmax of the outputs; P (n_outputs, L)
    R   (n_live, columns)          R R' is the sum of J' H J over samples, H the Hessian of the loss by the outputs
    live (n_live,)                 the edges that can count at all

squared_error: H = 1, so each sample gives a column sqrt(share) J_o per output.

cross_entropy: H = diag(p) - p p' has rank n_outputs - 1. It is L D L' in closed form (Tanabe and Sagae, 1992): with
q_i = p_{i+1} + ... + p_last, column i is sqrt(share p_i q_i / q_{i-1}) (J_i - sum_{k>i} p_k J_k / q_i), so one column
less than outputs is enough: a classifier of two classes costs as much as one output.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import add, div, dot, fma, load, mul, ones, root, store, sub, width, zeros
from meshnn.kernels.codes import CROSS_ENTROPY
from meshnn.kernels.elementary import exp
from meshnn.kernels.jacobian import jacobian_chunk
from meshnn.kernels.losses import loss_chunk

__all__ = ["curvature_part"]


@jit_inner
def _softmax(Y, P):
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
def _softmax_columns(C, n_edges, live, P, share, R, column):
    """Write the columns of cross_entropy: L samples for each output but the last, next to each other."""
    n_outputs = P.shape[0]
    L = width(C)
    pieces = R.shape[1] // L  # R as rows of samples: piece c of edge r is row r * pieces + c
    for r in range(live.shape[0]):
        e = live[r]
        rest = mul(load(P, n_outputs - 1), load(C, (n_outputs - 1) * n_edges + e))  # sum of p_k J_k over k > i
        q = load(P, n_outputs - 1)
        for i in range(n_outputs - 2, -1, -1):
            p, J = load(P, i), load(C, i * n_edges + e)
            weight = root(mul(load(share, 0), div(mul(p, q), add(p, q))))
            store(R, r * pieces + column + i, mul(weight, sub(J, div(rest, q))))
            rest = fma(rest, p, J)
            q = add(q, p)


@jit_inner
def _plain_columns(C, n_edges, live, n_outputs, share, R, column):
    """Write the columns of squared_error: L samples for each output."""
    pieces = R.shape[1] // width(C)
    weight = root(load(share, 0))
    for r in range(live.shape[0]):
        for o in range(n_outputs):
            store(R, r * pieces + column + o, mul(weight, load(C, o * n_edges + live[r])))


@jit
def curvature_part(
    ops, forward, back, hops_back, gradient, tangents, w, codes, X, y, share, loss_code, first, last,
    S, D, V, T, G, scratch, P, C, live, g, R,
):  # fmt: skip
    """Sum of losses of the chunks first to last; g (n_live,) grows by their gradient, R gets their columns."""
    ticks = forward.shape[0] - 1
    n_outputs = G.shape[0]
    n_edges = C.shape[0] // n_outputs
    column = 0
    loss = 0.0
    for c in range(first, last):
        jacobian_chunk(ops, forward, back, hops_back, gradient, tangents, w, codes, X, c, S, D, V, T, C, n_outputs)
        Y = S[ticks, S.shape[1] - n_outputs :]
        loss += loss_chunk(loss_code, Y, y[0, c], share[0, c], G, scratch)
        for r in range(live.shape[0]):
            total = zeros(C)
            for o in range(n_outputs):
                total = fma(total, load(G, o), load(C, o * n_edges + live[r]))
            g[r] += dot(total, ones(C))
        if loss_code == CROSS_ENTROPY:
            _softmax(Y, P)
            _softmax_columns(C, n_edges, live, P, share[0, c], R, column)
            column += n_outputs - 1
        else:
            _plain_columns(C, n_edges, live, n_outputs, share[0, c], R, column)
            column += n_outputs
    return loss
