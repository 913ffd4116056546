// Elementary functions of a register, accurate to a few units in the last place. They keep NaN and overflow to infinity.
//
//   exp    x = k ln 2 + r, |r| <= ln 2 / 2;  e^x = 2^k (1 + expm1(r)), expm1 by its Taylor series
//   log    x = 2^k m, m between sqrt(1/2) and sqrt(2);  log m = 2 atanh(f), f = (m - 1) / (m + 1), by its series
#pragma once
#include "simd.hpp"

namespace {
template <class T> struct Constants;
template <> struct Constants<float> {
    static constexpr float log2e = 1.44269504088896341f, round = 12582912.f;
    static constexpr float ln2_high = 0.693359375f, ln2_low = -2.1219444005469057e-4f;  // k ln2_high is exact
    static constexpr int bias = 127, shift = 23;
    static constexpr float exp[] = {1 / 5040.f, 1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 1 / 2.f};
    static constexpr float log[] = {1 / 9.f, 1 / 7.f, 1 / 5.f, 1 / 3.f};
    static constexpr float largest = 90.f, least = -105.f;
    static constexpr int32_t mantissa = 0x007FFFFF, one = 0x3F800000;
};
template <> struct Constants<double> {
    static constexpr double log2e = 1.4426950408889634, round = 6755399441055744.0;
    static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.4286068203094173e-06;
    static constexpr int bias = 1023, shift = 52;
    static constexpr double exp[] = {1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800., 1 / 362880., 1 / 40320.,
                                     1 / 5040., 1 / 720., 1 / 120., 1 / 24., 1 / 6., 1 / 2.};
    static constexpr double log[] = {1 / 23., 1 / 21., 1 / 19., 1 / 17., 1 / 15., 1 / 13., 1 / 11., 1 / 9., 1 / 7., 1 / 5., 1 / 3.};
    static constexpr double largest = 711, least = -750;
    static constexpr int64_t mantissa = 0x000FFFFFFFFFFFFF, one = 0x3FF0000000000000;
};
constexpr double SQRT2 = 1.4142135623730951, LN2 = 0.6931471805599453;

template <class V, class T, size_t N> INLINE V horner(V x, const T (&c)[N]) {
    V p = splat<V>(c[0]);
    EACH(N - 1, p = p * x + c[I + 1]);
    return p;
}
template <class T> INLINE Vec<T> abs_of(Vec<T> x) { return x < Vec<T>{} ? -x : x; }
// x = k ln 2 + r: returns expm1(r)
template <class T> INLINE Vec<T> split_exponent(Vec<T> x, Mask<T>& k) {
    typedef Constants<T> C;
    Vec<T> z = x * C::log2e + C::round, n = z - C::round;  // the sum is rounded to an integer, which is in its low bits
    k = (Mask<T>)z - (Mask<T>)splat<Vec<T>>(C::round);
    Vec<T> r = (x - n * C::ln2_high) - n * C::ln2_low;
    return r + r * r * horner(r, C::exp);
}
template <class T> INLINE Vec<T> power_of_2(Mask<T> k) { return (Vec<T>)((k + Constants<T>::bias) << Constants<T>::shift); }
template <class T> INLINE Vec<T> exp_of(Vec<T> x) {
    Vec<T> largest = splat<Vec<T>>(Constants<T>::largest), least = splat<Vec<T>>(Constants<T>::least);
    x = x > largest ? largest : x;  // NaN is unchanged
    x = x < least ? least : x;
    Mask<T> k;
    Vec<T> p = split_exponent<T>(x, k);
    Mask<T> half = k >> 1;  // 2^k in two factors: alone it would overflow for the largest results
    return ((p + T(1)) * power_of_2<T>(half)) * power_of_2<T>(k - half);
}
// e^x - 1 for x between -87 and 87
template <class T> INLINE Vec<T> expm1_of(Vec<T> x) {
    Mask<T> k;
    Vec<T> p = split_exponent<T>(x, k), s = power_of_2<T>(k);
    return s * p + (s - T(1));
}
template <class T> INLINE Vec<T> log_series(Vec<T> f) { return (f + f * (f * f) * horner(f * f, Constants<T>::log)) * T(2); }
// log of a normal positive number, infinity or NaN
template <class T> INLINE Vec<T> log_of(Vec<T> x) {
    typedef Constants<T> C;
    Mask<T> bits = (Mask<T>)x, k = (bits >> C::shift) - C::bias;
    Vec<T> m = (Vec<T>)((bits & C::mantissa) | C::one);
    Mask<T> large = m > splat<Vec<T>>(T(SQRT2));
    m = large ? m * T(0.5) : m;
    k -= large;
    Vec<T> n = __builtin_convertvector(k, Vec<T>);
    Vec<T> value = n * C::ln2_high + (n * C::ln2_low + log_series<T>((m - T(1)) / (m + T(1))));
    return x < splat<Vec<T>>(T(__builtin_inf())) ? value : x;
}
// log(1 + u) for u between 0 and 1
template <class T> INLINE Vec<T> log1p_of(Vec<T> u) {
    Mask<T> large = u > splat<Vec<T>>(T(SQRT2 - 1));  // then 1 + u = 2 (1 + (u - 1) / 2)
    Vec<T> x = large ? (u - T(1)) * T(0.5) : u;
    Vec<T> value = log_series<T>(x / (x + T(2)));
    return large ? value + T(LN2) : value;
}
INLINE float sin_of(float x) { return __builtin_sinf(x); }
INLINE double sin_of(double x) { return __builtin_sin(x); }
INLINE float cos_of(float x) { return __builtin_cosf(x); }
INLINE double cos_of(double x) { return __builtin_cos(x); }
}  // namespace
