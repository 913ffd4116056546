"""Training steps inside compiled code: gradient of the whole batch, then Adam (Kingma and Ba, 2015)."""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels.gradient import gradient_part

__all__ = ["adam_steps_part"]


@jit_inner
def adam_update(w, g, mean, square, t, rate, beta1, beta2, epsilon):
    """One step of Adam in place; t counts from 1."""
    one = w.dtype.type(1)
    b1, b2 = w.dtype.type(beta1), w.dtype.type(beta2)
    step = w.dtype.type(rate / (1.0 - beta1**t))
    scale = w.dtype.type(1.0 / (1.0 - beta2**t))
    tiny = w.dtype.type(epsilon)
    for e in range(w.shape[0]):
        mean[e] = b1 * mean[e] + (one - b1) * g[e]
        square[e] = b2 * square[e] + (one - b2) * g[e] * g[e]
        w[e] -= step * mean[e] / (np.sqrt(square[e] * scale) + tiny)


@jit
def adam_steps_part(
    ops, forward, back, hops_back, gradient_ops, gradient, tangents, weights, w, codes,
    X, y, share, loss_code, S, D, V, T, G, scratch, g,
    total, mean, square, done, steps, rate, beta1, beta2, epsilon, losses,
):  # fmt: skip
    """Full-batch steps done + 1 to done + steps, in place; losses[k] is the loss before step k."""
    n_edges = weights.shape[0]
    for k in range(steps):
        for p in range(ops.eid.shape[0]):
            w[p] = weights[ops.eid[p]]
        losses[k] = gradient_part(
            ops, forward, back, hops_back, gradient_ops, gradient, tangents, w, codes,
            X, y, share, loss_code, 0, X.shape[1], S, D, V, T, G, scratch, g,
        )  # fmt: skip
        for e in range(n_edges):
            total[e] = 0
        for p in range(g.shape[0]):
            total[ops.eid[p]] += g[p]
        adam_update(weights, total, mean, square, done + k + 1, rate, beta1, beta2, epsilon)
    return 0
