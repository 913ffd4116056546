// One tick of a stream: states, and the influence of every learned edge on every neuron, with the edges innermost.
//
//   s, s'     states before and after the tick
//   J[o, e]   d s[o] / d A[e], on the edges that can reach o
//   d         slopes phi' of the tick
//
//   J'[o, .] = d[o] * ( sum over sources i of A[i, o] J[i, .]  +  s[src(e)] at the in-edges e of o )
//
// Rows that share their columns and sources are a product of matrices: four or six rows at a time in registers, one panel
// of columns after the other, so that the panel of all sources stays in the L1 cache.
#pragma once
#include "activations.hpp"
#include "stream_structs.hpp"

namespace {
// -- loops over plain arrays with explicit vectors, because the compiler may not reorder a sum -------------------------
template <class T> INLINE Half<T> half_of(Vec<T> x) { return partial_dot(Pack<T, VECTOR_BYTES>{{x}}, fill<T, VECTOR_BYTES>(T(1))); }
template <class T> INLINE T sum_vec(Vec<T> x) { return sum_of<T>(half_of<T>(x)); }
template <class T> INLINE T dot(const T* x, const T* y, i64 count) {
    constexpr int W = WIDTH<T>;
    Vec<T> a{}, b{};
    i64 k = 0;
    for (; k + 2 * W <= count; k += 2 * W) {
        a += load_vec<Vec<T>>(x + k) * load_vec<Vec<T>>(y + k);
        b += load_vec<Vec<T>>(x + k + W) * load_vec<Vec<T>>(y + k + W);
    }
    T total = k ? sum_vec<T>(a + b) : T(0);
    for (; k < count; ++k) total += x[k] * y[k];
    return total;
}
template <class T> INLINE void axpy(T* __restrict to, T a, const T* __restrict x, i64 count) {
    INDEPENDENT
    for (i64 k = 0; k < count; ++k) to[k] += a * x[k];
}
template <class T> INLINE void clear(T* to, i64 count) { memset(to, 0, count * sizeof(T)); }
template <class T> INLINE bool is_finite(T x) { return x - x == 0; }
template <class T> INLINE bool all_finite(const T* x, i64 count) {
    T total = 0;  // 0 or NaN
    Vec<T> part{};
    i64 k = 0;
    for (; k + WIDTH<T> <= count; k += WIDTH<T>) { Vec<T> v = load_vec<Vec<T>>(x + k); part += v - v; }
    for (; k < count; ++k) total += x[k] - x[k];
    return total + sum_vec<T>(part) == 0;
}

constexpr int COLUMNS = VECTOR_BYTES == 64 ? 256 : 2 * VECTOR_BYTES;  // bytes of a row in registers
constexpr int MOST_ROWS = VECTOR_BYTES == 64 ? 4 : 6;                 // rows that are computed together
constexpr int PANEL_WIDTH = 256;                                      // bytes per source of a panel, at most
constexpr i64 PANEL_BYTES = 1 << 14;                                  // of a panel that stays in the L1 cache

template <class T> struct Influence { const StreamPlan& plan; const T* w; const T* old; T* now; const T* d; };

// B bytes of R rows with the same sources, from column `lane` on. `panel` has these columns of the sources, `stride` apart.
template <int R, int B, class T> INLINE void few_rows(const Influence<T>& at, i64 r, const T* panel, i64 stride, i64 sources, i64 lane) {
    const i64 *rows = at.plan.rows.data + r, *ptr = at.plan.ptr.data + r, *lanes = at.plan.lane.data + r;
    const T* w[R];
    Pack<T, B> a[R];
    EACH(R, (w[I] = at.w + ptr[I], a[I] = zeros<T, B>()));
    for (i64 k = 0; k < sources; ++k, panel += stride) {
        Pack<T, B> x = load<T, B>(panel);
        EACH(R, axpy(a[I], w[I][k], x));
    }
    EACH(R, store(at.now + at.plan.offset[rows[I]] + lane, mul(fill<T, B>(at.d[lanes[I]]), a[I])));
}
template <class T> INLINE void one_row(const Influence<T>& at, i64 r, i64 sources, i64 lane) {
    constexpr int B = SIDE;
    const i64* col = at.plan.col.data + at.plan.ptr[r];
    const T* w = at.w + at.plan.ptr[r];
    Pack<T, B> a = zeros<T, B>();
    for (i64 k = 0; k < sources; ++k) axpy(a, w[k], load<T, B>(at.old + at.plan.offset[col[k]] + lane));
    store(at.now + at.plan.offset[at.plan.rows[r]] + lane, mul(fill<T, B>(at.d[at.plan.lane[r]]), a));
}
template <int R, class T> INLINE void rows_of_panel(const Influence<T>& at, i64 r, const T* panel, i64 width, i64 sources, i64 lane) {
    constexpr int big = COLUMNS / sizeof(T), small = (COLUMNS < SIDE ? COLUMNS : SIDE) / sizeof(T);
    i64 k = 0;
    for (; k + big <= width; k += big) few_rows<R, COLUMNS>(at, r, panel + k, width, sources, lane + k);
    for (; k < width; k += small) few_rows<R, small * sizeof(T)>(at, r, panel + k, width, sources, lane + k);
}
// Rows first to last, at least four, all with the same sources; `size` columns.
template <class T> NOINLINE void group(const Influence<T>& at, i64 first, i64 last, i64 sources, i64 size, T* panel) {
    constexpr i64 side = SIDE / sizeof(T), least = (COLUMNS < SIDE ? SIDE : COLUMNS) / sizeof(T), most = PANEL_WIDTH / sizeof(T);
    const i64 *col = at.plan.col.data + at.plan.ptr[first], fit = PANEL_BYTES / (SIDE * max_of<i64>(sources, 1)) * side;
    const i64 end = last - (last - first) % (MOST_ROWS == 4 ? 4 : 2);  // rows that are computed in groups
    for (i64 lane = 0, width; lane < size; lane += width) {
        width = min_of(max_of(least, min_of(most, fit)), size - lane);
        // contiguous, because in J each source would be in a different page of memory
        for (i64 k = 0; k < sources; ++k)
            for (i64 j = 0; j < width; j += side)
                store(panel + k * width + j, load<T, SIDE>(at.old + at.plan.offset[col[k]] + lane + j));
        i64 r = first;
        for (; (end - r) % MOST_ROWS; r += 4) rows_of_panel<4>(at, r, panel, width, sources, lane);
        for (; r < end; r += MOST_ROWS) rows_of_panel<MOST_ROWS>(at, r, panel, width, sources, lane);
        for (; r < last; ++r)
            for (i64 j = 0; j < width; j += side) one_row(at, r, sources, lane + j);
    }
}
// now[begin + ...] += a hop from `source`, in runs of columns
template <class T> INLINE void add_runs(const Influence<T>& at, i64 h, T factor, i64 begin) {
    const i64 source = at.plan.offset[at.plan.hop_col[h]];
    for (i64 u = at.plan.hop_run[2 * h]; u < at.plan.hop_run[2 * h + 1]; ++u) {
        const i64 *run = at.plan.runs.data + 4 * u, length = run[2], vectors = run[3];
        const T* __restrict from = at.old + source + run[0];
        T* __restrict to = at.now + begin + run[1];
        // the zeros behind the last columns of a source may be added, too
        for (i64 k = 0; k < vectors; k += SIDE / sizeof(T)) {
            Pack<T, SIDE> x = load<T, SIDE>(to + k);
            axpy(x, factor, load<T, SIDE>(from + k));
            store(to + k, x);
        }
        for (i64 k = vectors; k < length; ++k) to[k] += factor * from[k];
    }
}
// The influence after a tick of list q.
template <class T> NOINLINE void carry_influence(const Influence<T>& at, i64 q, const T* s, T* panel) {
    const StreamPlan& plan = at.plan;
    for (i64 g = plan.group_start[q]; g < plan.group_start[q + 1]; ++g) {
        const i64 first = plan.groups[3 * g], last = plan.groups[3 * g + 1], size = plan.groups[3 * g + 2], sources = plan.n_whole[first];
        if (last - first < 4) {  // a panel would be slower
            for (i64 r = first; r < last; ++r)
                for (i64 lane = 0; lane < size; lane += SIDE / sizeof(T)) one_row(at, r, sources, lane);
        } else {
            group(at, first, last, sources, size, panel);
        }
        for (i64 r = first; r < last; ++r) {
            const i64 begin = plan.offset[plan.rows[r]];
            const T d = at.d[plan.lane[r]];
            for (i64 h = plan.hop_ptr[r]; h < plan.hop_ptr[r + 1]; ++h) add_runs(at, h, d * at.w[plan.hop_weight[h]], begin);
            for (i64 p = plan.ptr[r]; p < plan.ptr[r + 1]; ++p)
                if (plan.own_column[p] >= 0) at.now[begin + plan.own_column[p]] += d * s[plan.col[p]];
        }
    }
}
// Run list q: `after` receives the new states of its rows (it may be s) and, with `influence`, `now` their influence.
// `sums` and `slopes` have L numbers per pack of the list.
template <class T>
NOINLINE void stream_tick(const StreamPlan& plan, i64 q, const T* w, const T* s, T* after, const T* old, T* now, T* sums, T* slopes, T* panel, bool influence) {
    const i64 first = plan.start[q], last = plan.start[q + 1], packs = plan.pack_start[q];
    for (i64 r = first; r < last; ++r) {
        T a = 0, b = 0, c = 0, d = 0;
        const i64* col = plan.col.data;
        i64 p = plan.ptr[r], end = plan.ptr[r + 1];
        for (; p + 4 <= end; p += 4) {
            a += w[p] * s[col[p]], b += w[p + 1] * s[col[p + 1]];
            c += w[p + 2] * s[col[p + 2]], d += w[p + 3] * s[col[p + 3]];
        }
        for (; p < end; ++p) a += w[p] * s[col[p]];
        sums[plan.lane[r]] = (a + b) + (c + d);
    }
    for (i64 k = packs; k < plan.pack_start[q + 1]; ++k)
        activate(plan.pack_activation[k], sums + (k - packs) * LANES<T>, slopes + (k - packs) * LANES<T>);
    if (influence) carry_influence(Influence<T>{plan, w, old, now, slopes}, q, s, panel);
    for (i64 r = first; r < last; ++r) after[plan.rows[r]] = sums[plan.lane[r]];
}
// States (n) and influence (columns) before the first sample: 0, except for the bias.
template <class T> void clear_states(const StreamPlan& plan, T* s, i64 n, T* J, i64 columns) {
    clear(s + plan.n_clamped, n - plan.n_clamped);
    clear(J, columns);
}
// to[parameter] += factor * J[o, parameter] for output o. `run` is the first of out_runs to consider, because outputs are in order.
template <class T> INLINE void add_output(const StreamPlan& plan, i64 o, T factor, const T* J, T* to, i64& run) {
    const i64 first = plan.outputs[3 * o], last = plan.outputs[3 * o + 1], *parameter = plan.out_parameter.data;
    J += plan.outputs[3 * o + 2] - first;
    while (run < plan.out_runs.n[0] && plan.out_runs[3 * run + 1] <= first) ++run;
    for (i64 r = run; r < plan.out_runs.n[0] && plan.out_runs[3 * r] < last; ++r) {
        const i64 *bounds = plan.out_runs.data + 3 * r, a = max_of(bounds[0], first), b = min_of(bounds[1], last);
        if (bounds[2] >= 0) axpy(to + bounds[2] + (a - bounds[0]), factor, J + a, b - a);
        else for (i64 k = a; k < b; ++k) to[parameter[k]] += factor * J[k];
    }
}
// grad += sum over outputs of g[o * stride] * J[o, .]
template <class T> void add_gradient(const StreamPlan& plan, const T* J, const T* g, i64 stride, T* grad) {
    i64 run = 0;
    for (i64 o = 0; o < plan.n_outputs; ++o)
        if (g[o * stride] != 0) add_output(plan, o, g[o * stride], J, grad, run);
}
}  // namespace
