// States: s_k = phi(s_{k-1} A) on the rows of a plan, for one chunk of samples at a time.
//
// Inputs are held or differ per tick; states before the first tick are 0 or given. A sample may end early: its states
// are then set to 0, so that a net that diverges on the padding of a short sequence does not affect sums.
#pragma once
#include "activations.hpp"
#include "core.hpp"

namespace {
// Views of one table of lists.
struct Lists {
    const u32 *start, *rows, *ptr, *col, *number, *run;
    const View<u32>& padding;
};
INLINE Lists lists_of(const Plan& p) { return {p.start.data, p.rows.data, p.ptr.data, p.col.data, p.number.data, p.run.data, p.padding}; }
INLINE Lists gradient_lists_of(const Plan& p) {
    return {p.grad_start.data, p.grad_rows.data, p.grad_ptr.data, p.grad_col.data, p.grad_number.data, p.grad_run.data, p.grad_padding};
}
template <class T> INLINE T* row(T* base, i64 j) { return base + j * (ROW / (i64)sizeof(T)); }

// -- pull: rows become weighted sums of other rows ----------------------------------------------------------------------
// Four rows with the same columns, B bytes at a time: each load of a source is used for all four.
template <int B, class T> INLINE void pull_tile_piece(const Lists& o, u32 r, const T* w, const T* source, const T* seeds, T* target, int lane) {
    u32 p0 = o.ptr[r], p1 = o.ptr[r + 1], p2 = o.ptr[r + 2], p3 = o.ptr[r + 3];
    u32 j0 = o.rows[r], j1 = o.rows[r + 1], j2 = o.rows[r + 2], j3 = o.rows[r + 3];
    Pack<T, B> a0 = zeros<T, B>(), a1 = a0, a2 = a0, a3 = a0;
    if (seeds) {
        a0 = load<T, B>(row(seeds, j0) + lane), a1 = load<T, B>(row(seeds, j1) + lane);
        a2 = load<T, B>(row(seeds, j2) + lane), a3 = load<T, B>(row(seeds, j3) + lane);
    }
    const u32* c = o.col + p0;
    const T *w0 = w + p0, *w1 = w + p1, *w2 = w + p2, *w3 = w + p3, *from = source + lane;
    for (size_t k = 0, n = p1 - p0; k < n; ++k) {
        Pack<T, B> x = load<T, B>(row(from, c[k]));
        axpy(a0, w0[k], x), axpy(a1, w1[k], x), axpy(a2, w2[k], x), axpy(a3, w3[k], x);
    }
    store(row(target, j0) + lane, a0), store(row(target, j1) + lane, a1);
    store(row(target, j2) + lane, a2), store(row(target, j3) + lane, a3);
}
// `lanes` is the number of valid samples of a row; the others become 0.
template <class T> INLINE void pull_tile(const Lists& o, u32 r, const T* w, const T* source, const T* seeds, T* target, int lanes) {
    if constexpr (WIDE >= ROW)
        if (lanes == LANES<T>) return pull_tile_piece<ROW>(o, r, w, source, seeds, target, 0);
    constexpr int piece = NARROW / sizeof(T);
    for (int lane = 0; lane < lanes; lane += piece) pull_tile_piece<NARROW>(o, r, w, source, seeds, target, lane);
    for (int lane = lanes; lane < LANES<T>; lane += piece)
        for (u32 b = r; b < r + 4; ++b) store(row(target, o.rows[b]) + lane, zeros<T, NARROW>());
}
template <int B, class T> INLINE Pack<T, B> pulled_row(const Lists& o, u32 r, const T* w, const T* source, const T* seeds, int lane) {
    Pack<T, B> t = seeds ? load<T, B>(row(seeds, o.rows[r]) + lane) : zeros<T, B>();
    for (size_t p = o.ptr[r], end = o.ptr[r + 1]; p < end; ++p) axpy(t, w[p], load<T, B>(row(source, o.col[p]) + lane));
    return t;
}
template <class T> INLINE void pull_narrow(const Lists& o, u32 r, const T* w, const T* source, const T* seeds, T* target, int lanes) {
    constexpr int piece = NARROW / sizeof(T);
    for (int lane = 0; lane < lanes; lane += piece) store(row(target, o.rows[r]) + lane, pulled_row<NARROW>(o, r, w, source, seeds, lane));
    for (int lane = lanes; lane < LANES<T>; lane += piece) store(row(target, o.rows[r]) + lane, zeros<T, NARROW>());
}
// All rows of list q. `finish.sum(j, t)` stores a sum that is still in registers, `finish.stored(j)` completes one in memory.
template <class T, class Finish> INLINE void pull(const Lists& o, i64 q, const T* w, const T* source, const T* seeds, T* target, int lanes, Finish finish) {
    u32 tiled = o.start[q];
    for (u32 r = o.start[q], end = o.start[q + 1], some; r < end; r += some) {
        if (o.run[r]) tiled = r + o.run[r];
        some = 1;
        if (r < tiled) {
            pull_tile(o, r, w, source, seeds, target, lanes);
            some = 4;
        } else if (lanes < LANES<T>) {
            pull_narrow(o, r, w, source, seeds, target, lanes);
        } else {
            finish.sum(o.rows[r], pulled_row<ROW>(o, r, w, source, seeds, 0));
            continue;
        }
        for (u32 b = r; b < r + some; ++b) finish.stored(o.rows[b]);
    }
}
template <class T> struct Activate {
    const i64* codes;
    T *after, *slopes;
    INLINE void sum(u32 j, const Pack<T>& t) const {
        if (codes[j] == RELU) return store(row(after, j), relu(t));
        store(row(after, j), t);
        if (codes[j] != IDENTITY) activate(codes[j], row(after, j), row(slopes, j));
    }
    INLINE void stored(u32 j) const {
        if (codes[j] == RELU) store(row(after, j), relu(load<T>(row(after, j))));
        else if (codes[j] != IDENTITY) activate(codes[j], row(after, j), row(slopes, j));
    }
};
template <class T> struct StoreSum {
    T* after;
    INLINE void sum(u32 j, const Pack<T>& t) const { store(row(after, j), t); }
    INLINE void stored(u32) const {}
};
template <class T> struct TimesSlope {
    const i64* codes;
    const T *states, *slopes;
    T* target;
    INLINE void sum(u32 j, const Pack<T>& t) const { store(row(target, j), mul(t, slope_of(codes[j], row(states, j), row(slopes, j)))); }
    INLINE void stored(u32 j) const { sum(j, load<T>(row(target, j))); }
};
template <class T> NOINLINE void tick(const Lists& o, i64 q, const T* w, const T* before, const T* seeds, T* after, T* slopes, const i64* codes, int lanes) {
    pull(o, q, w, before, seeds, after, lanes, Activate<T>{codes, after, slopes});
}
template <class T> NOINLINE void sum_rows(const Lists& o, i64 q, const T* w, const T* before, T* after, int lanes) {
    pull(o, q, w, before, (const T*)nullptr, after, lanes, StoreSum<T>{after});
}
template <class T> NOINLINE void hop(const Lists& o, i64 q, const T* w, const T* source, const T* seeds, T* target, const i64* codes, const T* states, const T* slopes, int lanes) {
    pull(o, q, w, source, seeds, target, lanes, TimesSlope<T>{codes, states, slopes, target});
}

// -- batches: samples into rows ------------------------------------------------------------------------------------------
// Chunk c has the samples c * per, ...; it is padded with copies of the last sample with weight 0.
template <class T> struct Batch {
    const T *X, *state, *y = nullptr, *share = nullptr, *readout = nullptr, *stop = nullptr;
    i64 n, inputs, input_ticks, neurons, targets = 0, target_ticks = 0, share_ticks = 0;
    const i64* order = nullptr;  // the sample at each place, or null
    i64 begin = 0, size, per = LANES<T>, loss = 0;
    T scale = 1;                 // factor of the sample weights
    bool at_ticks = false;       // whether there is a loss per tick; else one for the last tick or the readout
    bool check;

    Batch(const Samples& s, const Targets* t, i64 n_neurons)
        : X(as<T>(s.X).data), state(as<T>(s.state).data), n(s.X.n[1]), inputs(s.X.n[2]), input_ticks(s.X.n[0]), neurons(n_neurons),
          size(s.size), check(s.check) {
        if (!t) return;
        y = as<T>(t->y).data, share = as<T>(t->share).data, readout = as<T>(t->readout).data, stop = as<T>(t->stop).data;
        target_ticks = t->y.n[0], targets = t->y.n[2], share_ticks = t->share.n[0], loss = t->loss, at_ticks = t->at_ticks;
    }
    i64 chunks() const { return (size + per - 1) / per; }
    i64 count(i64 c) const { return min_of(per, size - c * per); }
    // number of lanes of a row to compute: all, a half, or a quarter if that is a whole piece
    int lanes(i64 c) const {
        constexpr int L = LANES<T>;
        return 2 * count(c) > L ? L : NARROW <= ROW / 4 && 4 * count(c) <= L ? L / 4 : L / 2;
    }
    void index(i64 c, i64* rows) const {
        i64 last = count(c) - 1;
        for (int l = 0; l < LANES<T>; ++l) {
            i64 at = begin + c * per + min_of<i64>(l, last);
            rows[l] = order ? order[at] : at;
        }
    }
};
// Samples `rows` of given (n, width) into rows (width, L).
template <class T> NOINLINE void pack(const T* given, i64 width, const i64* rows, T* packed) {
    constexpr i64 L = LANES<T>, W = WIDTH<T>;
    i64 square = width - width % W;
    for (i64 i = 0; i < square; i += W)
        for (i64 l = 0; l < L; l += W) transpose(given + i, width, rows + l, packed + i * L + l, L);
    for (i64 l = 0; l < L; ++l) {
        const T* sample = given + rows[l] * width;
        for (i64 i = square; i < width; ++i) packed[i * L + l] = sample[i];
    }
}
template <class T> void unpack(const T* packed, i64 width, i64 count, T* given) {
    for (i64 l = 0; l < count; ++l)
        for (i64 i = 0; i < width; ++i) given[l * width + i] = packed[i * LANES<T> + l];
}
template <class T> bool finite(const T* rows, i64 count) {
    Pack<T> bad = zeros<T>();
    for (i64 i = 0; i < count; ++i) axpy(bad, T(0), load<T>(row(rows, i)));  // 0, or NaN
    return dot(bad, bad) == 0;
}

// -- workspaces: the buffers of one thread ----------------------------------------------------------------------------------
template <class T> struct Workspace {
    T *S, *D;        // (kept_ticks, n, L) states after each tick, or of alternating ticks; phi' unless it is simple
    T *V;            // (3, n, L) dE/dt of a tick, of the next, and of the first tick of tangents
    T *total, *U;    // (n, L) dE/dt summed over ticks; the products with clamped neurons, equal at all ticks
    T *tangent;      // (2, n, L) a tangent before and after a hop
    T *O;            // (ticks or 1, outputs, L) dE/dy after each tick
    T *Y, *P;        // (outputs, L) outputs that are read; outputs as needed for the curvature
    T *J;            // (outputs * n_gradient, L) the Jacobian of a chunk
    T *panel;        // (panel_rows, L)
    T *x, *y, *share, *readout, *stop;  // the packed chunk
    double correct;
    i64 rows[LANES<T>];  // its samples

    // Place the buffers in memory from `at` on, if it is not null; returns their size in bytes.
    size_t lay_out(const Plan& p, char* at) {
        size_t used = 0;
        auto take = [&](T*& place, i64 count) {
            place = at ? reinterpret_cast<T*>(at + used) : nullptr;
            used += (size_t)max_of<i64>(count, 1) * ROW;
        };
        i64 looks = p.timed ? p.ticks : 1, states = p.kept_ticks * p.n;
        take(S, states), take(D, states), take(V, p.adjoint ? 3 * p.n : 1);
        take(total, p.adjoint && (p.input_projection >= 0 || p.out_ptr.size) ? p.n : 1), take(U, p.input_projection >= 0 ? p.n : 1);
        take(tangent, p.tangent_tick.size ? 2 * p.n : 1), take(O, (looks + 1) * p.n_outputs), take(Y, p.n_outputs), take(P, 3 * p.n_outputs);
        take(J, p.jacobian ? p.n_outputs * p.n_gradient : 1), take(panel, p.panel_rows);
        take(x, p.n_inputs), take(y, looks * p.n_outputs), take(share, looks), take(readout, looks), take(stop, 1);
        return used;
    }
};
constexpr size_t WORKSPACE_HEAD = 4096;  // the struct, which precedes its buffers
template <class T> Workspace<T>* borrow_workspace(Engine& e) {
    static_assert(sizeof(Workspace<T>) <= WORKSPACE_HEAD);
    const Plan& p = *e.plan;
    Workspace<T> sizes;
    char* memory = static_cast<char*>(borrow(e.workspaces, WORKSPACE_HEAD + sizes.lay_out(p, nullptr)));
    if (!memory) return nullptr;
    auto* m = reinterpret_cast<Workspace<T>*>(memory);
    if (!m->S) {  // new
        m->lay_out(p, memory + WORKSPACE_HEAD);
        for (i64 k = 0; k < p.kept_ticks; ++k)
            for (i64 j = p.n_inputs; j < p.n_clamped; ++j) store(row(m->S, k * p.n + j), fill<T>(T(1)));  // the bias
    }
    return m;
}

// -- one chunk of a net ------------------------------------------------------------------------------------------------------
template <class T> struct Chunk {
    static constexpr int L = LANES<T>;
    const Plan& p;
    const T* w;
    Workspace<T>& m;
    const i64* codes = p.activations.data;
    const Lists o = lists_of(p), go = gradient_lists_of(p);
    i64 n = p.n * LANES<T>, outputs = p.n_outputs, ticks = p.forward.size - 1;  // n counts numbers of one tick
    bool stops = false;                                                         // whether samples end early

    Chunk(const Plan& plan, const T* weights, Workspace<T>& workspace) : p(plan), w(weights), m(workspace) {}
    INLINE T* S(i64 k) const { return m.S + k % p.kept_ticks * n; }
    INLINE T* D(i64 k) const { return m.D + k % p.kept_ticks * n; }
    INLINE T* outputs_of(T* states) const { return states + n - outputs * L; }
    INLINE T* O(i64 k) const { return m.O + (p.timed ? k : 0) * outputs * L; }

    // Pack the samples of chunk c; returns whether they are finite. Inputs that differ per tick are packed when they are clamped.
    bool take(const Batch<T>& b, i64 c) {
        b.index(c, m.rows);
        stops = b.stop != nullptr;
        if (b.input_ticks == 1) {
            pack(b.X, b.inputs, m.rows, m.x);
            if (b.check && !finite(m.x, b.inputs)) return false;
        }
        if (b.state) {
            for (int l = 0; l < L; ++l)
                for (i64 j = 0; j < b.neurons; ++j) m.S[j * L + l] = b.state[m.rows[l] * b.neurons + j];
        }
        return true;
    }
    void take_targets(const Batch<T>& b, i64 c) {
        i64 count = b.count(c);
        for (i64 k = 0; k < b.target_ticks; ++k) pack(b.y + k * b.n * b.targets, b.targets, m.rows, m.y + k * b.targets * L);
        auto masked = [&](const T* given, i64 length, T scale, T* packed) {
            for (i64 k = 0; k < length; ++k)
                for (int l = 0; l < L; ++l) packed[k * L + l] = l < count ? scale * given[k * b.n + m.rows[l]] : T(0);
        };
        masked(b.share, b.share_ticks, b.scale, m.share);
        if (b.readout) masked(b.readout, ticks, T(1), m.readout);
        if (b.stop) masked(b.stop, 1, T(1), m.stop);
    }
    // Set the input rows of some states to those of tick k + 1.
    bool clamp(const Batch<T>& b, i64 k, T* states) {
        if (b.input_ticks == 1) {
            memcpy(states, m.x, b.inputs * ROW);
            return true;
        }
        pack(b.X + min_of(k, b.input_ticks - 1) * b.n * b.inputs, b.inputs, m.rows, states);
        return !b.check || finite(states, b.inputs);
    }
    bool run_tick(const Batch<T>& b, i64 k, int lanes) {
        T *before = S(k - 1), *after = S(k);
        if (p.clamps[k] && !clamp(b, k - 1, before)) return false;
        tick(o, p.forward[k], w, before, p.input_projection >= 0 ? m.U : nullptr, after, D(k), codes, lanes);
        if (stops) quench(k, after);
        return true;
    }
    // Set the states of samples that have ended to 0.
    void quench(i64 k, T* after) {
        bool some = false;
        for (int l = 0; l < L; ++l) some = some || m.stop[l] < T(k);
        if (!some) return;
        Pack<T> going;
        for (int i = 0; i < ROW / VECTOR_BYTES; ++i) {
            Vec<T> zero{}, one = zero + T(1);
            going.v[i] = load_vec<Vec<T>>(m.stop + i * WIDTH<T>) < splat<Vec<T>>(T(k)) ? zero : one;
        }
        for (u32 r = o.start[p.forward[k]]; r < o.start[p.forward[k] + 1]; ++r) {
            T *s = row(after, o.rows[r]), *d = row(D(k), o.rows[r]);
            store(s, where(going, load<T>(s)));
            store(d, where(going, load<T>(d)));
        }
    }
    bool project_inputs(const Batch<T>& b, int lanes) {
        if (p.input_projection < 0) return true;
        bool good = clamp(b, 0, m.S);
        sum_rows(o, p.input_projection, w, m.S, m.U, lanes);
        return good;
    }
    bool run(const Batch<T>& b, int lanes) {
        bool good = project_inputs(b, lanes);
        for (i64 k = 1; k <= ticks; ++k) good = run_tick(b, k, lanes) && good;
        return good;
    }
};

// -- weights in the order of a plan's entries, and gradients back ---------------------------------------------------------------
template <class T> void gather_weights(const Plan& p, const T* values, T* w, i64 first, i64 last) {
    for (i64 r = 0; r < p.weight_runs.n[0] && p.weight_runs.size; ++r) {
        const i64* run = p.weight_runs.data + 3 * r;  // first and last entry, and the first value if the values are consecutive
        i64 begin = max_of(run[0], first), end = min_of(run[1], last);
        if (begin >= end) continue;
        if (run[2] >= 0) memcpy(w + begin, values + run[2] - run[0] + begin, (end - begin) * sizeof(T));
        else for (i64 k = begin; k < end; ++k) w[k] = values[p.weight_index[k]];
    }
    for (i64 h = 0; h < p.padding.size; ++h)
        if (p.padding[h] >= first && p.padding[h] < last) w[p.padding[h]] = 0;
}
// total[first:last] += the entries of each value, in their order
template <class T, class Sum> void scatter_gradient(const Plan& p, const T* g, Sum* __restrict total, i64 first, i64 last) {
    for (i64 r = 0; r < p.grad_runs.n[0] && p.grad_runs.size; ++r) {
        const i64* run = p.grad_runs.data + 3 * r;
        i64 begin = run[0], end = run[1], e = run[2];
        if (e >= 0) {
            for (i64 k = max_of(e, first), high = min_of(e + end - begin, last); k < high; ++k) total[k] += g[begin - e + k];
        } else {
            for (i64 k = begin; k < end; ++k)
                if (p.grad_index[k] >= first && p.grad_index[k] < last) total[p.grad_index[k]] += g[k];
        }
    }
}
}  // namespace
