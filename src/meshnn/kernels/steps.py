"""Training steps inside compiled code: gradient of a batch, then Adam (Kingma and Ba, 2015) or momentum.

samples (T, n, n_inputs), values (1, n, m), weight (1, n, 1)   the training set as it came; weights have mean 1
order   (epochs, n)    the order of the samples in each epoch, where batches are smaller than the whole
X, y, share            one batch in rows of samples: packed anew for every batch, or once if it is the whole
penalised (n_edges,)   1 where l1 and l2 apply, else 0
first, second          what the optimiser remembers: mean and mean square of the gradient; velocity and nothing
record  (epochs, 3)    becomes mean loss, share of hits, norm of the last gradient; where a batch is the whole set,
                       the last row has the loss and the hits after all steps
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.gradient import gradient_part
from meshnn.kernels.losses import loss_part

__all__ = ["ADAM", "MOMENTUM", "NESTEROV", "epochs_part", "update_part"]

ADAM, MOMENTUM, NESTEROV = 0, 1, 2


@jit_inner
def _adam(w, g, mean, square, t, rate, beta1, beta2, epsilon, l1, penalised):
    """One step in place; t counts from 1. l1 shrinks each weight by its own step (proximal), so zeros are exact."""
    zero, one = w.dtype.type(0), w.dtype.type(1)
    b1, b2 = w.dtype.type(beta1), w.dtype.type(beta2)
    step = w.dtype.type(rate / (1.0 - beta1**t))
    scale = w.dtype.type(1.0 / (1.0 - beta2**t))
    tiny, shrink = w.dtype.type(epsilon), w.dtype.type(l1 * rate)
    for e in range(w.shape[0]):
        mean[e] = b1 * mean[e] + (one - b1) * g[e]
        square[e] = b2 * square[e] + (one - b2) * g[e] * g[e]
        w[e] -= step * mean[e] / (np.sqrt(square[e] * scale) + tiny)
    if l1 > 0:
        for e in range(w.shape[0]):
            least = shrink * penalised[e] / (np.sqrt(square[e] * scale) + tiny)
            size = max(abs(w[e]) - least, zero)
            w[e] = size if w[e] > 0 else -size


@jit_inner
def _momentum(w, g, velocity, rate, momentum, nesterov, l1, penalised):
    """One step in place."""
    zero = w.dtype.type(0)
    r, m, shrink = w.dtype.type(rate), w.dtype.type(momentum), w.dtype.type(l1 * rate)
    for e in range(w.shape[0]):
        velocity[e] = m * velocity[e] - r * g[e]
        w[e] += m * velocity[e] - r * g[e] if nesterov else velocity[e]
    if l1 > 0:
        for e in range(w.shape[0]):
            size = max(abs(w[e]) - shrink * penalised[e], zero)
            w[e] = size if w[e] > 0 else -size


@jit
def update_part(weights, total, first, second, solver, t, rate, beta1, beta2, epsilon, l1, l2, penalised):
    """Add the penalty to the gradient `total` and take step t (from 1); the norm of the gradient."""
    decay = weights.dtype.type(l2)
    norm = 0.0
    for e in range(weights.shape[0]):
        total[e] += decay * penalised[e] * weights[e]
        norm += np.float64(total[e]) * np.float64(total[e])
    if solver == ADAM:
        _adam(weights, total, first, second, t, rate, beta1, beta2, epsilon, l1, penalised)
    else:
        _momentum(weights, total, first, rate, beta1, solver == NESTEROV, l1, penalised)
    return np.sqrt(norm)


@jit_inner
def _gather(given, order, begin, end, packed, repeat, scale):
    """Samples order[begin:end] of given (T, n, m) into rows (T, chunks, m, L), times scale; filled up as in packing."""
    L = width(given)
    count = end - begin
    chunks = (count + L - 1) // L
    for k in range(given.shape[0]):
        for c in range(chunks):
            for l in range(L):
                at = c * L + l
                source = order[begin + min(at, count - 1)]
                factor = scale if at < count or repeat else given.dtype.type(0)
                for i in range(given.shape[2]):
                    packed[k, c, i, l] = factor * given[k, source, i]


@jit
def epochs_part(
    ops, forward, back, hops_back, gradient_ops, gradient, tangents, weights, w, codes,
    samples, values, weight, order, size, X, y, share, loss_code, S, D, V, T, G, scratch, g,
    total, first, second, solver, done, rates, beta1, beta2, epsilon, l1, l2, penalised, record,
):  # fmt: skip
    """Epochs of steps done + 1, done + 2, ... in place; how many were begun before a loss that is not finite."""
    L = width(S)
    n = samples.shape[1]
    n_edges = weights.shape[0]
    one = weights.dtype.type(1)
    step = 0
    for k in range(record.shape[0]):
        loss, hits, norm = 0.0, 0.0, 0.0
        for begin in range(0, n, size):
            count = min(size, n - begin)
            if size < n:
                _gather(samples, order[k], begin, begin + count, X, True, one)
                _gather(values, order[k], begin, begin + count, y, True, one)
                _gather(weight, order[k], begin, begin + count, share, False, one / count)
            for p in range(ops.eid.shape[0]):
                w[p] = weights[ops.eid[p]]
            for l in range(L):
                scratch[1, l] = 0
            part = gradient_part(
                ops, forward, back, hops_back, gradient_ops, gradient, tangents, w, codes,
                X, y, share, loss_code, 0, (count + L - 1) // L, S, D, V, T, G, scratch, g,
            )  # fmt: skip
            loss += part * count / n
            for l in range(L):
                hits += np.float64(scratch[1, l]) * count / n
            for e in range(n_edges):
                total[e] = 0
            for p in range(g.shape[0]):
                total[ops.eid[p]] += g[p]
            norm = update_part(
                weights, total, first, second, solver, done + step + 1, rates[step], beta1, beta2, epsilon,
                l1, l2, penalised,
            )  # fmt: skip
            step += 1
        record[k, 0], record[k, 1], record[k, 2] = loss, hits, norm
        if not np.isfinite(loss):
            return k
    if size >= n:  # one pass more tells where the last step has led
        for p in range(ops.eid.shape[0]):
            w[p] = weights[ops.eid[p]]
        for l in range(L):
            scratch[1, l] = 0
        last = record.shape[0] - 1
        record[last, 0] = loss_part(
            ops, forward, w, codes, X, y, share, loss_code, 0, X.shape[1], S, D, G, scratch
        )  # fmt: skip
        record[last, 1] = 0
        for l in range(L):
            record[last, 1] += scratch[1, l]
    return record.shape[0]
