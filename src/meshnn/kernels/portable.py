"""A stream in float32 with the same bits on every machine: what `export/c_learner.py` writes in C, loop by loop.

    s  (n,)   states                             J   influences: of each parameter a column, on the neurons it reaches
    d  (N,)   slopes of a tick                   h   (parameters,) dy / dtheta of one output
    P         covariance, the upper half row by row: P[i, i], P[i, i + 1], ...
    u = P h, S = h' P h

Every number is rounded to float32 after every operation, sums go in the order of the lists, and nothing is called that
another machine could compute otherwise. So loops here are plain, and what is written here is written there.

A column of J is renewed in place: the new one is made in a small room of its own, then written back. Columns whose
parameters reach the same neurons are a group, and share the list of edges among these neurons.

The filter takes one output after the other, which for noise that is independent is the same as all at once. For values
it is the textbook's, with errors far beyond what is expected taken for noisy ones. For a label of yes or no the loss is
taken as it is and only the net is linear, as in `kalman.py`: alpha = r(y + S alpha). A class among several is such a
label, too: of the number that its output exceeds the others by, y_c - log(sum of exp(y_j) over j != c); of two classes
that is all there is to know. P is symmetric since half of it is kept. A variance that one sample makes next to nothing
of is rounding: then so are its covariances, which begin anew.
"""

from __future__ import annotations

import math

import numpy as np

from meshnn.codes import ADAM, BINARY_CROSS_ENTROPY, CROSS_ENTROPY, LEARNED, LEFT_OUT, RESETS, SEEN
from meshnn.kernels import tuples
from meshnn.kernels._jit import jit_strict, jit_strict_inner
from meshnn.kernels.flush import keep_denormals, restore
from meshnn.kernels.strict import activate, strict_exp, strict_log
from meshnn.kernels.tuples import ADVANCE, DERIVE, LEARN, LOOK, MEMO_Q, MEMO_SAMPLES, MEMO_SQUARE

__all__ = ["portable_part"]

f4 = np.float32
ZERO, HALF, ONE = f4(0.0), f4(0.5), f4(1.0)
#: Places in `rule`.
(RATE, CLIP, L2, BETA1, BETA2, EPSILON, TAILS, NOISE_RATE, NOISE_FLOOR, Q_RATE, Q_MIN, Q_MAX, BOUND, CEILING) = range(
    14
)
#: Shares of a variance: what it grows by at least, and what a sample leaves of it.
ROUNDING, LEFT = f4(1e-5), f4(1e-5)
#: Steps to find alpha, and a change of an output that is not worth another.
STEPS, CLOSE = 30, f4(1e-3)
#: As in `kalman.py`: how far a single a counts, and over how many samples.
LARGEST, WINDOW = f4(3.0), f4(100.0)
#: Gradients beyond the first are made smaller by the second, of which the third is the inverse, to be squared.
LONG, SHRINK, GROW = f4(2.0**60), f4(2.0**-64), f4(2.0**64)
#: As in `standardise.py`, with squares that float32 holds.
WILD, WARM, MEMORY, BLOCK, NOTHING = f4(10.0), f4(30.0), f4(2000.0), f4(128.0), f4(1e-4)
FARTHEST, SAME = f4(1e15), f4(1e-6)
CUT, FAR = f4(tuples.CUT), f4(tuples.FAR)


# -- numbers to mean 0 and variance 1 --------------------------------------------------------------------------------


@jit_strict_inner
def _bounded(x, most):
    return most if x > most else (-most if x < -most else x)


@jit_strict_inner
def _deviation(mean, variance):
    """0 if the number has always been the same."""
    deviation = np.sqrt(variance)
    return deviation if deviation > SAME * abs(mean) else ZERO


@jit_strict_inner
def _standardise(x, moments, n, i, cut, missing):
    deviation = _deviation(moments[n + i], moments[2 * n + i])
    if deviation > ZERO and math.isfinite(x):
        return _bounded((_bounded(x, FARTHEST) - moments[n + i]) / deviation, cut)
    return missing


@jit_strict_inner
def _observe(given, moments, n):
    """Rows of `moments`, (7, n) in one: seen, mean, variance, and of a block count, mean, squares, wild ones."""
    for i in range(n):
        if not math.isfinite(given[i]):
            continue
        value = _bounded(given[i], FARTHEST)
        mean, variance = moments[n + i], moments[2 * n + i]
        delta, deviation = value - mean, _deviation(mean, variance)
        if moments[i] >= WARM and deviation > ZERO and abs(delta) > WILD * deviation:
            delta = WILD * deviation if delta > ZERO else -(WILD * deviation)
            moments[6 * n + i] += ONE
        moments[i] += ONE
        rate = ONE / moments[i]
        if rate < ONE / MEMORY:
            rate = ONE / MEMORY
        moments[n + i] = mean + rate * delta
        moments[2 * n + i] = (ONE - rate) * (variance + rate * delta * delta)
        moments[3 * n + i] += ONE
        away = value - moments[4 * n + i]
        moments[4 * n + i] += away / moments[3 * n + i]
        moments[5 * n + i] += away * (value - moments[4 * n + i])
        if moments[3 * n + i] >= BLOCK:
            block = moments[5 * n + i] / BLOCK
            varied = _deviation(moments[4 * n + i], block) > ZERO
            if moments[6 * n + i] > HALF * BLOCK or (varied and block < NOTHING * moments[2 * n + i]):
                moments[i] = BLOCK
                moments[n + i] = moments[4 * n + i]
                moments[2 * n + i] = block
            moments[3 * n + i] = ZERO
            moments[4 * n + i] = ZERO
            moments[5 * n + i] = ZERO
            moments[6 * n + i] = ZERO


# -- states and influences -------------------------------------------------------------------------------------------


@jit_strict_inner
def _carry(net, room, s):
    """The influences after a tick, from those before it and the states before it."""
    J, d, w, column, theta = room.J, room.d, room.w, room.column, room.theta
    at = 0
    for g in range(net.row_ptr.shape[0] - 1):
        first, last = net.row_ptr[g], net.row_ptr[g + 1]
        size, base = last - first, net.sub_ptr[first]
        for q in range(base, net.sub_ptr[last]):
            w[q - base] = theta[net.sub_num[q]]
        for i in range(net.par_ptr[g], net.par_ptr[g + 1]):
            for k in range(size):
                total = ZERO
                for q in range(net.sub_ptr[first + k], net.sub_ptr[first + k + 1]):
                    total += w[q - base] * J[at + net.sub_src[q]]
                column[k] = total
            for e in range(net.edge_ptr[i], net.edge_ptr[i + 1]):
                column[net.edge_row[e]] += s[net.edge_src[e]]
            for k in range(size):
                J[at + k] = column[k] * d[net.rows[first + k]]
            at += size


@jit_strict_inner
def _sample(net, room, s, x, influences):
    """One sample into the states s; with influences it is one that counts."""
    t, d, theta = room.t, room.d, room.theta
    n_inputs, n_clamped = net.n_inputs, net.n_clamped
    if not net.carries:
        for j in range(n_clamped, s.shape[0]):
            s[j] = ZERO
        if influences:
            room.J[:] = ZERO
    for i in range(n_inputs):
        if room.x_moments.shape[0] > 0:
            s[i] = _standardise(x[i], room.x_moments, n_inputs, i, CUT, ZERO)
        else:
            s[i] = x[i] if math.isfinite(x[i]) else ZERO
    for _ in range(net.ticks):
        for r in range(t.shape[0]):
            total = ZERO
            for p in range(net.ptr[r], net.ptr[r + 1]):
                total += theta[net.num[p]] * s[net.col[p]]
            t[r], d[r] = activate(net.code[r], total)
        if influences:
            _carry(net, room, s)
        for r in range(t.shape[0]):
            s[n_clamped + r] = t[r]
    if influences:
        total = ZERO
        for j in range(s.shape[0]):
            total += s[j] * ZERO  # 0, or NaN
        if total != ZERO:
            for j in range(n_clamped, s.shape[0]):
                s[j] = ZERO
            room.J[:] = ZERO
            room.clock[RESETS] += 1


@jit_strict_inner
def _give(net, room, s, out):
    """The outputs among the states, in the units of the targets."""
    C = net.n_outputs
    for o in range(C):
        out[o] = s[s.shape[0] - C + o]
        if room.y_moments.shape[0] > 0:
            out[o] = room.y_moments[C + o] + out[o] * _deviation(room.y_moments[C + o], room.y_moments[2 * C + o])


@jit_strict_inner
def _derivatives(net, room, o, h):
    """h = dy / dtheta of output o."""
    J, C = room.J, net.n_outputs
    h[:] = ZERO
    at = 0
    for g in range(net.row_ptr.shape[0] - 1):
        size, place = net.row_ptr[g + 1] - net.row_ptr[g], net.out_row[g * C + o]
        for i in range(net.par_ptr[g], net.par_ptr[g + 1]):
            if place < size:
                h[net.par[i]] = J[at + place]
            at += size


# -- first order -----------------------------------------------------------------------------------------------------


@jit_strict_inner
def _softmax(net, y, p):
    top, total = y[0], ZERO
    for o in range(1, net.n_outputs):
        if y[o] > top:
            top = y[o]
    for o in range(net.n_outputs):
        p[o] = strict_exp(y[o] - top)
        total += p[o]
    for o in range(net.n_outputs):
        p[o] = p[o] / total


@jit_strict_inner
def _slopes(net, y, target, g):
    """g = dE / dy; whether there is anything to learn."""
    some = False
    if net.loss == CROSS_ENTROPY:
        if not (target[0] >= ZERO and target[0] < f4(net.n_outputs)):
            return False
        _softmax(net, y, g)
        g[np.int64(target[0])] -= ONE
        return True
    for o in range(net.n_outputs):
        g[o] = ZERO
        if not math.isfinite(target[o]):
            continue
        some = True
        if net.loss == BINARY_CROSS_ENTROPY:
            x = strict_exp(-abs(y[o]))
            less = x / (ONE + x)
            g[o] = (ONE - target[o]) - less if y[o] > ZERO else less - target[o]
        else:
            g[o] = y[o] - target[o]
    return some


@jit_strict_inner
def _gradient(net, room, target, grad):
    """By all parameters; whether there is one."""
    y, g, h = room.s[room.s.shape[0] - net.n_outputs :], room.g, room.h
    grad[:] = ZERO
    if not _slopes(net, y, target, g):
        return False
    for o in range(net.n_outputs):
        if g[o] != ZERO:
            _derivatives(net, room, o, h)
            for k in range(h.shape[0]):
                grad[k] += g[o] * h[k]
    return True


@jit_strict_inner
def _shorten(grad, clip):
    """To a length of `clip` at most; whether it was finite."""
    most = ZERO
    for k in range(grad.shape[0]):
        if not math.isfinite(grad[k]):
            return False
        if abs(grad[k]) > most:
            most = abs(grad[k])
    shrink, grow = (SHRINK, GROW) if most > LONG else (ONE, ONE)
    total = ZERO
    for k in range(grad.shape[0]):
        part = grad[k] * shrink
        total += part * part
    norm = np.sqrt(total) * grow
    if norm > clip:
        for k in range(grad.shape[0]):
            grad[k] = grad[k] / norm * clip
    return True


@jit_strict_inner
def _descend(net, room, rule, target):
    """A step of Adam or momentum."""
    grad, theta, first, second, memo = room.u, room.theta, room.first, room.second, room.memo
    if not _gradient(net, room, target, grad):
        return
    if not _shorten(grad, rule[CLIP]):
        room.J[:] = ZERO
        room.clock[LEFT_OUT] += 1
        return
    room.clock[LEARNED] += 1
    rate, l2, beta1, beta2 = rule[RATE], rule[L2], rule[BETA1], rule[BETA2]
    if net.learner == ADAM:
        memo[0] = memo[0] * beta1
        memo[1] = memo[1] * beta2
        step, scale = rate / (ONE - memo[0]), ONE / (ONE - memo[1])
        for k in range(grad.shape[0]):
            g = grad[k] + l2 * theta[k]
            first[k] = beta1 * first[k] + (ONE - beta1) * g
            second[k] = beta2 * second[k] + (ONE - beta2) * g * g
            theta[k] = theta[k] - step * first[k] / (np.sqrt(second[k] * scale) + rule[EPSILON])
    else:
        for k in range(grad.shape[0]):
            first[k] = beta1 * first[k] + (grad[k] + l2 * theta[k])
            theta[k] = theta[k] - rate * first[k]


# -- second order ----------------------------------------------------------------------------------------------------


@jit_strict_inner
def _multiply(P, h, u):
    """u = P h; h' P h."""
    n = h.shape[0]
    u[:] = ZERO
    at = 0
    for i in range(n):
        x, total = h[i], P[at] * h[i]
        at += 1
        for j in range(i + 1, n):
            total += P[at] * h[j]
            u[j] += P[at] * x
            at += 1
        u[i] += total
    S = ZERO
    for i in range(n):
        S += h[i] * u[i]
    return S


@jit_strict_inner
def _alone(P, n, k):
    """Parameter k has no covariances; of n all of them if there is no k."""
    at = 0
    for i in range(n):
        at += 1
        for j in range(i + 1, n):
            if i == k or j == k or k == n:
                P[at] = ZERO
            at += 1


@jit_strict_inner
def _sound(P):
    """Whether all of it is finite."""
    total = ZERO
    for k in range(P.shape[0]):
        total += P[k] * ZERO
    return total == ZERO


@jit_strict_inner
def _subtract(P, u, share):
    """P -= share u u', and variances stay above 0."""
    n = u.shape[0]
    at = 0
    lost = False
    for i in range(n):
        a, least = u[i] * share, P[at] * LEFT
        begin = at
        for j in range(i, n):
            P[at] = P[at] - a * u[j]
            at += 1
        if not P[begin] > least:
            P[begin] = -least  # looked at again below
            lost = True
    if lost:
        at = 0
        for i in range(n):
            if not P[at] > ZERO:
                P[at] = -P[at]
                _alone(P, n, i)
            at += n - i


@jit_strict_inner
def _logistic(y, S, target):
    """alpha = target - p(y + S alpha), between 0 and its value at y; p and its slope p (1 - p), before and after."""
    alpha, low, high = ZERO, ZERO, ZERO
    before, after, p_before, p = ZERO, ZERO, ZERO, ZERO
    for step in range(STEPS):
        eta = y + S * alpha
        x = strict_exp(-abs(eta))
        p = (x if eta < ZERO else ONE) / (ONE + x)
        after = x / ((ONE + x) * (ONE + x))
        left = (target - p) - alpha
        if step == 0:
            before, p_before = after, p
            if left > ZERO:
                high = left
            else:
                low = left
        if left > ZERO:
            low = alpha
        else:
            high = alpha
        proposed = alpha + left / (ONE + after * S)
        if not (proposed > low and proposed < high):
            proposed = HALF * (low + high)
        moved = abs(S * (proposed - alpha))
        alpha = proposed
        if moved < CLOSE:
            break
    return alpha, p_before, p, before, after


@jit_strict_inner
def _margin(net, y, label, g):
    """What the output of a class exceeds the others by; g = its derivative by all outputs."""
    top, total = y[1 if label == 0 else 0], ZERO
    for o in range(net.n_outputs):
        if o != label and y[o] > top:
            top = y[o]
    for o in range(net.n_outputs):
        if o != label:
            g[o] = strict_exp(y[o] - top)
            total += g[o]
    for o in range(net.n_outputs):
        g[o] = ONE if o == label else -(g[o] / total)
    return y[label] - (top + strict_log(total))


@jit_strict_inner
def _take(net, room, rule, c, y, target):
    """One number that depends on the parameters by h, and its target; what the last change did for it.

    Whether it was learned.
    """
    P, h, u, theta, moved = room.P, room.h, room.u, room.theta, room.moved
    n = h.shape[0]
    S = _multiply(P, h, u)
    if S < ZERO:  # no covariance any more
        _alone(P, n, n)
        S = _multiply(P, h, u)
    if not (math.isfinite(S) and math.isfinite(y)):
        if not _sound(P):
            _alone(P, n, n)
        return False
    shift, alike = ZERO, ZERO
    for k in range(n):
        shift += h[k] * moved[k]
        alike += h[k] * room.last[k]
    y = y + shift
    if net.loss == CROSS_ENTROPY or net.loss == BINARY_CROSS_ENTROPY:
        alpha, p_before, p, before, after = _logistic(y, S, target)
        r = target - p_before
        if net.loss == CROSS_ENTROPY:
            p = HALF * (p_before + p)
            after = p * (ONE - p)
        elif before > after:
            after = before
        share = after / (ONE + after * S)
    else:
        error, noise = target - y, room.noise[c]
        expected = noise + S
        judged = noise
        if rule[TAILS] > ZERO:
            weight = (rule[TAILS] + ONE) / (rule[TAILS] + error * error / expected)
            if weight < ONE:
                judged = expected / weight - S
        share = ONE / (S + judged)
        alpha = error * share
        r = error / judged
        if rule[NOISE_RATE] > ZERO:
            rate = ONE / (room.memo[MEMO_SAMPLES] + ONE)
            if rate < rule[NOISE_RATE]:
                rate = rule[NOISE_RATE]
            square = error * error
            if not square < f4(25.0) * expected:
                square = f4(25.0) * expected
            square = square - S
            if square < ZERO:
                square = ZERO
            noise = noise + rate * (square - noise)
            room.noise[c] = noise if noise > rule[NOISE_FLOOR] else rule[NOISE_FLOOR]
    if not (math.isfinite(alpha) and math.isfinite(share)):
        return False
    room.g[c] = r * alike
    for k in range(n):
        after = _bounded(theta[k] + alpha * u[k], rule[BOUND])
        moved[k] += after - theta[k]
        theta[k] = after
    _subtract(P, u, share)
    return True


@jit_strict_inner
def _forget(net, room, rule, alike):
    """What the sample leaves: another q, larger variances, parameters a little nearer to 0."""
    memo, P, theta, n = room.memo, room.P, room.theta, room.h.shape[0]
    if rule[Q_RATE] > ZERO:
        memo[MEMO_SQUARE] += (alike * alike - memo[MEMO_SQUARE]) / WINDOW
        if memo[MEMO_SQUARE] > ZERO and math.isfinite(memo[MEMO_SQUARE]):
            q = memo[MEMO_Q] * strict_exp(rule[Q_RATE] * _bounded(alike / np.sqrt(memo[MEMO_SQUARE]), LARGEST))
            q = rule[Q_MIN] if q < rule[Q_MIN] else q
            memo[MEMO_Q] = rule[Q_MAX] if q > rule[Q_MAX] else q
        else:
            memo[MEMO_SQUARE] = ZERO
    q, ceiling = memo[MEMO_Q], rule[CEILING]
    steep = q / ceiling
    fade = HALF * steep
    fade = ONE - (HALF if fade > HALF else fade)
    at = 0
    for k in range(n):
        v = P[at]
        more = q - v * steep
        v = v * (ONE + ROUNDING) + (more if more > ZERO else ZERO)
        P[at] = v if v < ceiling else ceiling
        at += n - k
        theta[k] = theta[k] * fade
        room.last[k] = room.moved[k]
    memo[MEMO_SAMPLES] += ONE


@jit_strict_inner
def _filter(net, room, rule, target):
    """An update of the Kalman filter."""
    C, h, g = net.n_outputs, room.h, room.g
    y = room.s[room.s.shape[0] - C :]
    alike, learned, failed = ZERO, False, False
    room.moved[:] = ZERO
    if net.loss == CROSS_ENTROPY:
        if not (C > 1 and target[0] >= ZERO and target[0] < f4(C)):
            return
        margin = _margin(net, y, np.int64(target[0]), g)
        u = room.u
        for k in range(h.shape[0]):
            u[k] = ZERO
        for o in range(C):
            _derivatives(net, room, o, h)
            for k in range(h.shape[0]):
                u[k] += g[o] * h[k]
        for k in range(h.shape[0]):
            h[k] = u[k]
        learned = _take(net, room, rule, 0, margin, ONE)
        failed = not learned
        alike = g[0]
    else:
        for c in range(C):
            if math.isfinite(target[c]):
                _derivatives(net, room, c, h)
                if _take(net, room, rule, c, y[c], target[c]):
                    alike += g[c]
                    learned = True
                else:
                    failed = True
    if failed:
        room.J[:] = ZERO
        room.clock[LEFT_OUT] += 1
    if learned:
        room.clock[LEARNED] += 1
        _forget(net, room, rule, alike)


# -- all of it -------------------------------------------------------------------------------------------------------


@jit_strict_inner
def _learn(net, room, rule, given, derive):
    """A target (m,), NaN where missing."""
    target, C = room.target, net.n_outputs
    for m in range(target.shape[0]):
        target[m] = given[m]
        if room.y_moments.shape[0] > 0:
            target[m] = _standardise(given[m], room.y_moments, C, m, FAR, f4(math.nan))
    if derive:
        _gradient(net, room, target, room.u)
        return
    if net.filters:
        _filter(net, room, rule, target)
    else:
        _descend(net, room, rule, target)
    if room.y_moments.shape[0] > 0:
        _observe(given, room.y_moments, C)


@jit_strict
def portable_part(net, room, rule, mode, X, Y, out):
    """Samples X (T, n_inputs) and targets Y (T, m), NaN where missing; outputs go to out (T, n_outputs).

    `mode` as in `streams.py`; the gradient of DERIVE is left in `u`.
    """
    before = keep_denormals()
    for t in range(max(X.shape[0], Y.shape[0])):
        if mode & LOOK:
            for j in range(room.s.shape[0]):
                room.other[j] = room.s[j]
            _sample(net, room, room.other, X[t], False)
            _give(net, room, room.other, out[t])
        if mode & ADVANCE:
            _sample(net, room, room.s, X[t], True)
            _give(net, room, room.s, out[t])
            room.clock[SEEN] += 1
            if room.x_moments.shape[0] > 0:
                _observe(X[t], room.x_moments, net.n_inputs)
        if mode & (LEARN | DERIVE) and room.clock[SEEN] > 0:
            _learn(net, room, rule, Y[t], mode & DERIVE > 0)
    restore(before)
