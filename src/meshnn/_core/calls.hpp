// The computations of an engine on whole batches.
#pragma once
#include "buckets.hpp"

namespace {
constexpr i64 BLOCK = 4096;             // parameters whose gradient norm is summed together
constexpr i64 GRAM_ROWS = 64;

// -- outputs and states ----------------------------------------------------------------------------------------------------------
template <class T> bool forward_chunk(Chunk<T>& net, const Batch<T>& b, i64 c, const ForwardCall& call) {
    const Plan& p = net.p;
    const View<T>&out = as<T>(call.out), &end = as<T>(call.end);
    i64 at = b.begin + c * b.per, count = b.count(c), samples = out.n[1], width = out.n[2];
    bool whole = call.wanted == STATES, good = net.take(b, c);
    auto write = [&](i64 k, const T* states) { unpack(states, width, count, out.data + (k * samples + at) * width); };
    if (whole) {
        good = net.clamp(b, 0, net.S(0)) && good;
        write(0, net.S(0));
    }
    good = net.project_inputs(b, b.lanes(c)) && good;
    for (i64 k = 1; k <= net.ticks; ++k) {
        good = net.run_tick(b, k, b.lanes(c)) && good;
        if (whole || (k == net.ticks && !end.empty())) net.clamp(b, k, net.S(k));  // keep the inputs of the last tick
        if (whole) write(k, net.S(k));
        else if (call.wanted == EVERY || k == net.ticks) write(call.wanted == EVERY ? k - 1 : 0, net.outputs_of(net.S(k)));
    }
    if (!end.empty()) unpack(net.S(net.ticks), p.n, count, end.data + at * p.n);
    return good;
}
template <class T> Status forward_call(Engine& e, ForwardCall& call) {
    Weights<T> w(e, as<T>(call.values).data, 0, call.threads.count, call.samples.check);
    if (w.status != OK) return w.status;
    Batch<T> batch(call.samples, nullptr, e.plan->n);
    return for_buckets(e, w.data, batch, call.threads, [&](i64, const Batch<T>& b, i64 first, i64 last, Chunk<T>& net) {
        bool good = true;
        for (i64 c = first; c < last; ++c) good = forward_chunk(net, b, c, call) && good;
        return good ? OK : NOT_FINITE;
    }, [](i64) {});
}

// -- derivatives by carried influence: memory does not grow with the ticks ------------------------------------------------------------
// One sample after the other, edges innermost. States and losses are those of the chunk, whose dE/dy per tick is in O.
template <class T> struct InfluenceWalk {
    const StreamPlan& plan;
    const Plan& p;
    Buffer<T> memory;
    T *s, *J, *sums, *slopes, *panel, *w;
    i64 columns;

    InfluenceWalk(Engine& e, const StreamPlan& plan, const T* values)
        : plan(plan), p(*e.plan), memory(e.buffers, size_of(*e.plan, plan)), columns(columns_of(plan)) {
        if (!memory.data) return;
        const i64 packs = plan.most_packs * LANES<T>;
        s = memory.data, J = s + rounded_up(p.n), sums = J + 2 * columns, slopes = sums + packs, panel = slopes + packs;
        w = panel + plan.most_sources * LANES<T>;
        for (i64 k = 0; k < plan.weight_index.size; ++k) w[k] = values[plan.weight_index[k]];
    }
    static i64 columns_of(const StreamPlan& plan) { return rounded_up(plan.columns) + SIDE; }
    static i64 size_of(const Plan& p, const StreamPlan& plan) {
        return rounded_up(p.n) + 2 * columns_of(plan) + (2 * plan.most_packs + plan.most_sources) * LANES<T> + plan.weight_index.size + 16;
    }
    // Run the ticks of sample `at`; after each, call look(k, J) with the influences on all neurons.
    template <class Look> void run(const Batch<T>& b, i64 at, i64 ticks, const Look& look) {
        memset(J, 0, 2 * columns * sizeof(T));
        memset(s, 0, p.n * sizeof(T));
        if (b.state) memcpy(s, b.state + at * p.n, p.n * sizeof(T));
        for (i64 j = p.n_inputs; j < p.n_clamped; ++j) s[j] = 1;
        T *old = J, *now = J + columns;
        for (i64 k = 1; k <= ticks; ++k) {
            memcpy(s, b.X + ((b.input_ticks > 1 ? k - 1 : 0) * b.n + at) * b.inputs, b.inputs * sizeof(T));
            stream_tick(plan, plan.tick_list[k - 1], w, s, s, old, now, sums, slopes, panel, true);
            look(k, now);
            T* swap = old;
            old = now, now = swap;
        }
    }
    void add_gradient_of(const BackwardChunk<T>& net, const Batch<T>& b, i64 c, T* g) {
        for (i64 l = 0; l < b.count(c); ++l)
            run(b, net.m.rows[l], net.ticks, [&](i64 k, const T* influence) {
                if (p.timed || k == net.ticks) add_gradient(plan, influence, net.O(k) + l, LANES<T>, g);
            });
    }
    void write_jacobian(const Batch<T>& b, i64 at, i64 ticks, T* out) {
        memset(out, 0, p.n_outputs * p.n_gradient * sizeof(T));
        run(b, at, ticks, [&](i64 k, const T* influence) {
            i64 first = 0;
            for (i64 q = 0; k == ticks && q < p.n_outputs; ++q) add_output(plan, q, T(1), influence, out + q * p.n_gradient, first);
        });
    }
};

// -- loss and gradient -------------------------------------------------------------------------------------------------------------
template <class T> void clear_padding(const Plan& p, T* g, i64 entries) {
    for (i64 h = 0; h < p.grad_padding.size; ++h)
        if (p.grad_padding[h] < entries) g[p.grad_padding[h]] = 0;
}
template <class T> Status loss_call(Engine& e, LossCall& call) {
    const Plan& p = *e.plan;
    i64 entries = call.grad.empty() ? 0 : p.grad_index.size, stride = rounded_up(entries), threads = call.threads.count;
    Batch<T> batch(call.samples, &call.targets, p.n);
    i64 most = Buckets::most(batch, call.threads.work);
    Weights<T> w(e, as<T>(call.values).data, most * stride, threads, call.samples.check);
    if (w.status != OK) return w.status;
    T* g = w.rest(e);
    double loss[MOST_BUCKETS], correct[MOST_BUCKETS];
    call.loss = call.correct = 0;
    if (entries) memset(call.grad.data, 0, call.grad.size * sizeof(double));
    return for_buckets(e, w.data, batch, call.threads, [&](i64 q, const Batch<T>& b, i64 first, i64 last, BackwardChunk<T>& net) {
        bool good = true;
        T* mine = entries ? g + q * stride : nullptr;
        if (mine) memset(mine, 0, entries * sizeof(T));
        loss[q] = 0;
        auto each = [&](auto&& derive) {
            for (i64 c = first; c < last; ++c) {
                good = net.take(b, c) && good;
                net.take_targets(b, c);
                good = net.run_with_loss(b, b.lanes(c), loss[q]) && good;
                if (mine) derive(c);
            }
        };
        if (mine && call.influence) {
            InfluenceWalk<T> walk(e, *call.influence, as<T>(call.values).data);
            if (!walk.memory.data) return NO_MEMORY;
            each([&](i64 c) { walk.add_gradient_of(net, b, c, mine); });
        } else {
            each([&](i64 c) { net.backward(mine, nullptr, true, b.lanes(c)); });
        }
        if (mine) clear_padding(p, mine, entries);
        correct[q] = net.m.correct;
        return good ? OK : NOT_FINITE;
    }, [&](i64 count) {
        for (i64 q = 0; q < count; ++q) call.loss += loss[q], call.correct += correct[q];
        if (entries) in_ranges(p.n_gradient, threads, 1, [&](i64 first, i64 last) {
            for (i64 q = 0; q < count; ++q) scatter_gradient(p, g + q * stride, call.grad.data, first, last);
        });
    });
}

// -- vector-Jacobian products, for layers of other libraries ---------------------------------------------------------------------------
template <class T> Status vjp_call(Engine& e, VjpCall& call) {
    const Plan& p = *e.plan;
    const View<T>&slopes = as<T>(call.slopes), &grad = as<T>(call.grad), &grad_X = as<T>(call.grad_X);
    i64 entries = grad.empty() ? 0 : p.grad_index.size, stride = rounded_up(entries), x_rows = grad_X.empty() ? 0 : grad_X.n[0] * p.n_inputs;
    Batch<T> batch(call.samples, nullptr, p.n);
    i64 most = Buckets::most(batch, call.threads.work);
    i64 each = stride + x_rows * LANES<T>;
    Buffer<double> total(e.buffers, entries ? p.n_gradient : 1);
    Weights<T> w(e, as<T>(call.values).data, most * each, call.threads.count);
    if (!w.data || !total.data) return NO_MEMORY;
    T* g = w.rest(e);
    memset(total.data, 0, (entries ? p.n_gradient : 1) * sizeof(double));
    auto bucket = [&](i64 q, const Batch<T>& b, i64 first, i64 last, BackwardChunk<T>& net) {
        net.values = as<T>(call.values).data;
        T *mine = entries ? g + q * each : nullptr, *x = x_rows ? g + q * each + stride : nullptr;
        if (mine) memset(mine, 0, entries * sizeof(T));
        for (i64 c = first; c < last; ++c) {
            i64 at = b.begin + c * b.per, count = b.count(c);
            if (!call.kept) {
                net.take(b, c);
                net.run(b, b.lanes(c));
            }
            b.index(c, net.m.rows);
            for (i64 k = 0; k < slopes.n[0]; ++k) {
                T* to = slopes.n[0] > 1 ? net.O(k + 1) : net.O(net.ticks);
                pack(slopes.data + k * b.n * p.n_outputs, p.n_outputs, net.m.rows, to);
                for (i64 r = 0; r < p.n_outputs; ++r)
                    for (i64 l = count; l < LANES<T>; ++l) to[r * LANES<T> + l] = 0;
            }
            for (i64 k = 1; p.timed && slopes.n[0] == 1 && k < net.ticks; ++k) memset(net.O(k), 0, p.n_outputs * ROW);
            net.backward(mine, x, b.input_ticks == 1, b.lanes(c));
            for (i64 k = 0; x && k < grad_X.n[0]; ++k)
                unpack(x + k * p.n_inputs * LANES<T>, p.n_inputs, count, grad_X.data + (k * b.n + at) * p.n_inputs);
        }
        if (mine) clear_padding(p, mine, entries);
        return OK;
    };
    auto sum_up = [&](i64 count) {
        for (i64 q = 0; entries && q < count; ++q) scatter_gradient(p, g + q * each, total.data, 0, p.n_gradient);
    };
    if (call.kept) {
        FlushDenormals flush;
        BackwardChunk<T> net(p, w.data, *static_cast<Workspace<T>*>(call.kept));
        bucket(0, batch, 0, 1, net);
        sum_up(1);
    } else if (Status status = for_buckets(e, w.data, batch, call.threads, bucket, sum_up)) {
        return status;
    }
    for (i64 k = 0; entries && k < p.n_gradient; ++k) grad[k] = (T)total.data[k];
    return OK;
}
// A forward pass of one chunk. The caller receives the workspace with the states of all ticks.
template <class T> Status keep_call(Engine& e, ForwardCall& call, void** kept) {
    FlushDenormals flush;
    Weights<T> w(e, as<T>(call.values).data, 0, 1);
    Workspace<T>* m = borrow_workspace<T>(e);
    if (!w.data || !m) return NO_MEMORY;
    Batch<T> b(call.samples, nullptr, e.plan->n);
    Chunk<T> net(*e.plan, w.data, *m);
    forward_chunk(net, b, 0, call);
    *kept = m;
    return OK;
}

// -- Jacobian and curvature ------------------------------------------------------------------------------------------------------------
template <class T> Status jacobian_call(Engine& e, JacobianCall& call) {
    const Plan& p = *e.plan;
    Weights<T> w(e, as<T>(call.values).data, 0, call.threads.count, call.samples.check);
    if (w.status != OK) return w.status;
    Batch<T> batch(call.samples, nullptr, p.n);
    i64 width = p.n_outputs * p.n_gradient;
    return for_buckets(e, w.data, batch, call.threads, [&](i64, const Batch<T>& b, i64 first, i64 last, BackwardChunk<T>& net) {
        bool good = true;
        auto at = [&](i64 c) { return as<T>(call.out).data + (b.begin + c * b.per) * width; };
        auto each = [&](auto&& derive) {
            for (i64 c = first; c < last; ++c) {
                good = net.take(b, c) && good;
                good = net.run(b, LANES<T>) && good;
                derive(c);
            }
        };
        if (call.influence) {
            InfluenceWalk<T> walk(e, *call.influence, as<T>(call.values).data);
            if (!walk.memory.data) return NO_MEMORY;
            each([&](i64 c) { for (i64 l = 0; l < b.count(c); ++l) walk.write_jacobian(b, net.m.rows[l], net.ticks, at(c) + l * width); });
        } else {
            each([&](i64 c) {
                net.jacobian(net.ticks, nullptr, false);
                unpack(net.m.J, width, b.count(c), at(c));
            });
        }
        return good ? OK : NOT_FINITE;
    }, [](i64) {});
}
// The lower half of M (n, n) += R R', with R (n, columns) whose rows are `stride` apart. The panel, (n + 64) * columns
// numbers, receives the columns of R in blocks that are contiguous in memory: rows with a distance of a power of 2
// would share few cache lines.
template <class T> void add_gram(const T* R, i64 n, i64 columns, i64 stride, T* panel, T* M) {
    constexpr i64 wide = WIDE / sizeof(T);
    for (i64 i = 0; i < n; i += wide) {
        T* block = panel + i * columns;
        i64 rows[wide];
        for (i64 k = 0; k < wide; ++k) rows[k] = min_of(i + k, n - 1);  // columns after the last are not used
        for (i64 k = 0; k < wide; k += WIDTH<T>)
            for (i64 l = 0; l < columns; l += WIDTH<T>) transpose(R + l, stride, rows + k, block + l * wide + k, wide);
    }
    for (i64 some = 0; some < n; some += GRAM_ROWS)  // rows that stay in the cache for all blocks
        for (i64 i = 0; i < min_of(some + GRAM_ROWS, n); i += wide)
            for (i64 r = max_of(some, i / 4 * 4); r < min_of(some + GRAM_ROWS, n); r += 4) {  // on the diagonal and below
                const T* v[4];
                T *to[4], unused[wide] = {};
                for (int k = 0; k < 4; ++k) {
                    v[k] = R + min_of(r + k, n - 1) * stride;
                    to[k] = r + k < n ? M + (r + k) * n + i : unused;
                }
                outer_block<WIDE>(panel + i * columns, wide, v, columns, to, min_of(wide, n - i));
            }
}
template <class T> struct CurvatureBucket {
    BackwardChunk<T>& net;
    const CurvatureCall& call;
    T *g, *M, *R, *panel;
    i64 piece = 0;
    static i64 stride_of(i64 pieces) { return pieces * LANES<T> + SIDE / (i64)sizeof(T); }
    void flush() {
        if (piece) add_gram(R, call.live.size, piece * LANES<T>, stride_of(call.pieces), panel, M);
        piece = 0;
    }
    // Add the gradient and the columns of a loss whose dE/dy is G.
    void add(const Batch<T>& b, const T* Y, const T* y, const T* share, const T* G, i64 per_look) {
        const Plan& p = net.p;
        if (piece + per_look > call.pieces) flush();
        for (i64 e = 0; e < call.live.size; ++e) {
            Pack<T> sum = zeros<T>();
            for (i64 q = 0; q < p.n_outputs; ++q) fma(sum, load<T>(row(G, q)), load<T>(row(net.m.J, q * p.n_gradient + call.live[e])));
            g[e] += dot(sum, fill<T>(T(1)));
        }
        piece = curvature_columns(b.loss, Y, y, share, net.m.J, p.n_gradient, call.live.data, call.live.size, net.m.P, p.n_outputs, R, stride_of(call.pieces), piece);
    }
};
template <class T> Status curvature_call(Engine& e, CurvatureCall& call) {
    const Plan& p = *e.plan;
    i64 n = call.live.size, columns = CurvatureBucket<T>::stride_of(call.pieces), per_look = p.n_outputs - (call.targets.loss == CROSS_ENTROPY);
    i64 least = max_of<i64>(2, call.pieces / max_of<i64>(per_look, 1));  // least number of chunks per matrix
    i64 matrix = rounded_up(n * n), sizes = rounded_up(n) + matrix + 2 * rounded_up(columns * (n + 64));
    Batch<T> batch(call.samples, &call.targets, p.n);
    i64 most = Buckets::most(batch, call.threads.work, least);
    Weights<T> w(e, as<T>(call.values).data, most * sizes, call.threads.count, call.samples.check);
    if (w.status != OK) return w.status;
    double loss[MOST_BUCKETS], correct[MOST_BUCKETS];
    call.loss = call.correct = 0;
    memset(call.grad.data, 0, n * sizeof(double));
    memset(call.matrix.data, 0, n * n * sizeof(double));
    Status status = for_buckets(e, w.data, batch, call.threads, [&](i64 q, const Batch<T>& b, i64 first, i64 last, BackwardChunk<T>& net) {
        Workspace<T>& m = net.m;
        T* mine = w.rest(e) + q * sizes;
        CurvatureBucket<T> bucket{net, call, mine, mine + rounded_up(n), mine + rounded_up(n) + matrix, mine + rounded_up(n) + matrix + rounded_up(columns * (n + 64))};
        memset(mine, 0, (rounded_up(n) + matrix) * sizeof(T));
        bool good = true;
        loss[q] = 0;
        for (i64 c = first; c < last; ++c) {
            good = net.take(b, c) && good;
            net.take_targets(b, c);
            good = net.run_with_loss(b, LANES<T>, loss[q]) && good;
            if (b.at_ticks) {
                for (i64 k = 1; k <= net.ticks; ++k) {
                    T* share = m.share + (k - 1) * LANES<T>;
                    if (!any(share)) continue;
                    net.jacobian(k, share, false);
                    bucket.add(b, net.outputs_of(net.S(k)), m.y + (b.target_ticks > 1 ? k - 1 : 0) * b.targets * LANES<T>, share, net.O(k), per_look);
                }
            } else {
                net.jacobian(net.ticks, nullptr, b.readout != nullptr);
                bucket.add(b, b.readout ? m.Y : net.outputs_of(net.S(net.ticks)), m.y, m.share, b.readout ? net.O(0) : net.O(net.ticks), per_look);
            }
        }
        bucket.flush();
        correct[q] = m.correct;
        return good ? OK : NOT_FINITE;
    }, [&](i64 count) {
        for (i64 q = 0; q < count; ++q) {
            const T *g = w.rest(e) + q * sizes, *M = g + rounded_up(n);
            call.loss += loss[q], call.correct += correct[q];
            for (i64 k = 0; k < n; ++k) call.grad[k] += g[k];
            for (i64 i = 0; i < n; ++i)
                for (i64 j = 0; j <= i; ++j) call.matrix[i * n + j] += M[i * n + j];
        }
    }, least);
    for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < i; ++j) call.matrix[j * n + i] = call.matrix[i * n + j];
    return status;
}
}  // namespace
