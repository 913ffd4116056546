"""Losses of a chunk and their gradient by the outputs.

    Y      rows first .. first + n_outputs of S: the outputs
    G      (n_outputs, L)   dE/dy, already multiplied by each sample's share of the mean; 0 for filled-up samples
    share  (batch,)         weight of a sample over the sum of all weights
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels.codes import CROSS_ENTROPY
from meshnn.kernels.elementary import exp, log

__all__ = ["loss_chunk"]


@jit
def loss_chunk(code, S, first, labels, targets, share, begin, end, G, top, total):
    """Loss of the samples begin to end (a share of the mean) and its gradient G; top and total are scratch rows."""
    if code == CROSS_ENTROPY:
        return _cross_entropy(S, first, labels, share, begin, end, G, top, total)
    return _squared_error(S, first, targets, share, begin, end, G)


@jit_inner
def _cross_entropy(S, first, labels, share, begin, end, G, top, total):
    """Softmax and cross-entropy: log(sum exp(y)) - y[label]; shifted by the largest output, so it cannot overflow."""
    n_outputs, L = G.shape
    count = end - begin
    for l in range(L):
        top[l] = S[first, l]
        total[l] = 0
    for o in range(1, n_outputs):
        for l in range(L):
            y = S[first + o, l]
            top[l] = y if y > top[l] else top[l]
    for o in range(n_outputs):
        for l in range(L):
            e = exp(S[first + o, l] - top[l])
            G[o, l] = e
            total[l] += e
    loss = 0.0
    for l in range(count):
        # top becomes the log-sum, total the factor that turns exponentials into shares of the gradient
        top[l] += log(total[l])
        total[l] = share[begin + l] / total[l]
    for l in range(count, L):
        total[l] = 0
    for o in range(n_outputs):
        for l in range(L):
            G[o, l] *= total[l]
    for l in range(count):
        o = labels[begin + l]
        G[o, l] -= share[begin + l]
        loss += share[begin + l] * (top[l] - S[first + o, l])
    return loss


@jit_inner
def _squared_error(S, first, targets, share, begin, end, G):
    """Half the squared distance."""
    n_outputs, L = G.shape
    count = end - begin
    loss = 0.0
    for o in range(n_outputs):
        for l in range(count):
            d = S[first + o, l] - targets[begin + l, o]
            G[o, l] = share[begin + l] * d
            loss += 0.5 * share[begin + l] * d * d
        for l in range(count, L):
            G[o, l] = 0
    return loss
