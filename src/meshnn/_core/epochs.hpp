// Training: epochs of steps inside compiled code. A step gathers the weights, adds the gradients of the buckets of a batch in
// their order and moves the parameters, block by block.
#pragma once
#include "calls.hpp"

namespace {
// Steps on one batch after the other. If a batch is the whole set, its packed chunks are kept.
template <class T> struct Training {
    Engine& e;
    EpochsCall& call;
    const Plan& p;
    T *values, *w, *g, *total;
    i64 stride;
    bool whole;       // whether a batch is the whole set
    T* packed;        // (chunks, packed rows, L) of such a batch, or null
    i64 packed_rows;
    bool ready = false;  // whether it is packed
    double loss[MOST_BUCKETS], correct[MOST_BUCKETS];
    Status status[MOST_BUCKETS];

    bool straight() const { return p.straight; }  // the entries are the values, in their order
    void pack_here(Workspace<T>& m, i64 c) {
        T* at = packed + c * packed_rows * LANES<T>;
        i64 looks = p.timed ? p.ticks : 1;
        m.x = at, at += p.n_inputs * LANES<T>;
        m.y = at, at += looks * p.n_outputs * LANES<T>;
        m.share = at, at += looks * LANES<T>;
        m.readout = at, at += looks * LANES<T>;
        m.stop = at;
    }
    static i64 rows_of(const Plan& p) { i64 looks = p.timed ? p.ticks : 1; return p.n_inputs + looks * (p.n_outputs + 2) + 1; }
    Status bucket(i64 q, const Batch<T>& b, i64 first, i64 last, bool with_gradient) {
        Borrowed<T> workspace(e);
        if (!workspace.m) return NO_MEMORY;
        Workspace<T>& m = *workspace.m;
        Workspace<T> own = m;  // local pointers
        BackwardChunk<T> net(p, w, m);
        T* mine = g + q * stride;
        if (with_gradient) memset(mine, 0, p.grad_index.size * sizeof(T));
        loss[q] = 0;
        for (i64 c = first; c < last; ++c) {
            if (packed) pack_here(m, c);
            if (!packed || !ready || b.input_ticks > 1) {
                net.take(b, c);
                net.take_targets(b, c);
            } else {
                net.stops = b.stop != nullptr;
            }
            net.run_with_loss(b, b.lanes(c), loss[q]);
            if (with_gradient) net.backward(mine, nullptr, true, b.lanes(c));
        }
        if (with_gradient) clear_padding(p, mine, p.grad_index.size);
        if (packed) m.x = own.x, m.y = own.y, m.share = own.share, m.readout = own.readout, m.stop = own.stop;
        correct[q] = m.correct;
        return OK;
    }
    // Losses and gradients of a batch; returns the buckets.
    i64 run(const Batch<T>& b, bool with_gradient, Status& worst) {
        i64 threads = call.threads.count;
        in_ranges(p.weight_index.size, threads, 1, [&](i64 first, i64 last) { gather_weights(p, values, w, first, last); });
        Buckets buckets(b.chunks(), b.size, call.threads.work);
        in_parallel(buckets.count, threads, [&](i64 q) { status[q] = bucket(q, b, buckets.first(q), buckets.first(q + 1), with_gradient); });
        for (i64 q = 0; q < buckets.count; ++q)
            if (status[q] != OK) worst = status[q];
        ready = true;
        return buckets.count;
    }
    double step(i64 buckets, i64 number, double rate, double* norms) {
        i64 threads = call.threads.count, learned = call.optimizer->first.size, entries = p.grad_index.size;
        if (buckets > 1)
            in_ranges(entries, threads, BLOCK, [&](i64 first, i64 last) {
                for (i64 q = 1; q < buckets; ++q) {
                    T* __restrict sum = g;
                    const T* __restrict more = g + q * stride;
                    for (i64 k = first; k < last; ++k) sum[k] += more[k];
                }
            });
        in_ranges(p.n_values, threads, BLOCK, [&](i64 first, i64 last) {
            if (!straight()) {
                memset(total + first, 0, (last - first) * sizeof(T));
                scatter_gradient(p, g, total, first, last);
            }
            for (i64 k = first; k < min_of(last, learned); k += BLOCK)
                norms[k / BLOCK] = update_block(values, straight() ? g : total, *call.optimizer, number, rate, k, min_of(k + BLOCK, min_of(last, learned)));
        });
        double norm = 0;
        for (i64 k = 0; k < learned; k += BLOCK) norm += norms[k / BLOCK];
        return norm;
    }
};
// record (epochs, 3) becomes mean loss, fraction of correct samples and norm of the last gradient of each epoch; if a
// batch is the whole set, the last row has loss and fraction after all steps. Stops after an epoch whose loss is not
// finite.
template <class T> Status epochs_call(Engine& e, EpochsCall& call) {
    FlushDenormals flush;
    const Plan& p = *e.plan;
    Batch<T> batch(call.samples, &call.targets, p.n);
    i64 n = batch.size, size = call.batch, epochs = call.record.n[0], norms = (p.n_values + BLOCK - 1) / BLOCK;
    batch.per = call.per, batch.size = size;
    bool whole = size >= n;
    i64 stride = rounded_up(p.grad_index.size), buckets = Buckets(batch.chunks(), size, call.threads.work).count;
    i64 packed_rows = Training<T>::rows_of(p), packed = whole ? batch.chunks() * packed_rows * LANES<T> : 0;
    Weights<T> w(e, as<T>(call.values).data, buckets * stride + rounded_up(p.n_values) + packed, call.threads.count);
    Buffer<double> norm_of(e.buffers, norms);
    if (!w.data || !norm_of.data) return NO_MEMORY;
    T *g = w.rest(e), *total = g + buckets * stride;
    Training<T> t{e, call, p, as<T>(call.values).data, w.data, g, total, stride, whole, whole ? total + rounded_up(p.n_values) : nullptr, packed_rows};
    i64 steps = 0;
    double spent = 0, work = (double)size * call.threads.work;
    Status status = OK;
    for (i64 k = 0; k < epochs; ++k) {
        double loss = 0, correct = 0, norm = 0;
        batch.order = whole ? nullptr : call.order.data + k * n;
        for (i64 begin = 0; begin < n; begin += size, ++steps) {
            batch.begin = begin, batch.size = min_of(size, n - begin);
            batch.scale = whole ? T(1) : T((double)n / (double)batch.size);  // sample weights relative to the whole set
            i64 count = t.run(batch, true, status);
            if (status != OK) return status;
            norm = t.step(count, call.done + steps + 1, call.rates[steps], norm_of.data);
            for (i64 q = 0; q < count; ++q) loss += t.loss[q] * (double)batch.size / (double)n, correct += t.correct[q] * (double)batch.size / (double)n;
            if ((spent += work) > 1e6 && call.threads.poll.stop) {
                spent = 0;
                if (call.threads.poll.stop(call.threads.poll.context)) return INTERRUPTED;
            }
        }
        double* row = call.record.data + 3 * k;
        row[0] = loss, row[1] = correct, row[2] = __builtin_sqrt(norm);
        call.finished = k;
        if (!__builtin_isfinite(loss)) return OK;
    }
    if (whole && epochs) {  // another pass computes the loss after the last step
        i64 count = t.run(batch, false, status);
        double* row = call.record.data + 3 * (epochs - 1);
        row[0] = row[1] = 0;
        for (i64 q = 0; q < count; ++q) row[0] += t.loss[q], row[1] += t.correct[q];
    }
    call.finished = epochs;
    return status;
}
}  // namespace
