// Whole batches, divided into fixed buckets of chunks, which any thread may process. Sums are added in the order of the
// buckets, so that results do not depend on the number of threads.
#pragma once
#include "backward.hpp"
#include "influence.hpp"
#include "optimizer.hpp"

namespace {
constexpr i64 MOST_BUCKETS = 8;         // also the maximum number of threads per batch
constexpr i64 SLAB = 65536;             // samples whose gradients are summed in the dtype; sums of slabs are in double precision
constexpr double LEAST_WORK = 250000;   // least multiply-adds per bucket
constexpr i64 LARGE = 1 << 16;          // least number of values for several threads

// Buckets of a batch: they depend only on its size and the work per sample.
struct Buckets {
    i64 chunks, count;
    // A bucket has at least two chunks, or `least` chunks if that is more; except if the batch has fewer.
    Buckets(i64 n_chunks, i64 size, double work, i64 least = 2) : chunks(n_chunks), count(1) {
        double most = (double)size * work / LEAST_WORK;
        i64 some = least > 2 ? chunks / least : max_of(chunks / 2, min_of<i64>(chunks, 2));
        count = max_of<i64>(1, min_of(min_of(MOST_BUCKETS, some), most < (double)MOST_BUCKETS ? (i64)most : MOST_BUCKETS));
    }
    // The buckets of the largest slab of a batch.
    template <class T> static i64 most(const Batch<T>& b, double work, i64 least = 2) {
        i64 size = min_of(b.size, SLAB);
        return Buckets((size + b.per - 1) / b.per, size, work, least).count;
    }
    i64 first(i64 q) const { return chunks * q / count; }
};
// Run f(q) for q = 0 .. count - 1 in up to `threads` threads, with denormal numbers flushed.
template <class F> void in_parallel(i64 count, i64 threads, const F& f) {
    parallel(count, threads, [](void* context, i64 q) {
        FlushDenormals flush;
        (*static_cast<const F*>(context))(q);
    }, const_cast<F*>(&f));
}
// Run f(first, last) for ranges of 0 to `size`, one range per thread, or a single range if `size` is small.
template <class F> void in_ranges(i64 size, i64 threads, i64 unit, const F& f) {
    i64 count = size > LARGE ? max_of<i64>(threads, 1) : 1, units = (size + unit - 1) / unit;
    if (count == 1) return f(0, size);
    in_parallel(count, threads, [&](i64 q) { f(min_of(units * q / count * unit, size), min_of(units * (q + 1) / count * unit, size)); });
}
// A buffer that is returned to the pool at the end of a scope.
template <class T> struct Buffer {
    Pool& pool;
    T* data;
    Buffer(Pool& from, i64 count) : pool(from), data(static_cast<T*>(borrow(from, (size_t)max_of<i64>(count, 1) * sizeof(T)))) {}
    ~Buffer() { if (data) give_back(pool, data); }
};
template <class T> struct Borrowed {
    Engine& e;
    Workspace<T>* m;
    explicit Borrowed(Engine& engine) : e(engine), m(borrow_workspace<T>(engine)) { if (m) m->correct = 0; }
    ~Borrowed() { if (m) give_back(e.workspaces, m, true); }
};
INLINE i64 rounded_up(i64 count) { return (count + 15) / 16 * 16; }

// For every bucket of every slab of a batch: f(q, batch of the slab, first chunk, last chunk, net in a workspace) -> Status; then
// end(buckets). `w` are the weights in the order of the plan's entries.
template <class T, class F, class End> Status for_buckets(Engine& e, const T* w, Batch<T> b, const Threads& t, const F& f, const End& end, i64 least = 2) {
    i64 size = b.size;
    for (i64 begin = 0; begin < size; begin += SLAB) {
        b.begin = begin, b.size = min_of(SLAB, size - begin);
        Buckets buckets(b.chunks(), b.size, t.work, least);
        Status status[MOST_BUCKETS];
        in_parallel(buckets.count, t.count, [&](i64 q) {
            Borrowed<T> workspace(e);
            if (!workspace.m) { status[q] = NO_MEMORY; return; }
            BackwardChunk<T> net(*e.plan, w, *workspace.m);
            status[q] = f(q, b, buckets.first(q), buckets.first(q + 1), net);
        });
        for (i64 q = 0; q < buckets.count; ++q)
            if (status[q] != OK) return status[q];
        end(buckets.count);
        if (begin + SLAB < size && t.poll.stop && t.poll.stop(t.poll.context)) return INTERRUPTED;
    }
    return OK;
}
// Weights in the order of the plan's entries, followed by space for `more` numbers.
template <class T> struct Weights : Buffer<T> {
    Status status = OK;
    Weights(Engine& e, const T* values, i64 more, i64 threads, bool check = false) : Buffer<T>(e.buffers, rounded_up(e.plan->weight_index.size) + more) {
        if (!this->data) status = NO_MEMORY;
        else if (check && !all_finite(values, e.plan->n_values)) status = BAD_WEIGHTS;
        if (status != OK) return;
        in_ranges(e.plan->weight_index.size, threads, 1, [&](i64 first, i64 last) { gather_weights(*e.plan, values, this->data, first, last); });
    }
    T* rest(Engine& e) const { return this->data + rounded_up(e.plan->weight_index.size); }
};
}  // namespace
