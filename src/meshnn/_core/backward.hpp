// Gradients: backprop and the factored forward-only form.
//
//   F_{m,k}[j, o]   influence of the pre-activation of j at tick m on the state of o after tick k
//   o_k[o]          dE/dy of output o after tick k; 0 where no loss is taken
//   v_m[j]          sum over ticks k >= m and outputs o of F_{m,k}[j, o] o_k[o]
//   dE/dA[i, j]     sum over ticks m of s_{m-1}[i] v_m[j]
//   dE/dx_m[i]      sum over edges (i, j) of A[i, j] v_m[j]
//
// Adjoint: v_m is pulled back from v_{m+1} over the transposed lists, and phi' o_m is added at each tick. Factored: at
// the last tick the readout and one more hop are contracted directly (one hop is phi' A phi', from the weights of the
// edges). Every earlier (m, j) is a tangent that is pushed forward over the lists of its chain and contracted after the
// last tick. Up to three ticks both are the same computation. In a settled graph, a topological pass processes each
// neuron once.
#pragma once
#include "forward.hpp"
#include "losses.hpp"

namespace {
// -- correlate: the gradient of an edge is the dot product, over the samples, of two rows ------------------------------------
// to[r][i] += sum over l of v[r][l] panel[l][i], for four rows r and B bytes of columns; `count` columns are written
template <int B, class T> INLINE void outer_block(const T* panel, i64 stride, const T* const* v, i64 length, T* const* to, i64 count) {
    const T *v0 = v[0], *v1 = v[1], *v2 = v[2], *v3 = v[3];
    Pack<T, B> a0 = zeros<T, B>(), a1 = a0, a2 = a0, a3 = a0;
    for (i64 l = 0; l < length; ++l, panel += stride) {
        Pack<T, B> x = load<T, B>(panel);
        axpy(a0, v0[l], x), axpy(a1, v1[l], x), axpy(a2, v2[l], x), axpy(a3, v3[l], x);
    }
    add_first(to[0], a0, count), add_first(to[1], a1, count), add_first(to[2], a2, count), add_first(to[3], a3, count);
}
// Rows first to last of a run: a product of two matrices. The rows that its entries read are transposed into a panel, samples
// outermost, so that no sum across a register is needed.
template <class T> NOINLINE void correlate_run(const Lists& o, u32 first, u32 last, const T* V, const T* S, T* g, T* panel, int lanes) {
    constexpr i64 side = SIDE / sizeof(T), wide = WIDE / sizeof(T);
    i64 begin = o.ptr[first], count = (i64)o.ptr[first + 1] - begin;
    i64 whole = count % side <= 3 ? count - count % side : count;  // up to three remaining columns are processed one by one
    i64 stride = (whole + side - 1) / side * side, i = 0;
    for (i64 c = 0; c < stride; c += WIDTH<T>)
        for (i64 l = 0; l < lanes; l += WIDTH<T>) transpose(S + l, LANES<T>, o.col + begin + c, panel + l * stride + c, stride);
    auto blocks = [&]<int B>() __attribute__((always_inline)) {
        for (u32 r = first; r < last; r += 4) {
            const T* v[4];
            T* to[4];
            for (int k = 0; k < 4; ++k) v[k] = row(V, o.rows[r + k]), to[k] = g + o.ptr[r + k] + i;
            outer_block<B>(panel + i, stride, v, lanes, to, whole - i);
        }
        i += B / (i64)sizeof(T);
    };
    while (i + wide <= stride) blocks.template operator()<WIDE>();
    while (i + 2 * side <= stride) blocks.template operator()<2 * SIDE>();
    while (i < stride) blocks.template operator()<SIDE>();
    for (i = whole; i < count; ++i) {
        Pack<T> s = load<T>(row(S, o.col[begin + i]));
        for (u32 r = first; r < last; ++r) g[o.ptr[r] + i] += dot(load<T>(row(V, o.rows[r])), s);
    }
}
template <class T> NOINLINE void correlate(const Lists& o, i64 q, const T* V, const T* S, T* g, T* panel, int lanes) {
    for (u32 r = o.start[q], end = o.start[q + 1]; r < end;) {
        if (o.run[r]) {
            correlate_run(o, r, r + o.run[r], V, S, g, panel, lanes);
            r += o.run[r];
            continue;
        }
        size_t k = o.ptr[r], last = o.ptr[r + 1];
        const u32* c = o.col;
        if (lanes < LANES<T>) {
            for (int lane = 0; lane < lanes; lane += NARROW / (int)sizeof(T)) {
                auto v = load<T, NARROW>(row(V, o.rows[r]) + lane);
                for (size_t e = k; e < last; ++e) g[e] += dot(v, load<T, NARROW>(row(S, c[e]) + lane));
            }
        } else {
            Pack<T> v = load<T>(row(V, o.rows[r]));
            for (; k + 4 <= last; k += 4) dot4(g + k, v, row(S, c[k]), row(S, c[k + 1]), row(S, c[k + 2]), row(S, c[k + 3]));
            for (; k < last; ++k) g[k] += dot(v, load<T>(row(S, c[k])));
        }
        ++r;
    }
}
template <class T> bool any(const T* row) {
    for (int l = 0; l < LANES<T>; ++l)
        if (row[l] != 0) return true;
    return false;
}

template <class T> struct BackwardChunk : Chunk<T> {
    typedef Chunk<T> Base;
    using Base::L, Base::p, Base::w, Base::codes, Base::m, Base::o, Base::go, Base::n, Base::outputs, Base::ticks, Base::S, Base::D, Base::O;
    using Base::Base;
    INLINE T* V(i64 k) const { return m.V + k * n; }
    INLINE Pack<T> slope(i64 k, i64 j) const { return slope_of(codes[j], row(S(k), j), row(D(k), j)); }
    INLINE i64 first_output() const { return p.n - outputs; }

    // -- losses -----------------------------------------------------------------------------------------------------------
    // Loss of the outputs of tick k, with its target and sample weight (share); its gradient goes to O(k).
    double loss_at(const Batch<T>& b, i64 k) {
        T* share = m.share + (b.share_ticks > 1 ? k - 1 : 0) * L;
        if (b.at_ticks && !any(share)) {
            memset(O(k), 0, outputs * ROW);
            return 0;
        }
        return loss_of(b.loss, this->outputs_of(S(k)), m.y + (b.target_ticks > 1 ? k - 1 : 0) * b.targets * L, share, O(k), outputs, m.correct);
    }
    void add_readout(i64 k) {
        T *weight = m.readout + (k - 1) * L, *y = this->outputs_of(S(k));
        if (!any(weight)) return;
        for (i64 q = 0; q < outputs; ++q) {
            Pack<T> sum = load<T>(row(m.Y, q)), r = load<T>(weight);
            fma(sum, r, where(r, load<T>(row(y, q))));
            store(row(m.Y, q), sum);
        }
    }
    // All ticks and the loss. If ticks share buffers, dE/dy is known for the last tick only.
    bool run_with_loss(const Batch<T>& b, int lanes, double& loss) {
        bool good = this->project_inputs(b, lanes);
        if (b.readout) memset(m.Y, 0, outputs * ROW);
        for (i64 k = 1; k <= ticks; ++k) {
            good = this->run_tick(b, k, lanes) && good;
            if (b.readout) add_readout(k);
            else if (b.at_ticks) loss += loss_at(b, k);
        }
        if (b.readout) {
            loss += loss_of(b.loss, m.Y, m.y, m.share, O(0), outputs, m.correct);
            for (i64 k = 1; k <= ticks; ++k)
                for (i64 q = 0; q < outputs; ++q) store(row(O(k), q), mul(load<T>(m.readout + (k - 1) * L), load<T>(row(O(0), q))));
        } else if (!b.at_ticks) {
            loss += loss_at(b, ticks);
            for (i64 k = 1; p.timed && k < ticks; ++k) memset(O(k), 0, outputs * ROW);
        }
        return good;
    }

    // -- from dE/dy per tick, in O, to dE/dA and dE/dx ---------------------------------------------------------------------
    // v of the outputs at tick k: phi' o_k is added to the pulled-back v. A topological pass multiplies by phi' later.
    void inject(i64 k, T* v, bool pulled) {
        for (i64 q = 0; q < outputs; ++q) {
            i64 j = first_output() + q;
            Pack<T> x = mul(load<T>(row(O(k), q)), slope(k, j));
            store(row(v, j), pulled ? add(x, load<T>(row(v, j))) : x);
        }
    }
    // Add the gradient of tick k. For edges from clamped neurons with a shared projection, and for dE/dx, sum v in `total`.
    void tick_gradient(i64 k, const T* v, T* g, T* grad_x, bool held, int lanes) {
        i64 q = p.gradient[k];
        if (grad_x && !held) memset(m.total, 0, n * sizeof(T));
        if (p.input_projection >= 0 || grad_x)
            for (u32 r = go.start[q]; r < go.start[q + 1]; ++r) {
                T* t = row(m.total, go.rows[r]);
                store(t, add(load<T>(t), load<T>(row(v, go.rows[r]))));
            }
        if (g) correlate(go, q, v, S(k - 1), g, m.panel, lanes);
        if (grad_x && !held) inputs_gradient(grad_x + (k - 1) * p.n_inputs * L);
    }
    const T* values = nullptr;  // the values that edges take their weights from, for dE/dx
    void inputs_gradient(T* rows) {
        for (i64 i = 0; i < p.n_inputs; ++i) {
            Pack<T> t = zeros<T>();
            for (i64 k = p.out_ptr[i]; k < p.out_ptr[i + 1]; ++k) axpy(t, values[p.out_number[k]], load<T>(row(m.total, p.out_dst[k])));
            store(row(rows, i), t);
        }
    }
    // Adds the gradient to g (entries); grad_x (1 or ticks, inputs, L) becomes dE/dx. Either may be null.
    void backward(T* g, T* grad_x, bool held, int lanes) {
        bool pass = p.topological_pass, carried = p.timed && p.tangent_tick.size;
        if (grad_x) {
            memset(m.total, 0, n * sizeof(T));
        } else if (p.input_projection >= 0) {
            for (u32 r = o.start[p.input_projection]; r < o.start[p.input_projection + 1]; ++r) store(row(m.total, o.rows[r]), zeros<T>());
        }
        for (i64 h = 0; h <= p.hops_back; ++h) {
            i64 k = ticks - h;
            T* v = V(pass ? 0 : carried ? 2 : k & 1);
            if (pass) {
                memset(v, 0, first_output() * ROW);
                memcpy(row(v, first_output()), O(k), outputs * ROW);
                hop(o, p.back[k], w, v, v, v, codes, S(k), D(k), lanes);
            } else {
                if (h) hop(o, p.back[k], w, V((k + 1) & 1), (const T*)nullptr, v, codes, S(k), D(k), lanes);
                if (!h || p.timed) inject(k, v, h > 0);
            }
            tick_gradient(k, v, g, grad_x, held, lanes);
        }
        for (i64 a = 0; a < p.tangent_tick.size;) {
            i64 k = p.tangent_tick[a];
            for (; a < p.tangent_tick.size && p.tangent_tick[a] == k; ++a) {
                Pack<T> v = p.timed ? contracted_on_the_way(a, lanes) : contracted_at_the_end(a, lanes);
                store(row(V(2), p.tangent_neuron[a]), v);
            }
            tick_gradient(k, V(2), g, grad_x, held, lanes);
        }
        if (g && p.input_projection >= 0) correlate(go, p.input_projection, m.total, m.S, g, m.panel, lanes);
        if (grad_x && held) inputs_gradient(grad_x);
    }

    // -- tangents ------------------------------------------------------------------------------------------------------------
    T* tangent_start(i64 a) {
        i64 k = p.tangent_tick[a], j = p.tangent_neuron[a];
        store(row(m.tangent, j), slope(k, j));
        return m.tangent;
    }
    // Hop h of tangent a, from `now` to the other half of the buffer, which is returned.
    T* tangent_hop(i64 a, i64 h, T* now, int lanes) {
        i64 k = p.tangent_tick[a] + 1 + h;
        T* next = now == m.tangent ? m.tangent + n : m.tangent;
        hop(o, p.tangent_chain[p.tangent_ptr[a] + h], w, now, (const T*)nullptr, next, codes, S(k), D(k), lanes);
        return next;
    }
    i64 tangent_hops(i64 a) const { return p.tangent_ptr[a + 1] - p.tangent_ptr[a]; }
    Pack<T> contracted_at_the_end(i64 a, int lanes) {
        i64 hops = tangent_hops(a);
        T *now = tangent_start(a), *readout = V((ticks - 1) & 1);
        for (i64 h = 0; h < hops - 1; ++h) now = tangent_hop(a, h, now, lanes);
        i64 q = p.tangent_chain[p.tangent_ptr[a + 1] - 1];
        Pack<T> v = zeros<T>();
        for (u32 r = o.start[q]; r < o.start[q + 1]; ++r) fma(v, pulled_row<ROW>(o, r, w, now, (const T*)nullptr, 0), load<T>(row(readout, o.rows[r])));
        return v;
    }
    Pack<T> contracted_on_the_way(i64 a, int lanes) {
        i64 k = p.tangent_tick[a], j = p.tangent_neuron[a], first = first_output();
        T* now = tangent_start(a);
        Pack<T> v = zeros<T>();
        auto look = [&](i64 tick, i64 neuron) {
            Pack<T> looked = load<T>(row(O(tick), neuron - first));
            v = add(v, where(looked, mul(looked, load<T>(row(now, neuron)))));
        };
        if (j >= first) look(k, j);
        for (i64 h = 0; h < tangent_hops(a); ++h) {
            now = tangent_hop(a, h, now, lanes);
            i64 q = p.tangent_chain[p.tangent_ptr[a] + h];
            for (u32 r = o.start[q + 1]; r > o.start[q] && o.rows[r - 1] >= first; --r) look(k + 1 + h, o.rows[r - 1]);  // outputs come last
        }
        return v;
    }

    // -- the Jacobian of a chunk: J[output * n_gradient + number] += v * s over the entries of rows ---------------------------------
    void spread_row(u32 r, const Pack<T>& v, const T* s, T* J) {
        for (size_t k = o.ptr[r]; k < o.ptr[r + 1]; ++k) {
            T* to = row(J, o.number[k]);
            Pack<T> sum = load<T>(to);
            fma(sum, v, load<T>(row(s, o.col[k])));
            store(to, sum);
        }
    }
    void spread(i64 k, const T* v, T* J) {
        for (u32 r = o.start[p.gradient[k]]; r < o.start[p.gradient[k] + 1]; ++r) spread_row(r, load<T>(row(v, o.rows[r])), S(k - 1), J);
    }
    // Derivatives of the outputs after tick `top`, where `mask` is not 0, or of the readout, by backprop from each output.
    void jacobian_back(i64 top, const T* mask, bool reads) {
        for (i64 q = 0; q < outputs; ++q) {
            T* J = m.J + q * p.n_gradient * L;
            i64 j = first_output() + q;
            for (i64 k = top; k > 0; --k) {
                T* v = V(k & 1);
                if (k == top) for (u32 r = o.start[p.forward[k]]; r < o.start[p.forward[k] + 1]; ++r) store(row(v, o.rows[r]), zeros<T>());
                else hop(o, p.back[k], w, V((k + 1) & 1), (const T*)nullptr, v, codes, S(k), D(k), L);
                if (reads && any(m.readout + (k - 1) * L))
                    store(row(v, j), add(load<T>(row(v, j)), mul(load<T>(m.readout + (k - 1) * L), slope(k, j))));
                else if (!reads && k == top)
                    store(row(v, j), mask ? where(load<T>(mask), slope(k, j)) : slope(k, j));
                spread(k, v, J);
            }
        }
    }
    // The same after the last tick by tangents to the outputs; one tangent is used for all outputs.
    void jacobian_forward() {
        i64 q = p.gradient[ticks];
        auto of_output = [&](i64 j) { return m.J + (j - first_output()) * p.n_gradient * L; };
        for (u32 r = o.start[q]; r < o.start[q + 1]; ++r) spread_row(r, slope(ticks, o.rows[r]), S(ticks - 1), of_output(o.rows[r]));
        for (i64 a = 0; a < p.tangent_tick.size; ++a) {
            T* now = tangent_start(a);
            for (i64 h = 0; h < tangent_hops(a); ++h) now = tangent_hop(a, h, now, L);
            q = p.tangent_chain[p.tangent_ptr[a + 1] - 1];
            for (u32 r = o.start[q]; r < o.start[q + 1]; ++r)
                spread_row(p.tangent_row[a], load<T>(row(now, o.rows[r])), S(p.tangent_tick[a] - 1), of_output(o.rows[r]));
        }
    }
    void jacobian(i64 top, const T* mask, bool reads) {
        memset(m.J, 0, outputs * p.n_gradient * ROW);
        if (p.hops_back > 0 || p.timed || ticks == 1) jacobian_back(top, mask, reads);
        else jacobian_forward();
    }
};
}  // namespace
