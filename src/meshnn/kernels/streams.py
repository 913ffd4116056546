"""Samples of B streams beside each other: run them, carry the influences on, learn. Edges innermost, streams outermost.

One entry point does all, chosen by `mode`, so that there is one thing to compile:

    ADVANCE  inputs in, states and influences on, outputs out
    LOOK     inputs in, outputs out; nothing is remembered
    LEARN    targets of the sample `lag` samples ago in, parameters changed
    DERIVE   the same, but the gradient is left in `grad` and nothing is changed

Of the numbers that a stream holds none can become infinite or NaN for good: a state that is not finite is set to 0 with
its influences, a gradient that is not finite is left out, one that is too long is shortened to `clip`; and the filter
bounds itself (`kalman.py`).
"""

from __future__ import annotations

import math

import numpy as np

from meshnn.codes import CROSS_ENTROPY, LEARNED, LEFT_OUT, RANDOM, RESETS, SEEN, STORED
from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.influence import stream_tick
from meshnn.kernels.kalman import choose, kalman_steady, kalman_update, kalman_variance
from meshnn.kernels.losses import loss_chunk
from meshnn.kernels.standardise import observe, standardise, unstandardise
from meshnn.kernels.steps import update_block
from meshnn.kernels.tuples import ADVANCE, AT_ONCE, BLOCK, CUT, DERIVE, FAR, LEARN, LOOK, Filter

__all__ = ["stream_part", "variance_part"]

#: Samples that must be stored before one is learned from again.
LEAST = 10


@jit_inner
def _read_weights(values, reads, w):
    """The weights of the course from the numbers that edges take theirs from."""
    for p in range(w.shape[0]):
        w[p] = values[np.uint64(reads[p])]


@jit_inner
def _finite(s):
    total = s.dtype.type(0)
    for j in range(s.shape[0]):
        total += s[j] * s.dtype.type(0)  # 0, or NaN
    return total == 0


@jit_inner
def _clear(s, first):
    for j in range(first, s.shape[0]):
        s[j] = 0


@jit_inner
def _sample(course, room, b, x, carries, influences):
    """One sample of stream b; the outputs are the last states, of `other` if influences are not carried on."""
    turns, n_inputs, n_clamped = course.turns, course.n_inputs, course.n_clamped
    s, J, side, T, D, w = room.s[b], room.J[b], room.side, room.T, room.D, room.w
    after = s
    if not influences:  # a look: what comes of it is forgotten
        after = room.other
        for j in range(s.shape[0]):
            after[j] = s[j]
    if not carries:
        _clear(after, n_clamped)
    seen = x
    if room.x_moments.shape[1] > 0:
        seen = room.x
        standardise(x, room.x_moments, CUT, 0.0, seen)
    for i in range(n_inputs):
        after[i] = seen[i]
    for k in range(turns.shape[0]):
        now = side[b]
        stream_tick(course, turns[k], w, after, after, J[now], J[1 - now], T, room.t, D, room.d, room.panel, influences)
        if influences:
            side[b] = 1 - now
    if influences and not _finite(s):
        _clear(s, n_clamped)
        _clear(J[0], 0)
        _clear(J[1], 0)
        room.clock[RESETS] += 1


@jit_inner
def _give(room, s, out):
    """The outputs among the states, in the units of the targets."""
    first = s.shape[0] - out.shape[0]
    if room.y_moments.shape[1] > 0:
        unstandardise(s[first:], room.y_moments, out)
    else:
        for o in range(out.shape[0]):
            out[o] = s[first + o]


@jit_inner
def _write_row(course, J, o, row):
    """The derivatives of output o of one stream by all parameters, from the influences of now."""
    outputs, numbers = course.outputs, course.numbers
    for e in range(row.shape[0]):
        row[e] = 0
    first, last, at = outputs[o, 0], outputs[o, 1], outputs[o, 2]
    for k in range(last - first):
        row[np.uint64(numbers[first + k])] += J[np.uint64(at + k)]


@jit_inner
def _write_derivatives(course, J, H):
    """H becomes dy/dtheta of one stream, from the influences of now."""
    for o in range(H.shape[0]):
        _write_row(course, J, o, H[o])


@jit_inner
def _add_run(into, given, factor):
    for k in range(into.shape[0]):
        into[k] += factor * given[k]


@jit_inner
def _add_gradient(course, runs, J, H, late, G, lane, grad):
    """Add the gradient of one stream, from the influences of now or from the derivatives of then."""
    outputs, numbers = course.outputs, course.numbers
    for o in range(outputs.shape[0]):
        g = G[o, lane]
        if g == 0:
            continue
        if late:
            _add_run(grad[: H.shape[1]], H[o], g)
            continue
        first, last, at = outputs[o, 0], outputs[o, 1], outputs[o, 2]
        for r in range(runs.shape[0]):
            a, b, e = max(runs[r, 0], first), min(runs[r, 1], last), runs[r, 2]
            if a >= b:
                continue
            if e >= 0:
                e += a - runs[r, 0]
                _add_run(grad[e : e + b - a], J[at + a - first : at + b - first], g)
            else:
                for k in range(a, b):
                    grad[numbers[k]] += g * J[at + k - first]


@jit_inner
def _slopes(room, code, Y, first, count):
    """dE/dY of the streams first to first + count into G; 0 where a target, or a part of it, is missing."""
    L = width(room.G)
    out, y, share, G = room.Y, room.y, room.share, room.G
    parts = y.shape[0] == G.shape[0]  # a target for each output, of which some may be missing
    for l in range(L):
        b = first + min(l, count - 1)
        there = l < count
        for m in range(y.shape[0]):
            target = Y[b, m]
            y[m, l] = target if target == target else 0
            there = there and (parts or target == target)
        share[0, l] = 1 if there else 0
    loss_chunk(code, out, y, share, G, room.scratch)
    for l in range(count):
        for o in range(G.shape[0]):
            if parts and Y[first + l, o] != Y[first + l, o]:
                G[o, l] = 0


@jit_inner
def _there(target):
    """Whether any part of a target is."""
    some = False
    for m in range(target.shape[0]):
        some = some or target[m] == target[m]
    return some


@jit_inner
def _descend(course, room, ledger, moments, pace, lag, derive):
    """A step of Adam or momentum along the gradient of all streams that have a target."""
    grad, Y, L = room.grad, room.target, width(room.G)
    J, side, clock = room.J, room.side, room.clock
    B, depth = room.s.shape[0], room.past_slopes.shape[0]
    slot = (clock[SEEN] - 1 - lag) % max(depth, 1)
    late = lag > 0
    for e in range(grad.shape[0]):
        grad[e] = 0
    first_output = room.s.shape[1] - room.G.shape[0]
    counted = 0
    for first in range(0, B, L):
        count = min(L, B - first)
        for l in range(L):
            b = first + min(l, count - 1)
            for o in range(room.Y.shape[0]):
                room.Y[o, l] = room.past_outputs[slot, b, o] if late else room.s[b, first_output + o]
        _slopes(room, ledger.loss, Y, first, count)
        for l in range(count):
            b = first + l
            if _there(Y[b]):
                counted += 1
                H = room.past_slopes[slot, b] if late else room.H
                _add_gradient(course, ledger.runs, J[b, side[b]], H, late, room.G, l, grad)
    if counted == 0:
        return
    N = room.H.shape[1]
    norm = 0.0
    share = grad.dtype.type(1.0 / counted)
    for e in range(N):
        grad[e] *= share
        norm += np.float64(grad[e]) * np.float64(grad[e])
    if derive:
        return
    if not norm < np.inf:
        clock[LEFT_OUT] += 1
        return
    norm = np.sqrt(norm)
    if norm > pace.clip:
        shorter = grad.dtype.type(pace.clip / norm)
        for e in range(N):
            grad[e] *= shorter
    clock[LEARNED] += 1
    for e in range(0, N, BLOCK):
        update_block(ledger.values, grad, moments, clock[LEARNED], pace.rate, e, min(e + BLOCK, N))
    _read_weights(ledger.values, ledger.reads, room.w)


@jit_inner
def _filter(course, room, ledger, filter_, H, y, target, fresh):
    """An update of the Kalman filter."""
    N = H.shape[1]
    found = kalman_update(ledger.values[:N], filter_, H, y, target, ledger.loss, fresh, -np.inf)
    _filtered(room, ledger, found, target)


@jit_inner
def _filtered(room, ledger, found, target):
    """Count an update, and look at the parameters again."""
    if found == found:
        room.clock[LEARNED] += 1
        _read_weights(ledger.values, ledger.reads, room.w)
    elif _there(target):
        room.clock[LEFT_OUT] += 1


@jit_inner
def _many_classes(room, ledger):
    """Whether there are more of them than a sample is learned with."""
    return ledger.loss == CROSS_ENTROPY and room.G.shape[0] > AT_ONCE


@jit_inner
def _filter_few(course, room, ledger, f, J, late, y, target, fresh):
    """An update with the class of the sample and the likeliest others; derivatives are those of now, or `late` ones."""
    N, K = room.H.shape[1], AT_ONCE
    rest = choose(y, np.int64(target[0]), K, f.chosen)
    for k in range(K):
        f.few[k] = y[f.chosen[k]]
        if late.shape[0] > 0:
            for e in range(N):
                room.H[k, e] = late[f.chosen[k], e]
        else:
            _write_row(course, J, f.chosen[k], room.H[k])
    f.few[K] = 0.0  # the place of the sample's class among those chosen
    m = f.order.shape[0]
    few = Filter(f.P, f.order, f.first, f.offset, f.taken, f.memo, f.rule,
                 f.H.reshape(-1)[: K * m].reshape(K, m), f.U.reshape(-1)[: K * m].reshape(K, m),
                 f.S.reshape(-1)[: K * K].reshape(K, K), f.L.reshape(-1)[: K * K].reshape(K, K),
                 f.T.reshape(-1)[: K * K].reshape(K, K), f.M.reshape(-1)[: K * K].reshape(K, K),
                 f.v.reshape(-1)[: 8 * K].reshape(8, K), f.chosen, f.few)  # fmt: skip
    found = kalman_update(ledger.values[:N], few, room.H[:K], f.few[:K], f.few[K : K + 1], ledger.loss, fresh, rest)
    _filtered(room, ledger, found, target)


@jit_inner
def _filter_all(course, room, ledger, filter_, lag):
    """The targets of all streams, one after the other."""
    J, side, clock = room.J, room.side, room.clock
    slot = (clock[SEEN] - 1 - lag) % max(room.past_slopes.shape[0], 1)
    first = room.s.shape[1] - room.G.shape[0]
    for b in range(room.s.shape[0]):
        if not _there(room.target[b]):
            continue
        if _many_classes(room, ledger):
            late = room.past_slopes[slot, b] if lag > 0 else room.H[:0]
            y = room.past_outputs[slot, b] if lag > 0 else room.s[b, first:]
            _filter_few(course, room, ledger, filter_, J[b, side[b]], late, y, room.target[b], True)
        elif lag > 0:
            _filter(
                course,
                room,
                ledger,
                filter_,
                room.past_slopes[slot, b],
                room.past_outputs[slot, b],
                room.target[b],
                True,
            )
        else:
            _write_derivatives(course, J[b, side[b]], room.H)
            _filter(course, room, ledger, filter_, room.H, room.s[b, first:], room.target[b], True)


@jit_inner
def _scale_targets(room, Y):
    """Into `target`, as the net gives them."""
    for b in range(Y.shape[0]):
        if room.y_moments.shape[1] > 0:
            standardise(Y[b], room.y_moments, FAR, math.nan, room.target[b])
        else:
            for m in range(Y.shape[1]):
                room.target[b, m] = Y[b, m]


@jit_inner
def _replay(course, room, ledger, filter_, Y):
    """Learn once more from a sample of before, if the stream stands still; then store the last one."""
    x, clock, places = room.last, room.clock, room.past_x.shape[0]
    count = min(clock[STORED], places)
    if count >= LEAST and kalman_steady(filter_):
        # Knuth's generator of 64 bits; the upper ones are the random ones
        clock[RANDOM] = clock[RANDOM] * 6364136223846793005 + 1442695040888963407
        k = np.int64((np.uint64(clock[RANDOM]) >> np.uint64(33)) % np.uint64(count))
        _sample(course, room, 0, room.past_x[k], False, True)
        _scale_targets(room, room.past_t[k : k + 1])
        J, y = room.J[0, room.side[0]], room.s[0, room.s.shape[1] - room.G.shape[0] :]
        if _many_classes(room, ledger):
            _filter_few(course, room, ledger, filter_, J, room.H[:0], y, room.target[0], False)
        else:
            _write_derivatives(course, J, room.H)
            _filter(course, room, ledger, filter_, room.H, y, room.target[0], False)
    k = clock[STORED] % places
    for i in range(x.shape[0]):
        room.past_x[k, i] = x[i]
    for m in range(Y.shape[0]):
        room.past_t[k, m] = Y[m]
    clock[STORED] += 1


@jit
def stream_part(course, room, ledger, moments, filter_, pace, mode, X, Y, lag, out):
    """Samples X (T, B, n_inputs) and targets Y (T, B, m), NaN where missing; outputs go to out (T, B, n_outputs).

    Targets are those of `lag` samples before.
    """
    state = flush_denormals()
    clock, J, side = room.clock, room.J, room.side
    B, depth = room.s.shape[0], room.past_slopes.shape[0]
    carries, filters, again = pace.carries > 0, pace.filters > 0, room.past_x.shape[0] > 0
    first = room.s.shape[1] - room.G.shape[0]
    advances, learns = mode & ADVANCE > 0, mode & (LEARN | DERIVE) > 0
    for t in range(max(X.shape[0], Y.shape[0])):
        if mode & (ADVANCE | LOOK):
            for b in range(B):
                _sample(course, room, b, X[t, b], carries, advances)
                if advances:
                    _give(room, room.s[b], out[t, b])
                else:
                    _give(room, room.other, out[t, b])
        if advances:
            clock[SEEN] += 1
            if room.x_moments.shape[1] > 0:
                for b in range(B):
                    observe(X[t, b], room.x_moments)
            if again:
                for i in range(X.shape[2]):
                    room.last[i] = X[t, 0, i]
            if depth > 0:
                slot = (clock[SEEN] - 1) % depth
                for b in range(B):
                    _write_derivatives(course, J[b, side[b]], room.past_slopes[slot, b])
                    for o in range(room.G.shape[0]):
                        room.past_outputs[slot, b, o] = room.s[b, first + o]
        if learns and clock[SEEN] > lag:
            _scale_targets(room, Y[t])
            if filters and mode & LEARN:
                _filter_all(course, room, ledger, filter_, lag)
            else:
                _descend(course, room, ledger, moments, pace, lag, mode & DERIVE > 0)
            if mode & LEARN:
                if again and lag == 0 and _there(Y[t, 0]):
                    _replay(course, room, ledger, filter_, Y[t, 0])
                if room.y_moments.shape[1] > 0:
                    for b in range(B):
                        observe(Y[t, b], room.y_moments)
    restore(state)


@jit
def variance_part(course, room, filter_, out):
    """What the filter does not know about the outputs of the last sample, (B, n_outputs), as the net gives them."""
    for b in range(room.s.shape[0]):
        _write_derivatives(course, room.J[b, room.side[b]], room.H)
        kalman_variance(filter_, room.H, out[b])
