// The extended Kalman filter: a second-order update of all parameters per sample, in double precision.
//
//   H  (C, N)   dy / dtheta             U = H P, S = H P H'  (C, C)   covariance of y due to the parameters
//   y  (C)      outputs                 r = - dE / dy        (C)      at outputs eta
//   P           covariance of theta     A = L L'             (C, C)   d2E / dy2, positive semidefinite
//
// The standard filter approximates the loss E by a parabola at y, which far from the target is wrong by orders of
// magnitude: one surprising sample destroys the net. Here the loss is exact and only the net is linearised. The new
// outputs minimise E(eta) + (eta - y)' S^-1 (eta - y) / 2, that is
//
//   eta = y + S alpha,   alpha = r(eta)          a few Newton steps in C numbers, with step halving
//   theta += U' alpha                            bounded, since alpha is as bounded as the slope of the loss
//   P -= B' B,   B = M^-1 L' U,   M M' = I + L' S L      with A halfway between before and after
//
// For squared errors this is the standard filter. All outputs are updated in one step, because the curvature of the
// softmax couples all C classes. S may be singular, and A is (for classes): neither is inverted. A step costs C^3.
// Therefore, with more than AT_ONCE classes, a step uses the sample's class and the most probable others; the outputs
// of the rest are constants in the softmax, because an improbable class has almost no slope.
//
// q, by which variances grow after every sample, is estimated from the stream. If the variances of the filter are
// correct, its last step on average neither reduces nor increases the loss of the next sample. If steps keep reducing
// it, they are too short and the stream drifts: log q += rate * (a / root mean square of a), a = r' H dtheta, with the
// last change dtheta.
#pragma once
#include "covariance.hpp"
#include "losses.hpp"

namespace {
// Indices in `memo`, as in meshnn/codes.py: samples, log q, mean square of a; then the noise of every output and the
// last change of every parameter.
enum Memo { SAMPLES, LOG_Q, MEAN_SQUARE, NOISE };
constexpr i64 AT_ONCE = 50;               // maximum number of classes per update; as in meshnn/codes.py
constexpr int NEWTON_STEPS = 30, HALVINGS = 12;
constexpr double CLOSE = 1e-3;            // a change of the outputs that ends the Newton steps
constexpr double LARGEST_LOG_RATE = 40;
constexpr double LARGEST_SCORE = 3;       // bound of a / root mean square of a
constexpr double WINDOW = 100;            // number of samples in this mean square
constexpr double INFINITE = __builtin_inf();
INLINE double nan_value() { return __builtin_nan(""); }

// Write the class `right` and the most probable others to the first `most` places of `chosen`, the rest after them.
// Returns the log of the sum of the softmax over the rest.
double choose(const double* y, i64 n, i64 right, i64 most, i64* chosen) {
    chosen[0] = right;
    i64 count = 1, end = n;
    for (i64 c = 0; c < n; ++c) {
        if (c == right) continue;
        if (count == most) {
            --end;
            if (!(y[c] > y[chosen[most - 1]])) { chosen[end] = c; continue; }
            chosen[end] = chosen[most - 1];
            --count;
        }
        i64 k = count++;
        for (; k > 1 && y[chosen[k - 1]] < y[c]; --k) chosen[k] = chosen[k - 1];
        chosen[k] = c;
    }
    double top = y[chosen[most]], total = 0;
    for (i64 k = most + 1; k < n; ++k) top = max_of(top, y[chosen[k]]);
    for (i64 k = most; k < n; ++k) total += __builtin_exp(y[chosen[k]] - top);
    return top + __builtin_log(total);
}

// A sample and the filter's buffers for its n outputs.
struct Update {
    Filter& f;
    i64 n, code;
    const double* target;
    double weight, rest;  // weight of the sample; log sum of the classes that were not chosen, or -infinity
    double *eta = f.v.data, *r = eta + n, *A = r + n, *before = A + n, *alpha = before + n, *d = alpha + n, *x = d + n, *noise = x + n;
    bool classes() const { return code == CROSS_ENTROPY; }
    bool squared() const { return code == SQUARED_ERROR || code == HUBER; }
};

// The loss at outputs eta, its slope -r and its curvature: A, or for classes diag(A) - A A'.
double respond(const Update& u, const double* eta, double weight) {
    double loss = 0;
    if (u.classes()) {
        double top = u.rest, total = 0;
        for (i64 c = 0; c < u.n; ++c) top = max_of(top, eta[c]);
        for (i64 c = 0; c < u.n; ++c) total += u.A[c] = __builtin_exp(eta[c] - top);
        if (u.rest > -INFINITE) total += __builtin_exp(u.rest - top);
        for (i64 c = 0; c < u.n; ++c) u.A[c] /= total, u.r[c] = -weight * u.A[c];
        i64 right = (i64)u.target[0];
        u.r[right] += weight;
        return weight * (__builtin_log(total) + top - eta[right]);
    }
    for (i64 c = 0; c < u.n; ++c) {
        double t = u.target[c];
        if (t != t) {
            u.r[c] = u.A[c] = 0;
        } else if (u.code == BINARY_CROSS_ENTROPY) {
            double e = __builtin_exp(-__builtin_fabs(eta[c])), p = (eta[c] >= 0 ? 1 : e) / (1 + e);
            u.r[c] = weight * (t - p), u.A[c] = weight * p * (1 - p);
            loss += weight * (__builtin_log1p(e) + max_of(eta[c], 0.0) - t * eta[c]);
        } else if (u.code == POISSON) {
            double rate = __builtin_exp(min_of(eta[c], LARGEST_LOG_RATE));
            u.r[c] = weight * (t - rate), u.A[c] = weight * rate;
            loss += weight * (rate - t * eta[c]);
        } else {
            double error = t - eta[c], share = weight / u.noise[c];
            u.r[c] = share * error, u.A[c] = share;
            loss += 0.5 * share * error * error;
        }
    }
    return loss;
}
// L of the curvature, T = L' S, and the lower M of M M' = I + L' S L, whose pivots are at least 1.
void factor(const Update& u) {
    const i64 n = u.n;
    double *A = u.A, *S = u.f.S.data, *L = u.f.L.data, *T = u.f.T.data, *M = u.f.M.data, share = u.classes() ? 1 : 0;
    if (u.classes() && u.rest > -INFINITE) {  // L L' = diag(A) - A A' also holds if the probabilities sum to less than 1
        double left = 1;
        for (i64 c = 0; c < n; ++c) left -= A[c];
        share = 1 / (1 + root(max_of(left, 0.0)));
    }
    for (i64 c = 0; c < n; ++c) u.d[c] = root(u.classes() ? u.weight * A[c] : A[c]);
    for (i64 j = 0; j < n; ++j) {
        for (i64 c = 0; c < n; ++c) L[j * n + c] = -u.d[c] * share * A[j];
        L[j * n + j] += u.d[j];
    }
    clear(T, n * n);
    for (i64 c = 0; c < n; ++c)
        for (i64 k = 0; k < n; ++k)
            if (L[k * n + c] != 0) axpy(T + c * n, L[k * n + c], S + k * n, n);
    for (i64 c = 0; c < n; ++c) {
        double* row = M + c * n;
        clear(row, c + 1);
        for (i64 k = 0; k < n; ++k) axpy(row, T[c * n + k], L + k * n, c + 1);
        for (i64 j = 0; j < c; ++j) row[j] = (row[j] - dot(row, M + j * n, j)) / M[j * n + j];
        row[c] = root(max_of(1 + row[c] - dot(row, row, c), 1.0));
    }
}
// Newton's step in alpha, into d: (I + A S)^-1 (r - alpha), by M.
void direction(const Update& u) {
    const i64 n = u.n;
    const double *L = u.f.L.data, *T = u.f.T.data, *M = u.f.M.data;
    for (i64 c = 0; c < n; ++c) u.d[c] = u.r[c] - u.alpha[c];
    for (i64 c = 0; c < n; ++c) u.x[c] = (dot(T + c * n, u.d, n) - dot(M + c * n, u.x, c)) / M[c * n + c];
    for (i64 c = n - 1; c >= 0; --c) {
        u.x[c] /= M[c * n + c];
        axpy(u.x, -u.x[c], M + c * n, c);
    }
    for (i64 c = 0; c < n; ++c) u.d[c] -= dot(L + c * n, u.x, n);
}
// Computes alpha, and L and M of the curvature at half the step. Returns the loss before the update.
double solve(const Update& u, const double* y) {
    const i64 n = u.n;
    const double* S = u.f.S.data;
    for (i64 c = 0; c < n; ++c) u.eta[c] = y[c], u.alpha[c] = 0;
    const double loss = respond(u, u.eta, u.weight);
    for (i64 c = 0; c < n; ++c) u.before[c] = u.A[c];
    double height = loss, moved = INFINITE;
    for (int step = 0; step < (u.squared() ? 1 : NEWTON_STEPS) && moved >= CLOSE; ++step) {
        factor(u);
        direction(u);
        for (i64 c = 0; c < n; ++c) u.x[c] = u.alpha[c];
        double part = 1, now = height;
        for (int h = 0; h < HALVINGS; ++h, part *= 0.5) {
            moved = now = 0;
            for (i64 c = 0; c < n; ++c) u.alpha[c] = u.x[c] + part * u.d[c];
            for (i64 c = 0; c < n; ++c) {
                double total = dot(S + c * n, u.alpha, n);
                moved = max_of(moved, __builtin_fabs(y[c] + total - u.eta[c]));
                u.eta[c] = y[c] + total;
                now += 0.5 * u.alpha[c] * total;
            }
            now += respond(u, u.eta, u.weight);
            if (now <= height + 1e-12) break;
        }
        height = now;
    }
    for (i64 c = 0; c < n; ++c)
        u.A[c] = u.code == BINARY_CROSS_ENTROPY ? max_of(u.A[c], u.before[c]) : 0.5 * (u.A[c] + u.before[c]);
    factor(u);
    return loss;
}

INLINE bool all_zero(const double* x, i64 count) {
    for (i64 j = 0; j < count; ++j)
        if (x[j] != 0) return false;
    return true;
}
// Computes H in the order of the blocks, U = H P and S = H P H'. Returns whether all of S is finite. Blocks that an
// output does not depend on are skipped; with many outputs these are most blocks.
bool spread(Filter& f, const double* H, i64 n, i64 N) {
    const i64 m = f.order.size, blocks = f.offset.size;
    clear(f.S.data, n * n);
    for (i64 c = 0; c < n; ++c) {
        double *h = f.H.data + c * m, *u = f.U.data + c * m;
        for (i64 j = 0; j < m; ++j) h[j] = f.order[j] >= 0 ? H[c * N + f.order[j]] : 0;
        for (i64 g = 0; g < blocks; ++g) {
            const i64 first = f.first[g], width = f.first[g + 1] - first;
            if (all_zero(h + first, width)) { clear(u + first, width); continue; }
            multiply(f.P.data + f.offset[g], h + first, u + first, width);
            for (i64 k = 0; k <= c; ++k) f.S[c * n + k] += dot(u + first, f.H.data + k * m + first, width);
        }
    }
    bool good = true;
    for (i64 c = 0; c < n; ++c) {
        f.S[c * n + c] = max_of(f.S[c * n + c], 0.0);
        for (i64 k = 0; k <= c; ++k) good = good && is_finite(f.S[c * n + k]), f.S[k * n + c] = f.S[c * n + k];
    }
    return good;
}
// The noise variance for each output's error. It is increased for an outlier, which counts as a noisy target.
void judge_noise(const Update& u, const double* y) {
    const double *noise = u.f.memo.data + NOISE, *S = u.f.S.data;
    for (i64 c = 0; c < u.n; ++c) {
        u.noise[c] = noise[c];
        if (!u.squared()) continue;
        double error = __builtin_fabs(u.target[c] - y[c]), own = S[c * u.n + c], expected = noise[c] + own;
        if (u.code == HUBER) {
            if (error > HUBER_WIDTH) u.noise[c] = noise[c] * error / HUBER_WIDTH;
        } else if (u.f.tails > 0) {
            double weight = (u.f.tails + 1) / (u.f.tails + error * error / expected);
            if (weight < 1) u.noise[c] = expected / weight - own;
        }
    }
}
// P -= B' B. U and H are overwritten.
void learn_covariance(const Update& u) {
    Filter& f = u.f;
    const i64 n = u.n, m = f.order.size;
    const double *L = f.L.data, *M = f.M.data;
    for (i64 g = 0; g < f.offset.size; ++g) {
        const i64 first = f.first[g], width = f.first[g + 1] - first;
        double *P = f.P.data + f.offset[g], *U = f.U.data + first, *B = f.H.data + first;
        i64 active = 0, which = 0;
        for (i64 c = 0; c < n; ++c)
            if (!all_zero(U + c * m, width)) ++active, which = c;
        if (active == 1) {  // rank one, as for every readout with a separate block
            double share = 0;
            for (i64 c = 0; c < n; ++c) {
                u.x[c] = (L[which * n + c] - dot(M + c * n, u.x, c)) / M[c * n + c];
                share += u.x[c] * u.x[c];
            }
            share = root(share);
            for (i64 j = 0; j < width; ++j) U[which * m + j] *= share;
            subtract(P, U + which * m, width);
        } else if (active > 1) {
            for (i64 c = 0; c < n; ++c) {
                double* b = B + c * m;
                clear(b, width);
                for (i64 k = 0; k < n; ++k)
                    if (L[k * n + c] != 0) axpy(b, L[k * n + c], U + k * m, width);
                for (i64 k = 0; k < c; ++k)
                    if (M[c * n + k] != 0) axpy(b, -M[c * n + k], B + k * m, width);
                for (i64 j = 0; j < width; ++j) b[j] *= 1 / M[c * n + c];
                subtract(P, b, width);
            }
        }
    }
}
// Adapt q: has the last step reduced the loss of this sample? Uses the slope r at the sample's outputs.
void estimate_q(const Update& u, const double* H, const double* last, i64 N) {
    double a = 0, *memo = u.f.memo.data;
    for (i64 c = 0; c < u.n; ++c) a += u.r[c] * dot(H + c * N, last, N);
    memo[MEAN_SQUARE] += (a * a - memo[MEAN_SQUARE]) / WINDOW;
    if (memo[MEAN_SQUARE] > 0 && is_finite(memo[MEAN_SQUARE])) {
        double score = a / root(memo[MEAN_SQUARE]), largest = LARGEST_SCORE;
        double grown = memo[LOG_Q] + u.f.q_rate * min_of(max_of(score, -largest), largest);
        memo[LOG_Q] = min_of(max_of(grown, u.f.log_q_min), u.f.log_q_max);
    } else {
        memo[MEAN_SQUARE] = 0;
    }
}
// Estimate the noise: squared errors minus the variance due to the parameters; errors are clipped to five deviations.
void estimate_noise(const Update& u, const double* y) {
    double* noise = u.f.memo.data + NOISE;
    const double rate = max_of(u.f.noise_rate, 1 / (u.f.memo[SAMPLES] + 1));
    for (i64 c = 0; c < u.n; ++c) {
        double error = u.target[c] - y[c], own = u.f.S[c * u.n + c];
        if (error != error) continue;
        double left = max_of(min_of(error * error, 25 * (noise[c] + own)) - own, 0.0);
        noise[c] = max_of(noise[c] + rate * (left - noise[c]), u.f.noise_floor);
    }
}
// Learn from one sample: theta, P and memo change. Returns the loss before, or NaN if nothing was learned.
//
// target: a class, or n values, NaN where missing. Samples that are not `fresh` are replays, which correct errors of
// the earlier linearisation. They have a smaller weight and do not change P, which already includes their information.
// `rest` is the result of `choose`, or -infinity if there are no other outputs.
double kalman_update(double* theta, i64 N, Filter& f, const double* H, const double* y, i64 n, const double* target, i64 code, bool fresh, double rest) {
    bool any = false;
    for (i64 c = 0; c < n; ++c) {
        if (!is_finite(y[c])) return nan_value();
        any = any || ((c == 0 || code != CROSS_ENTROPY) && is_finite(target[c]));
    }
    if (!any || rest != rest || !spread(f, H, n, N)) return nan_value();
    double *memo = f.memo.data, *last = memo + f.memo.size - N;
    const Update u{f, n, code, target, fresh ? 1 : f.replay_weight, rest};
    judge_noise(u, y);
    if (fresh && f.q_rate > 0 && memo[SAMPLES] > 0) {
        respond(u, y, 1);
        estimate_q(u, H, last, N);
    }
    const double loss = solve(u, y);
    double* change = f.H.data;  // no longer needed
    const i64 m = f.order.size;
    for (i64 j = 0; j < m; ++j) change[j] = u.alpha[0] * f.U[j];
    for (i64 c = 1; c < n; ++c) axpy(change, u.alpha[c], f.U.data + c * m, m);
    for (i64 j = 0; j < m; ++j) {
        const i64 k = f.order[j];
        if (k < 0) continue;
        double after = min_of(max_of(theta[k] + change[j], -f.bound), f.bound);
        if (fresh) last[k] = after - theta[k];
        theta[k] = after;
    }
    if (!fresh) return loss;
    learn_covariance(u);
    if (f.noise_rate > 0 && u.squared()) estimate_noise(u, y);
    const double q = __builtin_exp(memo[LOG_Q]);
    for (i64 g = 0; g < f.offset.size; ++g) inflate(f.P.data + f.offset[g], f.taken[g], q, f.ceiling);
    // without information from the stream, variances slowly return to the ceiling and parameters to 0
    const double fade = 1 - min_of(0.5 * q / f.ceiling, 0.5);
    for (i64 k = 0; k < N; ++k) theta[k] *= fade;
    memo[SAMPLES] += 1;
    return loss;
}
// Whether the stream does not drift, so that old samples are still representative.
INLINE bool is_steady(const Filter& f) { return f.memo[LOG_Q] < f.log_q_steady; }
}  // namespace
