"""Training steps inside compiled code: gradient of a batch, then Adam (Kingma and Ba, 2015) or momentum.

The batch is packed anew for every step, or once if it is the whole set. Large batches are cut into parts, whose
gradients are added in order; a team of threads shares the parts, and the parameters to be updated.
"""

from __future__ import annotations

import numpy as np

from meshnn.codes import ADAM, NESTEROV
from meshnn.kernels._jit import jit, jit_inner, variant
from meshnn.kernels._piece import transpose, vector_width
from meshnn.kernels._row import width
from meshnn.kernels.barrier import abandoned, meet
from meshnn.kernels.evaluate import loss_part
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.gradient import gradient_part
from meshnn.kernels.timed import timed_loss_part
from meshnn.kernels.timed_gradient import timed_gradient_part
from meshnn.kernels.tuples import BLOCK

__all__ = ["epochs_part", "give", "give_part", "read_part", "read_weights", "timed_epochs_part", "update_part"]


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


@jit_inner
def update_block(values, total, m, t, rate, first, last):
    """Parameters first to last: add the penalty to the gradient `total` and take step t; its squared norm."""
    w, g, penalised = values[first:last], total[first:last], m.penalised[first:last]
    decay = w.dtype.type(m.l2)
    norm = 0.0
    if m.l2 > 0:
        for e in range(w.shape[0]):
            g[e] += decay * penalised[e] * w[e]
    for e in range(w.shape[0]):
        norm += np.float64(g[e]) * np.float64(g[e])
    mean = m.first[first:last]
    if m.solver == ADAM:
        square = m.second[first:last]
        _adam(w, g, mean, square, t, rate, m.beta1, m.beta2, m.epsilon, m.l1, penalised)
    else:
        _momentum(w, g, mean, rate, m.beta1, m.solver == NESTEROV, m.l1, penalised)
    return norm


@jit
def update_part(w, total, m, t, rate):
    """Add the penalty to the gradient `total` and take step t (from 1); the norm of the gradient. m: `Moments`."""
    mode = flush_denormals()
    norm = 0.0
    for e in range(0, w.shape[0], BLOCK):
        norm += update_block(w, total, m, t, rate, e, min(e + BLOCK, w.shape[0]))
    restore(mode)
    return np.sqrt(norm)


@jit_inner
def _gather(given, order, begin, end, per, first, last, packed, repeat, scale):
    """Chunks first to last of the samples order[begin:end] of given (T, n, m) into rows (T, chunks, m, L), times scale.

    There are so many samples `per` chunk; they are filled up as in packing.
    """
    L, side = width(given), vector_width(given)
    features = given.shape[2]
    square = features - features % side  # features that are moved in squares
    for k in range(given.shape[0]):
        for c in range(first, last):
            at, whole = begin + c * per, packed[k, c]
            stop = min(at + per, end)
            done = 0
            if square > 0 and at + L <= order.shape[0] and scale == 1:
                done = square  # with samples beyond the end, which do no harm
                for i in range(0, square, side):
                    for l in range(0, L, side):
                        transpose(given[k], features, order, at + l, i, whole, i * L + l, L)
            for l in range(L):
                source = order[min(at + l, stop - 1)]
                factor = scale if at + l < stop or repeat else given.dtype.type(0)
                for i in range(done, features):
                    whole[i, l] = factor * given[k, source, i]


@jit_inner
def _copy(into, given):
    """The first numbers of what is given. By itself: an index is then seen not to be negative, and vectors are used."""
    for k in range(into.shape[0]):
        into[k] = given[k]


@jit_inner
def _add(into, given):
    """The same, added."""
    for k in range(into.shape[0]):
        into[k] += given[k]


@jit_inner
def read_weights(values, reads, runs, holes, w, first, last):
    """Weights first to last of the course."""
    for r in range(runs.shape[0]):
        begin, end, e = max(runs[r, 0], first), min(runs[r, 1], last), runs[r, 2]
        if e >= 0:
            _copy(w[begin:end], values[e - runs[r, 0] + begin :])
        else:
            for p in range(begin, end):
                w[p] = values[reads[p]]
    for h in range(holes.shape[0]):
        if first <= holes[h] < last:
            w[holes[h]] = 0


@jit
def read_part(values, reads, runs, holes, w):
    """All weights of a course."""
    read_weights(values, reads, runs, holes, w, 0, w.shape[0])


@jit_inner
def give(g, gives, runs, total):
    """`total[gives[p]] += g[p]` for all entries, in their order."""
    for r in range(runs.shape[0]):
        begin, end, e = runs[r, 0], runs[r, 1], runs[r, 2]
        if e >= 0:
            _add(total[e : e + end - begin], g[begin:end])
        else:
            for p in range(begin, end):
                total[gives[p]] += g[p]


@jit
def give_part(g, gives, runs, total):
    """The same, from outside."""
    give(g, gives, runs, total)


@jit_inner
def _hits(scratch):
    total = 0.0
    for l in range(width(scratch)):
        total += np.float64(scratch[1, l])
        scratch[1, l] = 0
    return total


@jit_inner
def _share(count, team):
    """Which of so many things a thread takes, all but the last in blocks of `BLOCK`."""
    blocks = (count + BLOCK - 1) // BLOCK
    return min(blocks * team.me // team.count * BLOCK, count), min(blocks * (team.me + 1) // team.count * BLOCK, count)


@jit_inner
def _add_parts(entries, parts, first, last):
    """The gradients of all parts, in their order, into that of the first."""
    for q in range(1, parts):
        for p in range(first, last):
            entries[0, p] += entries[q, p]


@jit_inner
def _sum_up(ledger, first, last):
    """The gradient by the values first to last, each from its entries in their order."""
    total, runs, g, gives = ledger.total, ledger.give_runs, ledger.entries[0], ledger.gives
    if runs.shape[0] == 0:  # entries and values are the same, and in the same place
        return
    for e in range(first, last):
        total[e] = 0
    for r in range(runs.shape[0]):
        begin, end, e = runs[r, 0], runs[r, 1], runs[r, 2]
        if e >= 0:
            low, high = max(e, first), min(e + end - begin, last)
            if low < high:
                _add(total[low:high], g[begin - e + low :])
        else:
            for p in range(begin, end):
                if first <= gives[p] < last:
                    total[gives[p]] += g[p]


@jit_inner
def _gather_batch(given, order, begin, end, per, first, last, batch, share):
    """Chunks first to last of a batch; shares are scaled."""
    one = batch.X.dtype.type(1)
    _gather(given.samples, order, begin, end, per, first, last, batch.X, True, one)
    _gather(given.values, order, begin, end, per, first, last, batch.y, True, one)
    _gather(given.weight, order, begin, end, per, first, last, batch.share, False, share)


@jit_inner
def _gather_timed(given, order, begin, end, per, first, last, batch, share):
    """The same for a run in time."""
    one = batch.X.dtype.type(1)
    _gather_batch(given, order, begin, end, per, first, last, batch, share)
    _gather(given.readout, order, begin, end, per, first, last, batch.readout, False, one)
    _gather(given.stop, order, begin, end, per, first, last, batch.stop, False, one)


def epochs_part(course, net, batch, rest, room, given, ledger, moments, pace, record, team):
    """Epochs of steps done + 1, done + 2, ... in place; how many were begun before a loss that is not finite.

    record (epochs, 3) becomes mean loss, share of hits and norm of the last gradient; where a batch is the whole set,
    the last row has the loss and the hits after all steps. `rest` is the batch of fewer samples that ends an epoch, in
    the same rows. A team of threads calls this with the same arrays, but for
    their rooms; what is added up, and in which order, does not depend on how many there are.
    """
    meet(team.gate, team.count)
    if abandoned(team.gate):  # before anything is changed; whoever is in here does not leave
        return 0
    mode = flush_denormals()
    values, order, size, reads, found = ledger.values, pace.order, pace.size, ledger.reads, team.found
    per = batch.per
    n = given.samples.shape[1]
    learned = moments.first.shape[0]
    one = values.dtype.type(1)
    step = 0
    for k in range(record.shape[0]):
        loss, hits, norm = 0.0, 0.0, 0.0
        for begin in range(0, n, size):
            count = min(size, n - begin)
            chunks, parts = (count + per - 1) // per, team.parts[0 if count == size else 1]
            some = batch if count == size else rest
            first, last = _share(reads.shape[0], team)
            read_weights(values, reads, ledger.read_runs, course.ops.holes, net.w, first, last)
            meet(team.gate, team.count)
            for q in range(team.me, parts, team.count):
                first, last = chunks * q // parts, chunks * (q + 1) // parts
                if size < n:
                    end = begin + count
                    _gather_batch(given, order[k], begin, end, per, first, last, batch, one / count)
                found[q, 0] = gradient_part(course, net, some, room, first, last, ledger.entries[q])
                found[q, 1] = _hits(room.scratch)
            meet(team.gate, team.count)
            if parts > 1:
                first, last = _share(ledger.entries.shape[1], team)
                _add_parts(ledger.entries, parts, first, last)
                meet(team.gate, team.count)
            first, last = _share(values.shape[0], team)
            _sum_up(ledger, first, last)
            for e in range(first, min(last, learned), BLOCK):
                end = min(e + BLOCK, learned)
                team.norms[e // BLOCK] = update_block(
                    values, ledger.total, moments, pace.done + step + 1, pace.rates[step], e, end
                )
            meet(team.gate, team.count)
            for q in range(parts):
                loss += found[q, 0] * count / n
                hits += found[q, 1] * count / n
            norm = 0.0
            for e in range(0, learned, BLOCK):
                norm += team.norms[e // BLOCK]
            step += 1
        if team.me == 0:
            record[k, 0], record[k, 1], record[k, 2] = loss, hits, np.sqrt(norm)
        if not np.isfinite(loss):
            restore(mode)
            return k
    if size >= n:  # one pass more tells where the last step has led
        first, last = _share(reads.shape[0], team)
        read_weights(values, reads, ledger.read_runs, course.ops.holes, net.w, first, last)
        meet(team.gate, team.count)
        chunks, parts = batch.X.shape[1], team.parts[0]
        for q in range(team.me, parts, team.count):
            found[q, 0] = loss_part(course, net, batch, room, chunks * q // parts, chunks * (q + 1) // parts)
            found[q, 1] = _hits(room.scratch)
        meet(team.gate, team.count)
        if team.me == 0:
            k = record.shape[0] - 1
            record[k, 0], record[k, 1] = 0.0, 0.0
            for q in range(parts):
                record[k, 0] += found[q, 0]
                record[k, 1] += found[q, 1]
    restore(mode)
    return record.shape[0]


timed_epochs_part = jit(
    variant(
        epochs_part,
        "timed_epochs_part",
        gradient_part=timed_gradient_part,
        loss_part=timed_loss_part,
        _gather_batch=_gather_timed,
    )
)
epochs_part = jit(epochs_part)
