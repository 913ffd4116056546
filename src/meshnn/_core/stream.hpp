// Samples of B parallel streams: compute states, carry the influences forward, learn.
//
// No stored number remains infinite or NaN: a state that is not finite is set to 0 with its influences, a gradient
// that is not finite is skipped, its norm is clipped to `clip`, and the filter limits its variances and parameters.
#pragma once
#include "kalman.hpp"
#include "optimizer.hpp"
#include "standardise.hpp"

namespace {
constexpr double INPUT_CUT = 4, TARGET_CUT = 100;  // standard deviations to which inputs and targets are clipped; as in meshnn/codes.py
constexpr i64 FEWEST_REPLAYS = 10;                 // samples that must be stored before one is replayed
constexpr i64 POLLED = 64;                         // number of samples between checks for Ctrl-C

// The arrays of a call, with their types.
template <class T> struct Streams {
    const StreamPlan& plan;
    StreamState& state;
    const OptimizerState* optimizer;
    Filter* filter;
    // streams, neurons, outputs, parameters, numbers per target, samples whose derivatives are kept
    const i64 B = state.s.n[0], n = state.s.n[1], C = plan.n_outputs, N = state.H.n[1], m = state.target.n[1];
    const i64 depth = state.past_derivatives.size ? state.past_derivatives.n[0] : 0;
    T *s = as<T>(state.s).data, *J = as<T>(state.J).data, *w = as<T>(state.weights).data, *values = as<T>(state.values).data;
    T *H = as<T>(state.H).data, *target = as<T>(state.target).data;
    i64 *side = state.side.data, *clock = state.clock.data;
    T* influence(i64 b, i64 which) const { return J + (2 * b + which) * state.J.n[2]; }
    T* influence(i64 b) const { return influence(b, side[b]); }
    const T* outputs(i64 b) const { return s + b * n + n - C; }
    T* past_derivatives(i64 slot, i64 b) const { return as<T>(state.past_derivatives).data + (slot * B + b) * C * N; }
    T* past_outputs(i64 slot, i64 b) const { return as<T>(state.past_outputs).data + (slot * B + b) * C; }
    i64 slot(i64 lag) const { return depth ? (clock[SEEN] - 1 - lag) % depth : 0; }
    bool scales_x() const { return state.x_moments.size > 0; }
    bool scales_y() const { return state.y_moments.size > 0; }
    bool replays() const { return state.replay_x.size > 0; }
    bool many_classes() const { return state.loss == CROSS_ENTROPY && C > AT_ONCE; }
};
template <class T> INLINE bool given(const T* target, i64 m) {
    bool any = false;
    for (i64 k = 0; k < m; ++k) any = any || target[k] == target[k];
    return any;
}
// The weights of the plan's entries from the values.
template <class T> INLINE void read_weights(const Streams<T>& self) {
    const i64* __restrict index = self.plan.weight_index.data;
    const T* __restrict values = self.values;
    T* __restrict w = self.w;
    for (i64 p = 0; p < self.plan.weight_index.size; ++p) w[p] = values[index[p]];
}
// Run one sample of stream b; return the states, of which the last are the outputs. A peek uses a copy of the states.
template <class T> T* run_sample(const Streams<T>& self, i64 b, const T* x, bool carry, bool peek) {
    StreamState& state = self.state;
    const StreamPlan& plan = self.plan;
    T* s = self.s + b * self.n;
    if (peek) s = (T*)memcpy(as<T>(state.peek_states).data, s, self.n * sizeof(T));
    if (!carry) clear(s + plan.n_clamped, self.n - plan.n_clamped);
    if (self.scales_x()) standardise(x, state.x_moments.data, plan.n_inputs, INPUT_CUT, 0, s);
    else memcpy(s, x, plan.n_inputs * sizeof(T));
    for (i64 k = 0; k < plan.tick_list.size; ++k) {
        const i64 now = self.side[b];
        stream_tick(plan, plan.tick_list[k], self.w, s, s, self.influence(b, now), self.influence(b, 1 - now), as<T>(state.sums).data,
                    as<T>(state.slopes).data, as<T>(state.panel).data, !peek);
        if (!peek) self.side[b] = 1 - now;
    }
    if (!peek && !all_finite(s, self.n)) {
        clear_states(plan, s, self.n, self.influence(b, 0), 2 * state.J.n[2]);
        self.clock[RESETS] += 1;
    }
    return s;
}
// row = dy[o]/dtheta, from the influence J. `run` as in add_output.
template <class T> INLINE void write_row(const Streams<T>& self, const T* J, i64 o, T* row, i64& run) {
    clear(row, self.N);
    add_output(self.plan, o, T(1), J, row, run);
}
template <class T> void write_derivatives(const Streams<T>& self, const T* J, T* H) {
    i64 run = 0;
    for (i64 o = 0; o < self.C; ++o) write_row(self, J, o, H + o * self.N, run);
}
// Write the targets (B, m) in the units of the net to `target`.
template <class T> void scale_targets(const Streams<T>& self, const T* Y, i64 count) {
    if (!self.scales_y()) memcpy(self.target, Y, count * self.m * sizeof(T));
    else for (i64 b = 0; b < count; ++b) standardise(Y + b * self.m, self.state.y_moments.data, self.m, TARGET_CUT, nan_value(), self.target + b * self.m);
}

// -- first-order steps ------------------------------------------------------------------------------------------------
// dE/dY of the streams first to first + count, whose outputs are in Y, into G: 0 where a target, or a part of it, is missing.
template <class T> void loss_slopes(const Streams<T>& self, i64 first, i64 count) {
    constexpr int L = LANES<T>;
    T *y = as<T>(self.state.y).data, *share = as<T>(self.state.share).data, *G = as<T>(self.state.G).data;
    const bool by_output = self.m == self.C;  // a target per output, of which some may be missing
    for (i64 l = 0; l < L; ++l) {
        const T* target = self.target + (first + min_of(l, count - 1)) * self.m;
        bool there = l < count;
        for (i64 k = 0; k < self.m; ++k) {
            const bool missing = target[k] != target[k];
            y[k * L + l] = missing ? T(0) : target[k];
            there = there && (by_output || !missing);
        }
        share[l] = there ? T(1) : T(0);
    }
    double correct = 0;
    loss_of(self.state.loss, as<T>(self.state.Y).data, y, share, G, self.C, correct);
    if (!by_output) return;
    for (i64 l = 0; l < count; ++l)
        for (i64 o = 0; o < self.C; ++o)
            if (self.target[(first + l) * self.m + o] != self.target[(first + l) * self.m + o]) G[o * L + l] = 0;
}
// The mean gradient of all streams that have a target to `grad`. Returns their number.
template <class T> i64 stream_gradient(const Streams<T>& self, i64 lag) {
    constexpr int L = LANES<T>;
    T *grad = as<T>(self.state.grad).data, *Y = as<T>(self.state.Y).data, *G = as<T>(self.state.G).data;
    clear(grad, self.state.grad.size);
    i64 counted = 0;
    for (i64 first = 0; first < self.B; first += L) {
        const i64 count = min_of<i64>(L, self.B - first);
        for (i64 l = 0; l < L; ++l) {
            const i64 b = first + min_of(l, count - 1);
            const T* out = lag ? self.past_outputs(self.slot(lag), b) : self.outputs(b);
            for (i64 o = 0; o < self.C; ++o) Y[o * L + l] = out[o];
        }
        loss_slopes(self, first, count);
        for (i64 l = 0; l < count; ++l) {
            const i64 b = first + l;
            if (!given(self.target + b * self.m, self.m)) continue;
            ++counted;
            if (!lag) add_gradient(self.plan, self.influence(b), G + l, L, grad);
            else for (i64 o = 0; o < self.C; ++o)
                if (G[o * L + l] != 0) axpy(grad, G[o * L + l], self.past_derivatives(self.slot(lag), b) + o * self.N, self.N);
        }
    }
    const T share = (T)(1.0 / counted);
    if (counted) for (i64 e = 0; e < self.N; ++e) grad[e] *= share;
    return counted;
}
// A step of Adam or momentum.
template <class T> void descend(const Streams<T>& self, i64 lag, bool derive) {
    if (!stream_gradient(self, lag) || derive) return;
    T* grad = as<T>(self.state.grad).data;
    double norm = squared_norm(grad, self.N);
    if (!(norm < INFINITE)) { self.clock[LEFT_OUT] += 1; return; }
    norm = root(norm);
    const T shorter = (T)(self.state.clip / norm);
    if (norm > self.state.clip) for (i64 e = 0; e < self.N; ++e) grad[e] *= shorter;
    self.clock[LEARNED] += 1;
    penalise(self.values, grad, *self.optimizer, 0, self.N);
    take_step(self.values, grad, *self.optimizer, self.clock[LEARNED], self.state.rate, 0, self.N);
    read_weights(self);
}

// -- the Kalman filter, which always works in double precision --------------------------------------------------------
// An update with outputs y and the influence J, or the derivatives `past` of an earlier sample.
void filter_step(const Streams<double>& self, const double* J, const double* past, const double* y, const double* target, bool fresh) {
    Filter& f = *self.filter;
    double loss;
    if (self.many_classes()) {
        const double rest = choose(y, self.C, (i64)target[0], AT_ONCE, f.chosen.data);
        for (i64 k = 0; k < AT_ONCE; ++k) {
            const i64 o = f.chosen[k];
            i64 run = 0;
            f.few[k] = y[o];
            if (past) memcpy(self.H + k * self.N, past + o * self.N, self.N * sizeof(double));
            else write_row(self, J, o, self.H + k * self.N, run);
        }
        f.few[AT_ONCE] = 0;  // the index of the sample's class in `chosen`
        loss = kalman_update(self.values, self.N, f, self.H, f.few.data, AT_ONCE, f.few.data + AT_ONCE, self.state.loss, fresh, rest);
    } else {
        if (!past) write_derivatives(self, J, self.H);
        loss = kalman_update(self.values, self.N, f, past ? past : self.H, y, self.C, target, self.state.loss, fresh, -INFINITE);
    }
    if (loss != loss) { self.clock[LEFT_OUT] += 1; return; }
    self.clock[LEARNED] += 1;
    read_weights(self);
}
// The targets of all streams, one after the other.
void filter_all(const Streams<double>& self, i64 lag) {
    for (i64 b = 0; b < self.B; ++b) {
        const double* target = self.target + b * self.m;
        if (!given(target, self.m)) continue;
        if (lag) filter_step(self, nullptr, self.past_derivatives(self.slot(lag), b), self.past_outputs(self.slot(lag), b), target, true);
        else filter_step(self, self.influence(b), nullptr, self.outputs(b), target, true);
    }
}
// Replay an earlier sample if the stream does not drift; then store the last one.
void replay(const Streams<double>& self, const double* target) {
    StreamState& state = self.state;
    const i64 places = state.replay_x.n[0], count = min_of(self.clock[STORED], places), d = self.plan.n_inputs;
    double *X = as<double>(state.replay_x).data, *Y = as<double>(state.replay_y).data;
    if (count >= FEWEST_REPLAYS && is_steady(*self.filter)) {
        // Knuth's 64-bit generator, of which the upper bits are random
        uint64_t random = (uint64_t)self.clock[RANDOM] * 6364136223846793005u + 1442695040888963407u;
        self.clock[RANDOM] = (i64)random;
        const i64 k = (i64)((random >> 33) % (uint64_t)count);
        run_sample(self, 0, X + k * d, false, false);
        scale_targets(self, Y + k * self.m, 1);
        // a label is used as an index; stored labels may come from a file
        const bool fits = state.loss != CROSS_ENTROPY || (self.target[0] >= 0 && self.target[0] < (double)self.C);
        if (fits && given(self.target, self.m)) filter_step(self, self.influence(0), nullptr, self.outputs(0), self.target, false);
    }
    const i64 k = self.clock[STORED] % places;
    memcpy(X + k * d, as<double>(state.last_x).data, d * sizeof(double));
    memcpy(Y + k * self.m, target, self.m * sizeof(double));
    self.clock[STORED] += 1;
}

// -- calls ------------------------------------------------------------------------------------------------------------
template <class T> void advance(const Streams<T>& self, const T* X, T* out, bool carry, bool peek) {
    StreamState& state = self.state;
    const i64 d = self.plan.n_inputs;
    for (i64 b = 0; b < self.B; ++b) {
        const T* y = run_sample(self, b, X + b * d, carry, peek) + self.n - self.C;
        if (self.scales_y()) unstandardise(y, state.y_moments.data, self.C, out + b * self.C);
        else memcpy(out + b * self.C, y, self.C * sizeof(T));
    }
    if (peek) return;
    self.clock[SEEN] += 1;
    if (self.scales_x()) for (i64 b = 0; b < self.B; ++b) observe(X + b * d, state.x_moments.data, d);
    if (self.replays()) memcpy(as<T>(state.last_x).data, X, d * sizeof(T));
    if (self.depth) for (i64 b = 0; b < self.B; ++b) {
        write_derivatives(self, self.influence(b), self.past_derivatives(self.slot(0), b));
        memcpy(self.past_outputs(self.slot(0), b), self.outputs(b), self.C * sizeof(T));
    }
}
template <class T> void learn(const Streams<T>& self, const T* Y, i64 mode, i64 lag) {
    scale_targets(self, Y, self.B);
    bool filtered = false;
    if constexpr (sizeof(T) == 8)
        if (self.state.use_filter && (mode & LEARN)) filter_all(self, lag), filtered = true;
    if (!filtered) descend(self, lag, mode & DERIVE);
    if (!(mode & LEARN)) return;
    if constexpr (sizeof(T) == 8)
        if (self.replays() && lag == 0 && given(Y, self.m)) replay(self, Y);
    if (self.scales_y()) for (i64 b = 0; b < self.B; ++b) observe(Y + b * self.m, self.state.y_moments.data, self.m);
}
template <class T> void stream_run(StreamCall& call) {
    FlushDenormals flush;
    const Streams<T> self{*call.plan, *call.state, call.optimizer, call.filter};
    const T *X = as<T>(call.X).data, *Y = as<T>(call.Y).data;
    T* out = as<T>(call.out).data;
    const i64 samples = max_of(call.X.size ? call.X.n[0] : 0, call.Y.size ? call.Y.n[0] : 0);
    for (i64 t = 0; t < samples; ++t) {
        if (t % POLLED == POLLED - 1 && (call.interrupted = call.poll.stop(call.poll.context))) return;
        if (call.mode & (ADVANCE | PEEK)) advance(self, X + t * self.B * self.plan.n_inputs, out + t * self.B * self.C, self.state.carry, !(call.mode & ADVANCE));
        if (call.mode & (LEARN | DERIVE) && self.clock[SEEN] > call.lag) learn(self, Y + t * self.B * self.m, call.mode, call.lag);
    }
}
// T is always double, because only a filter computes variances.
template <class T> void stream_variance(VarianceCall& call) {
    if constexpr (sizeof(T) == 8) {
        const Streams<T> self{*call.plan, *call.state, nullptr, call.filter};
        for (i64 b = 0; b < self.B; ++b) {
            write_derivatives(self, self.influence(b), self.H);
            spread(*self.filter, self.H, self.C, self.N);
            for (i64 o = 0; o < self.C; ++o) call.out[b * self.C + o] = self.filter->S[o * self.C + o];
        }
    }
}
template <class T> void kalman_run(KalmanCall& call) {
    call.result = kalman_update(call.values.data, call.values.size, *call.filter, call.H.data, call.y.data, call.y.size,
                                call.target.data, call.loss, call.fresh, call.rest);
}
}  // namespace
