"""The extended Kalman filter: what one sample says about all parameters, at once.

    H  (C, N)  dy / dtheta             U = H P, S = H P H'  (C, C)   what the filter does not know about y yet
    y  (C,)    outputs                 r = - dE / dy        (C,)     at outputs eta
    P          covariance of theta     A = L L'             (C, C)   d2E / dy2, positive

The textbook's step takes the loss E for a parabola at y, which far from the target is wrong by orders of magnitude: one
surprise throws the net away. Here the loss is taken as it is; only the net is linear. The new outputs are the ones that
minimise E(eta) + (eta - y)' S^-1 (eta - y) / 2, that is

    eta = y + S alpha,   alpha = r(eta)          a few steps of Newton's method in C numbers, with halving
    theta += U' alpha                            which needs no gate: alpha is as bounded as the slope of the loss
    P -= B' B,   B = M^-1 L' U,   M M' = I + L' S L      A halfway between before and after

For squared errors this is the textbook's filter. All outputs are taken in one step: with C classes the curvature of the
softmax couples them. S may be singular, and A is (for classes): neither is inverted. A step takes C^3; so of more than
`AT_ONCE` classes it takes the one of the sample and the likeliest others, and the outputs of the rest count as
constants in the softmax: what is far from likely hardly has a slope.

q, by which variances grow after every sample, is found from the stream. Were the filter right about its own errors, its
last step would neither help nor hurt the next sample; if steps go on to help, they are too short and the stream moves:
log q += rate * (a / root mean square of a), a = r' H dtheta, with the last change dtheta.
"""

from __future__ import annotations

import math

from meshnn.codes import BINARY_CROSS_ENTROPY, CROSS_ENTROPY, HUBER, HUBER_WIDTH, POISSON, SQUARED_ERROR
from meshnn.kernels._jit import jit_inline, jit_inner
from meshnn.kernels.covariance import inflate, multiply, subtract
from meshnn.kernels.tuples import LOG_Q, MEAN_SQUARE, NOISE, SAMPLES

__all__ = ["choose", "kalman_steady", "kalman_update", "kalman_variance"]

#: Places in `rule`, see `KalmanSettings`.
TAILS, NOISE_RATE, NOISE_FLOOR, Q_RATE, Q_MIN, Q_MAX, Q_STEADY, REPLAY_WEIGHT, BOUND, CEILING = range(10)
#: Steps of Newton's method at most, and halvings of one.
NEWTON_STEPS, HALVINGS = 30, 12
#: A change of the outputs that is not worth another step.
CLOSE = 1e-3
#: Largest logarithm of a rate.
FAR = 40.0
#: A single a counts as this many root mean squares at most, and that of the last so many samples is looked at.
LARGEST, WINDOW = 3.0, 100.0


@jit_inner
def choose(y, right, most, chosen):
    """Class `right` and the likeliest others into the first `most` of chosen, the rest behind them.

    The logarithm of what the rest adds to the sum of the softmax.
    """
    n = y.shape[0]
    chosen[0] = right
    count, end = 1, n
    for c in range(n):
        if c == right:
            continue
        if count == most:
            end -= 1
            if not y[c] > y[chosen[most - 1]]:
                chosen[end] = c
                continue
            chosen[end] = chosen[most - 1]
            count -= 1
        k = count
        while k > 1 and y[chosen[k - 1]] < y[c]:
            chosen[k] = chosen[k - 1]
            k -= 1
        chosen[k] = c
        count += 1
    top, total = y[chosen[most]], 0.0
    for k in range(most + 1, n):
        top = max(top, y[chosen[k]])
    for k in range(most, n):
        total += math.exp(y[chosen[k]] - top)
    return top + math.log(total)


@jit_inner
def _respond(code, eta, target, noise, weight, rest, r, A):
    """The loss at outputs eta, its slope -r and its curvature: A, or for classes diag(A) - A A'."""
    n = eta.shape[0]
    loss = 0.0
    if code == CROSS_ENTROPY:
        top, total = eta[0], 0.0
        for c in range(1, n):
            top = max(top, eta[c])
        if rest > -math.inf:
            top = max(top, rest)
        for c in range(n):
            A[c] = math.exp(eta[c] - top)
            total += A[c]
        if rest > -math.inf:
            total += math.exp(rest - top)
        for c in range(n):
            A[c] /= total
            r[c] = -weight * A[c]
        right = int(target[0])
        r[right] += weight
        return weight * (math.log(total) + top - eta[right])
    for c in range(n):
        t = target[c]
        if math.isnan(t):
            r[c], A[c] = 0.0, 0.0
        elif code == BINARY_CROSS_ENTROPY:
            small = math.exp(-abs(eta[c]))
            p = (1.0 if eta[c] >= 0.0 else small) / (1.0 + small)
            r[c], A[c] = weight * (t - p), weight * p * (1.0 - p)
            loss += weight * (math.log1p(small) + max(eta[c], 0.0) - t * eta[c])
        elif code == POISSON:
            rate = math.exp(min(eta[c], FAR))
            r[c], A[c] = weight * (t - rate), weight * rate
            loss += weight * (rate - t * eta[c])
        else:
            error, share = t - eta[c], weight / noise[c]
            r[c], A[c] = share * error, share
            loss += 0.5 * share * error * error
    return loss


@jit_inner
def _factor(code, A, weight, rest, S, L, T, M):
    """L of the curvature, T = L' S, and the lower M of M M' = I + L' S L, whose pivots are at least 1."""
    n = A.shape[0]
    coupled = code == CROSS_ENTROPY
    for c in range(n):
        root = math.sqrt(weight * A[c]) if coupled else math.sqrt(A[c])
        for j in range(n):
            L[j, c] = root * ((1.0 if j == c else 0.0) - (A[j] if coupled else 0.0))
    if coupled and rest > -math.inf:  # probabilities add up to less than 1: L L' = diag(A) - A A' all the same
        left = 1.0
        for c in range(n):
            left -= A[c]
        share = 1.0 / (1.0 + math.sqrt(max(left, 0.0)))
        for c in range(n):
            root = math.sqrt(weight * A[c])
            for j in range(n):
                L[j, c] = root * ((1.0 if j == c else 0.0) - share * A[j])
    for c in range(n):
        for j in range(n):
            T[c, j] = 0.0
        for k in range(n):
            for j in range(n):
                T[c, j] += L[k, c] * S[k, j]
    for c in range(n):
        for j in range(c + 1):
            total = 1.0 if c == j else 0.0
            for k in range(n):
                total += T[c, k] * L[k, j]
            for k in range(j):
                total -= M[c, k] * M[j, k]
            M[c, j] = math.sqrt(max(total, 1.0)) if c == j else total / M[j, j]


@jit_inner
def _direction(r, alpha, L, T, M, d, x):
    """Newton's step in alpha: (I + A S)^-1 (r - alpha), by M."""
    n = r.shape[0]
    for c in range(n):
        total = 0.0
        for k in range(n):
            total += T[c, k] * (r[k] - alpha[k])
        for k in range(c):
            total -= M[c, k] * x[k]
        x[c] = total / M[c, c]
    for c in range(n - 1, -1, -1):
        total = x[c]
        for k in range(c + 1, n):
            total -= M[k, c] * x[k]
        x[c] = total / M[c, c]
    for c in range(n):
        total = r[c] - alpha[c]
        for k in range(n):
            total -= L[c, k] * x[k]
        d[c] = total


@jit_inline
def _empty(row):
    """Whether there is nothing but zeros, as for the readout of another output."""
    for j in range(row.shape[0]):
        if row[j] != 0.0:
            return False
    return True


@jit_inner
def _multiply_blocks(f):
    """The lower half of S = U H', block by block."""
    n = f.U.shape[0]
    for c in range(n):
        for k in range(c + 1):
            f.S[c, k] = 0.0
        for g in range(f.offset.shape[0]):
            first, last = f.first[g], f.first[g + 1]
            if not _empty(f.U[c, first:last]):
                for k in range(c + 1):
                    total = 0.0
                    for j in range(first, last):
                        total += f.U[c, j] * f.H[k, j]
                    f.S[c, k] += total


@jit_inner
def _spread(f, H, sparse):
    """H in the order of the blocks, U = H P, S = H P H'; whether all of S is finite.

    If it is sparse, blocks that an output does not depend on are left out of S: of many outputs these are most.
    """
    n, m = H.shape[0], f.order.shape[0]
    for c in range(n):
        for j in range(m):
            k = f.order[j]
            f.H[c, j] = H[c, k] if k >= 0 else 0.0
        for g in range(f.offset.shape[0]):
            first, last = f.first[g], f.first[g + 1]
            if _empty(f.H[c, first:last]):
                f.U[c, first:last] = 0.0
            else:
                multiply(f.P, f.offset[g], f.H[c, first:last], f.U[c, first:last])
    if sparse:
        _multiply_blocks(f)
    good = True
    for c in range(n):
        for k in range(c + 1):
            total = 0.0
            if sparse:
                total = f.S[c, k]
            else:
                for j in range(m):
                    total += f.U[c, j] * f.H[k, j]
            if k == c:
                total = max(total, 0.0)
            good = good and math.isfinite(total)
            f.S[c, k] = total
            f.S[k, c] = total
    return good


@jit_inner
def _noises(code, y, target, S, noise, tails, out):
    """The noise that each output's error is judged by: an error that is far too large is taken for a noisy one."""
    for c in range(y.shape[0]):
        out[c] = noise[c]
        error = abs(target[c] - y[c])
        if code == HUBER and error > HUBER_WIDTH:
            out[c] = noise[c] * error / HUBER_WIDTH
        elif code == SQUARED_ERROR and tails > 0.0:
            expected = noise[c] + S[c, c]
            weight = (tails + 1.0) / (tails + error * error / expected)
            if weight < 1.0:
                out[c] = expected / weight - S[c, c]


@jit_inner
def _solve(code, y, target, weight, rest, f):
    """alpha, and L and M of the curvature halfway; the loss before."""
    n = y.shape[0]
    eta, r, A, before, alpha, d, x, noise = f.v[0], f.v[1], f.v[2], f.v[3], f.v[4], f.v[5], f.v[6], f.v[7]
    for c in range(n):
        eta[c], alpha[c] = y[c], 0.0
    loss = _respond(code, eta, target, noise, weight, rest, r, A)
    for c in range(n):
        before[c] = A[c]
    height = loss
    squared = code == SQUARED_ERROR or code == HUBER
    for _ in range(1 if squared else NEWTON_STEPS):
        _factor(code, A, weight, rest, f.S, f.L, f.T, f.M)
        _direction(r, alpha, f.L, f.T, f.M, d, x)
        for c in range(n):
            x[c] = alpha[c]
        part, moved, now = 1.0, 0.0, height
        for _h in range(HALVINGS):
            moved, now = 0.0, 0.0
            for c in range(n):
                alpha[c] = x[c] + part * d[c]
            for c in range(n):
                total = 0.0
                for k in range(n):
                    total += f.S[c, k] * alpha[k]
                moved = max(moved, abs(y[c] + total - eta[c]))
                eta[c] = y[c] + total
                now += 0.5 * alpha[c] * total
            now += _respond(code, eta, target, noise, weight, rest, r, A)
            if now <= height + 1e-12:
                break
            part *= 0.5
        height = now
        if moved < CLOSE:
            break
    for c in range(n):
        A[c] = max(A[c], before[c]) if code == BINARY_CROSS_ENTROPY else 0.5 * (A[c] + before[c])
    _factor(code, A, weight, rest, f.S, f.L, f.T, f.M)
    return loss


@jit_inline
def _scale(row, share):
    for j in range(row.shape[0]):
        row[j] *= share


@jit_inline
def _add(to, share, row):
    if share != 0.0:
        for j in range(row.shape[0]):
            to[j] += share * row[j]


@jit_inner
def _learn(f):
    """P -= B' B. U is used up."""
    n = f.v.shape[1]
    x = f.v[6]
    for g in range(f.offset.shape[0]):
        first, last = f.first[g], f.first[g + 1]
        active, which = 0, 0
        for c in range(n):
            if not _empty(f.U[c, first:last]):
                active, which = active + 1, c
        if active == 1:
            # rank one, as of every readout in a block of its own
            share = 0.0
            for c in range(n):
                total = f.L[which, c]
                for k in range(c):
                    total -= f.M[c, k] * x[k]
                x[c] = total / f.M[c, c]
                share += x[c] * x[c]
            _scale(f.U[which, first:last], math.sqrt(share))
            subtract(f.P, f.offset[g], f.U[which, first:last])
        elif active > 1:
            for c in range(n):
                B = f.H[c, first:last]
                B[:] = 0.0
                for k in range(n):
                    _add(B, f.L[k, c], f.U[k, first:last])
                for k in range(c):
                    _add(B, -f.M[c, k], f.H[k, first:last])
                _scale(B, 1.0 / f.M[c, c])
                subtract(f.P, f.offset[g], B)


@jit_inner
def _find_q(f, H, last):
    """Longer or shorter steps: did the last one help this sample? Reads the slope at the sample's outputs."""
    r, alike = f.v[1], 0.0
    for c in range(H.shape[0]):
        total = 0.0
        for j in range(last.shape[0]):
            total += H[c, j] * last[j]
        alike += r[c] * total
    memo, rule = f.memo, f.rule
    memo[MEAN_SQUARE] += (alike * alike - memo[MEAN_SQUARE]) / WINDOW
    if memo[MEAN_SQUARE] > 0.0 and math.isfinite(memo[MEAN_SQUARE]):
        score = alike / math.sqrt(memo[MEAN_SQUARE])
        grown = memo[LOG_Q] + rule[Q_RATE] * min(max(score, -LARGEST), LARGEST)
        memo[LOG_Q] = min(max(grown, rule[Q_MIN]), rule[Q_MAX])
    else:
        memo[MEAN_SQUARE] = 0.0


@jit_inner
def _find_noise(f, y, target):
    """What is left of the squared errors without what the filter expects of itself; outliers are cut to five sigma."""
    noise, rate = f.memo[NOISE:], f.rule[NOISE_RATE]
    rate = max(rate, 1.0 / (f.memo[SAMPLES] + 1.0))
    for c in range(y.shape[0]):
        if not math.isnan(target[c]):
            error = target[c] - y[c]
            square = min(error * error, 25.0 * (noise[c] + f.S[c, c]))
            left = max(square - f.S[c, c], 0.0)
            noise[c] = max(noise[c] + rate * (left - noise[c]), f.rule[NOISE_FLOOR])


@jit_inner
def kalman_update(theta, f, H, y, target, code, fresh, rest=-math.inf):
    """Learn from one sample: theta, f.P and f.memo change in place. The loss before, or NaN if nothing was learned.

    target (C,): a class at 0, or values; NaN where it is missing. Samples that are not `fresh` are replayed ones: they
    mend what the net, taken for linear, made of them before. They count less, and what they say is in P already. `rest`
    is what `choose` gives, if these are not all classes.
    """
    n = y.shape[0]
    seen = False
    for c in range(n):
        if not math.isfinite(y[c]):
            return math.nan
        seen = seen or (math.isfinite(target[c]) and (c == 0 or code != CROSS_ENTROPY))
    if not seen or math.isnan(rest) or not _spread(f, H, rest > -math.inf):
        return math.nan
    memo, rule = f.memo, f.rule
    last = memo[memo.shape[0] - theta.shape[0] :]
    weight = 1.0 if fresh else rule[REPLAY_WEIGHT]
    _noises(code, y, target, f.S, memo[NOISE:], rule[TAILS], f.v[7])
    if fresh and rule[Q_RATE] > 0.0 and memo[SAMPLES] > 0.0:
        _respond(code, y, target, f.v[7], 1.0, rest, f.v[1], f.v[2])
        _find_q(f, H, last)
    loss = _solve(code, y, target, weight, rest, f)
    alpha = f.v[4]
    for j in range(f.order.shape[0]):
        k = f.order[j]
        if k >= 0:
            total = 0.0
            for c in range(n):
                total += alpha[c] * f.U[c, j]
            after = min(max(theta[k] + total, -rule[BOUND]), rule[BOUND])
            if fresh:
                last[k] = after - theta[k]
            theta[k] = after
    if fresh:
        _learn(f)
        if rule[NOISE_RATE] > 0.0 and (code == SQUARED_ERROR or code == HUBER):
            _find_noise(f, y, target)
        q = math.exp(memo[LOG_Q])
        for g in range(f.offset.shape[0]):
            inflate(f.P, f.offset[g], f.taken[g], q, rule[CEILING])
        # what is not told for long goes back to where it began: variances to the ceiling, parameters to 0
        fade = 1.0 - min(0.5 * q / rule[CEILING], 0.5)
        for k in range(theta.shape[0]):
            theta[k] *= fade
        memo[SAMPLES] += 1.0
    return loss


@jit_inner
def kalman_steady(f):
    """Whether the stream stands still, so that samples of before still say something about the next."""
    return f.memo[LOG_Q] < f.rule[Q_STEADY]


@jit_inner
def kalman_variance(f, H, out):
    """What the filter does not know about the outputs, (C,): without the noise of the targets."""
    _spread(f, H, False)
    for c in range(H.shape[0]):
        out[c] = f.S[c, c]
