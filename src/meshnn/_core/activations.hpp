// Activations phi(t) and their derivatives for rows of samples. Codes as in meshnn/codes.py.
//
// The kink of relu, leaky_relu and elu at 0 takes the derivative from the left, and those of hardtanh at -1 and 1 take 0,
// as PyTorch does. Derivatives are computed from exp(-|t|) and never from 1 - phi, which is mostly rounding error in
// saturated neurons.
#pragma once
#include "elementary.hpp"

namespace {
enum Activation { IDENTITY, RELU, LEAKY_RELU, ELU, SOFTPLUS, SIGMOID, TANH, SIN, GAUSS, HARDTANH };
constexpr double SATURATED = 87;  // expm1 is finite in float up to here; beyond it tanh is 1 and elu -1

template <int code, class T> INLINE Vec<T> activation_of(Vec<T> t, Vec<T>& slope) {
    typedef Vec<T> V;
    const V zero{}, one = zero + T(1), far = zero + T(SATURATED);
    if constexpr (code == TANH) {
        V size = abs_of<T>(t) * T(2), e = expm1_of<T>(size > far ? far : size), s = e / (e + T(2)), x = one / (e + one);
        slope = size > far ? zero : x * T(4) / ((one + x) * (one + x));
        return t < zero ? -s : s;
    } else if constexpr (code == SIGMOID) {
        V x = exp_of<T>(-abs_of<T>(t));
        slope = x / ((one + x) * (one + x));
        return (t < zero ? x : one) / (one + x);
    } else if constexpr (code == LEAKY_RELU) {
        slope = t <= zero ? splat<V>(T(0.01)) : one;
        return t <= zero ? t * T(0.01) : t;
    } else if constexpr (code == ELU) {
        V size = t < -far ? far : (t < zero ? -t : zero), e = expm1_of<T>(size), x = one / (e + one);
        slope = t <= zero ? (t < -far ? zero : x) : one;
        return t <= zero ? (size > one ? x - one : -e * x) : t;
    } else if constexpr (code == SOFTPLUS) {
        V e = exp_of<T>(-abs_of<T>(t));
        slope = (t < zero ? e : one) / (one + e);
        return (t < zero ? zero : t) + log1p_of<T>(e);
    } else if constexpr (code == SIN) {
        V s = zero;
        for (int i = 0; i < WIDTH<T>; ++i) s[i] = sin_of(t[i]), slope[i] = cos_of(t[i]);
        return s;
    } else if constexpr (code == GAUSS) {
        t = t > far ? far : (t < -far ? -far : t);  // beyond it both are 0; this avoids an overflow
        V s = exp_of<T>(-t * t);
        slope = t * T(-2) * s;
        return s;
    } else if constexpr (code == HARDTANH) {
        slope = t <= -one ? zero : (t >= one ? zero : one);
        return t <= -one ? -one : (t >= one ? one : t);
    } else if constexpr (code == RELU) {
        slope = t <= zero ? zero : one;
        return t <= zero ? zero : t;
    } else {
        slope = one;
        return t;
    }
}
template <int code, class T> NOINLINE void activate_as(T* s, T* d) {
    for (int l = 0; l < LANES<T>; l += WIDTH<T>) {
        Vec<T> slope{}, value = activation_of<code, T>(load_vec<Vec<T>>(s + l), slope);
        store_vec(s + l, value);
        store_vec(d + l, slope);
    }
}
template <class T, size_t... code> INLINE void activate_among(i64 which, T* s, T* d, Indices<code...>) {
    static constexpr void (*each[])(T*, T*) = {activate_as<(int)code, T>...};
    each[which](s, d);
}
// Row s holds t; make it phi(t) and row d phi'(t).
template <class T> INLINE void activate(i64 code, T* s, T* d) { activate_among(code, s, d, typename MakeIndices<HARDTANH + 1>::type{}); }
// phi' of a neuron; that of identity and relu follows from the state and is not stored.
template <class T> INLINE Pack<T> slope_of(i64 code, const T* s, const T* d) {
    if (code == IDENTITY) return fill<T>(T(1));
    if (code == RELU) return step(load<T>(s));
    return load<T>(d);
}
}  // namespace
