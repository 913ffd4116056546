"""Training steps inside compiled code: gradient of a batch, then Adam (Kingma and Ba, 2015) or momentum.

The batch is packed anew for every step, or once if it is the whole set.
"""

from __future__ import annotations

import numpy as np

from meshnn.codes import ADAM, NESTEROV
from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.evaluate import loss_part
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.gradient import gradient_part
from meshnn.kernels.tuples import Batch

__all__ = ["epochs_part", "update_part"]


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
    """One step in place. The velocity is one of gradients, without the rate: one that falls slows it down at once."""
    zero = w.dtype.type(0)
    r, m, shrink = w.dtype.type(rate), w.dtype.type(momentum), w.dtype.type(l1 * rate)
    for e in range(w.shape[0]):
        velocity[e] = m * velocity[e] + g[e]
        w[e] -= r * (g[e] + m * velocity[e] if nesterov else velocity[e])
    if l1 > 0:
        for e in range(w.shape[0]):
            size = max(abs(w[e]) - shrink * penalised[e], zero)
            w[e] = size if w[e] > 0 else -size


@jit
def update_part(w, total, m, t, rate):
    """Add the penalty to the gradient `total` and take step t (from 1); the norm of the gradient. m: `Moments`."""
    mode = flush_denormals()
    decay = w.dtype.type(m.l2)
    norm = 0.0
    for e in range(w.shape[0]):
        total[e] += decay * m.penalised[e] * w[e]
        norm += np.float64(total[e]) * np.float64(total[e])
    if m.solver == ADAM:
        _adam(w, total, m.first, m.second, t, rate, m.beta1, m.beta2, m.epsilon, m.l1, m.penalised)
    else:
        _momentum(w, total, m.first, rate, m.beta1, m.solver == NESTEROV, m.l1, m.penalised)
    restore(mode)
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


@jit_inner
def _read(values, reads, holes, w, scratch):
    """Weights of the course, and no hits yet."""
    for p in range(reads.shape[0]):
        w[p] = values[reads[p]]
    for h in range(holes.shape[0]):
        w[holes[h]] = 0
    for l in range(width(scratch)):
        scratch[1, l] = 0


@jit_inner
def _hits(scratch):
    total = 0.0
    for l in range(width(scratch)):
        total += np.float64(scratch[1, l])
    return total


@jit
def epochs_part(course, net, batch, room, given, ledger, moments, pace, record):
    """Epochs of steps done + 1, done + 2, ... in place; how many were begun before a loss that is not finite.

    record (epochs, 3) becomes mean loss, share of hits and norm of the last gradient; where a batch is the whole set,
    the last row has the loss and the hits after all steps.
    """
    values, total, g, order, size = ledger.values, ledger.total, ledger.entries, pace.order, pace.size
    L = width(room.S)
    n = given.samples.shape[1]
    parameters = values[: moments.first.shape[0]]
    one = values.dtype.type(1)
    step = 0
    for k in range(record.shape[0]):
        loss, hits, norm = 0.0, 0.0, 0.0
        for begin in range(0, n, size):
            count = min(size, n - begin)
            if size < n:
                _gather(given.samples, order[k], begin, begin + count, batch.X, True, one)
                _gather(given.values, order[k], begin, begin + count, batch.y, True, one)
                _gather(given.weight, order[k], begin, begin + count, batch.share, False, one / count)
            _read(values, ledger.reads, course.ops.holes, net.w, room.scratch)
            some = Batch(batch.X, batch.raw, batch.y, batch.share, batch.loss, count)
            part = gradient_part(course, net, some, room, 0, (count + L - 1) // L, g)
            loss += part * count / n
            hits += _hits(room.scratch) * count / n
            for e in range(total.shape[0]):
                total[e] = 0
            for p in range(g.shape[0]):
                total[ledger.gives[p]] += g[p]
            norm = update_part(parameters, total, moments, pace.done + step + 1, pace.rates[step])
            step += 1
        record[k, 0], record[k, 1], record[k, 2] = loss, hits, norm
        if not np.isfinite(loss):
            return k
    if size >= n:  # one pass more tells where the last step has led
        _read(values, ledger.reads, course.ops.holes, net.w, room.scratch)
        last = record.shape[0] - 1
        record[last, 0] = loss_part(course, net, batch, room, 0, batch.X.shape[1])
        record[last, 1] = _hits(room.scratch)
    return record.shape[0]
