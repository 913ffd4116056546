// The covariance of parameters in symmetric blocks, of which the lower half is stored.
//
// A block of n parameters, padded to a multiple of 8, is stored in strips of 8 rows: strip k has the rows 8 k to 8 k +
// 7, and of each row the columns 0 to 8 k + 7, row by row. The other half is not stored, every row begins at a multiple
// of 64 bytes, and one sequential read of a strip serves both halves.
#pragma once
#include "influence.hpp"

namespace {
constexpr int STRIP = 8;             // as in meshnn/codes.py
constexpr double ROUNDING = 1e-13;   // least growth of a variance: several hundred times the rounding error of its row
constexpr int ROWS = VECTOR_BYTES == 64 ? 8 : 4;  // number of rows whose sums fit into registers
typedef Vec<double> V;

// The sums across each of four vectors.
typedef VectorOf<double, 32>::type Four;
template <class V> INLINE Four sums(const V* x) {
    auto a = half_of<double>(x[0]), b = half_of<double>(x[1]), c = half_of<double>(x[2]), d = half_of<double>(x[3]);
    if constexpr (sizeof(a) == 16) {
        return Four{a[0] + a[1], b[0] + b[1], c[0] + c[1], d[0] + d[1]};
    } else {
        auto ab = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
        auto cd = __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
        return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    }
}
// u = P h for a block of n parameters
NOINLINE void multiply(const double* __restrict P, const double* __restrict h, double* __restrict u, i64 n) {
    constexpr int W = WIDTH<double>;
    clear(u, n);
    for (i64 i = 0; i < n; i += STRIP) {
        const i64 w = i + STRIP;
        for (i64 r = i; r < w; r += ROWS, P += ROWS * w) {
            V a[ROWS], b[ROWS];
            EACH(ROWS, (a[I] = V{}, b[I] = splat<V>(h[r + I])));
            for (i64 j = 0; j < i; j += W) {
                V x = load_vec<V>(h + j), even = load_vec<V>(u + j), odd{};
                EACH(ROWS, ([&]() __attribute__((always_inline)) {
                    V p = load_vec<V>(P + I * w + j);
                    a[I] += p * x;
                    (I % 2 ? odd : even) += p * b[I];
                }()));
                store_vec(u + j, even + odd);
            }
            for (i64 j = i; j < w; j += W) {  // the square on the diagonal is stored whole
                V x = load_vec<V>(h + j);
                EACH(ROWS, a[I] += load_vec<V>(P + I * w + j) * x);
            }
            double* to = u + r;
            EACH(ROWS / 4, store_vec(to + 4 * I, load_vec<Four>(to + 4 * I) + sums(a + 4 * I)));
        }
    }
}
// P -= u u', with the same bits in both halves of a square on the diagonal
NOINLINE void subtract(double* __restrict P, const double* __restrict u, i64 n) {
    constexpr int W = WIDTH<double>;
    for (i64 i = 0; i < n; i += 4) {
        const i64 w = i / STRIP * STRIP + STRIP;
        V a[4];
        EACH(4, a[I] = splat<V>(u[i + I]));
        for (i64 j = 0; j < w; j += W) {
            V x = load_vec<V>(u + j);
            EACH(4, store_vec(P + I * w + j, load_vec<V>(P + I * w + j) - a[I] * x));
        }
        P += 4 * w;
    }
}
// The variances of a block grow by q, reduced in proportion to their distance from the ceiling, which none exceeds.
// They grow by at least the fraction ROUNDING, which exceeds the rounding error of a step, so that P stays positive if
// q is 0.
INLINE void inflate(double* P, i64 count, double q, double ceiling) {
    const double steep = q / ceiling;
    for (i64 i = 0; i < count; ++i) {
        const i64 w = i / STRIP * STRIP + STRIP;
        double& v = P[w * (w - STRIP) / 2 + i % STRIP * w + i];
        v = min_of(v * (1 + ROUNDING) + max_of(0.0, q - v * steep), ceiling);
    }
}
}  // namespace
