// Standardises numbers of a stream to mean 0 and variance 1, with running moments.
//
//   moments (7, n)   of every number: count, mean, variance; and count, mean, squared deviations and outliers of the
//                    current block of the stream
//
// Old values are forgotten slowly. After a warm-up, values are clipped to WILD deviations before they enter mean and
// variance, so that an outlier changes little. A persistent change of scale is different: after a block with mostly
// outliers, or with a tiny fraction of the variance, the moments restart from the block. A constant number contains no
// information about its scale; its variance decays as slowly as the rest.
#pragma once
#include "simd.hpp"

namespace {
// Rows of the moments, as in meshnn/codes.py.
enum Moment { MOMENT_COUNT, MEAN, VARIANCE, BLOCK_COUNT, BLOCK_MEAN, BLOCK_SQUARES, BLOCK_OUTLIERS };
constexpr double WILD = 10;             // deviations beyond which a number is an outlier
constexpr double WARM_UP = 30;          // number of first samples that are never outliers
constexpr double MEMORY = 2000;         // maximum effective number of samples
constexpr double BLOCK_SIZE = 128;
constexpr double TINY_SHARE = 1e-4;     // fraction of the variance that counts as a change of scale; a ramp has more
constexpr double LARGEST_NUMBER = 1e100;  // larger numbers are clipped, so that squares are finite
constexpr double ROUNDING_SHARE = 1e-12;  // deviation relative to the mean that counts as rounding; as in meshnn/codes.py

INLINE double clamp(double x, double low, double high) { return x < low ? low : (x > high ? high : x); }
// 0 if the number has always been the same
INLINE double deviation_of(double mean, double variance) {
    double deviation = root(variance);
    return deviation > ROUNDING_SHARE * __builtin_fabs(mean) ? deviation : 0;
}
// `missing` replaces numbers that are not finite, or have not varied so far.
template <class T> void standardise(const T* x, const double* moments, i64 n, double cut, double missing, T* out) {
    for (i64 i = 0; i < n; ++i) {
        double mean = moments[MEAN * n + i], deviation = deviation_of(mean, moments[VARIANCE * n + i]), z = missing;
        if (deviation > 0 && __builtin_isfinite(x[i]))
            z = clamp((clamp(x[i], -LARGEST_NUMBER, LARGEST_NUMBER) - mean) / deviation, -cut, cut);
        out[i] = (T)z;
    }
}
template <class T> void unstandardise(const T* z, const double* moments, i64 n, T* out) {
    for (i64 i = 0; i < n; ++i) {
        double mean = moments[MEAN * n + i];
        out[i] = (T)(mean + z[i] * deviation_of(mean, moments[VARIANCE * n + i]));
    }
}
// Missing numbers do not change the moments.
template <class T> void observe(const T* x, double* moments, i64 n) {
    for (i64 i = 0; i < n; ++i) {
        if (!__builtin_isfinite(x[i])) continue;
        double* at = moments + i;
        double value = clamp(x[i], -LARGEST_NUMBER, LARGEST_NUMBER), mean = at[MEAN * n], variance = at[VARIANCE * n];
        double delta = value - mean, deviation = deviation_of(mean, variance);
        if (at[MOMENT_COUNT * n] >= WARM_UP && deviation > 0 && __builtin_fabs(delta) > WILD * deviation) {
            delta = __builtin_copysign(WILD * deviation, delta);
            at[BLOCK_OUTLIERS * n] += 1;
        }
        at[MOMENT_COUNT * n] += 1;
        double rate = max_of(1 / at[MOMENT_COUNT * n], 1 / MEMORY);
        at[MEAN * n] = mean + rate * delta;
        at[VARIANCE * n] = (1 - rate) * (variance + rate * delta * delta);
        at[BLOCK_COUNT * n] += 1;
        double away = value - at[BLOCK_MEAN * n];
        at[BLOCK_MEAN * n] += away / at[BLOCK_COUNT * n];
        at[BLOCK_SQUARES * n] += away * (value - at[BLOCK_MEAN * n]);
        if (at[BLOCK_COUNT * n] < BLOCK_SIZE) continue;
        double block = at[BLOCK_SQUARES * n] / BLOCK_SIZE;
        bool varied = deviation_of(at[BLOCK_MEAN * n], block) > 0;
        if (at[BLOCK_OUTLIERS * n] > BLOCK_SIZE / 2 || (varied && block < TINY_SHARE * at[VARIANCE * n]))
            at[MOMENT_COUNT * n] = BLOCK_SIZE, at[MEAN * n] = at[BLOCK_MEAN * n], at[VARIANCE * n] = block;
        for (int row = BLOCK_COUNT; row <= BLOCK_OUTLIERS; ++row) at[row * n] = 0;
    }
}
}  // namespace
