// Steps of an optimiser: Adam (Kingma and Ba, 2015) or momentum, with penalties l1 and l2.
//
//   g    += l2 penalised w                                        the gradient of the penalty
//   Adam      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g g,  w -= rate m' / (sqrt(v') + epsilon), m' and v' unbiased
//   momentum  m = b1 m + g,           w -= rate m, or Nesterov's w -= rate (g + b1 m)
//
// l1 is then applied as a proximal step with the step size of each weight, so that zeros are exact. The velocity of momentum
// is a sum of gradients that does not contain the rate, so that a lower rate takes effect immediately.
#pragma once
#include "core.hpp"
#include "simd.hpp"

namespace {
// The sum of squares in 8 partial sums, in double precision.
template <class T> NOINLINE double squared_norm(const T* __restrict g, i64 count) {
    double part[8] = {};
    i64 e = 0;
    for (; e + 8 <= count; e += 8)
        for (int k = 0; k < 8; ++k) part[k] += (double)g[e + k] * (double)g[e + k];
    for (int k = 0; e < count; ++e, ++k) part[k] += (double)g[e] * (double)g[e];
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
template <class T> INLINE T shrunk(T w, T by) {
    T size = (w < 0 ? -w : w) - by;
    size = size > 0 ? size : T(0);
    return w > 0 ? size : -size;
}
template <class T>
NOINLINE void adam(T* __restrict w, const T* __restrict g, T* __restrict mean, T* __restrict square, const T* __restrict penalised,
                   const OptimizerState& m, i64 t, double rate, i64 count) {
    const T b1 = (T)m.beta1, b2 = (T)m.beta2, c1 = 1 - b1, c2 = 1 - b2, tiny = (T)m.epsilon, shrink = (T)(m.l1 * rate);
    const T step = (T)(rate / (1 - __builtin_pow(m.beta1, (double)t))), scale = (T)(1 / (1 - __builtin_pow(m.beta2, (double)t)));
    INDEPENDENT
    for (i64 e = 0; e < count; ++e) {
        mean[e] = b1 * mean[e] + c1 * g[e];
        square[e] = b2 * square[e] + c2 * g[e] * g[e];
        w[e] -= step * mean[e] / (root(square[e] * scale) + tiny);
    }
    if (m.l1 > 0)
    INDEPENDENT
        for (i64 e = 0; e < count; ++e) w[e] = shrunk(w[e], shrink * penalised[e] / (root(square[e] * scale) + tiny));
}
template <class T>
NOINLINE void momentum(T* __restrict w, const T* __restrict g, T* __restrict velocity, const T* __restrict penalised,
                       const OptimizerState& m, double rate, i64 count) {
    const T r = (T)rate, b = (T)m.beta1, shrink = (T)(m.l1 * rate);
    const T own = m.solver == NESTEROV ? T(1) : T(0), of_velocity = m.solver == NESTEROV ? b : T(1);
    INDEPENDENT
    for (i64 e = 0; e < count; ++e) {
        velocity[e] = b * velocity[e] + g[e];
        w[e] -= r * (own * g[e] + of_velocity * velocity[e]);
    }
    if (m.l1 > 0)
    INDEPENDENT
        for (i64 e = 0; e < count; ++e) w[e] = shrunk(w[e], shrink * penalised[e]);
}
// Parameters first to last: adds the penalty to the gradient.
template <class T> INLINE void penalise(const T* __restrict values, T* __restrict grad, const OptimizerState& m, i64 first, i64 last) {
    const T* __restrict penalised = as<T>(m.penalised).data;
    const T decay = (T)m.l2;
    if (m.l2 > 0)
    INDEPENDENT
        for (i64 e = first; e < last; ++e) grad[e] += decay * penalised[e] * values[e];
}
// Takes step t (from 1) along the gradient, penalty included.
template <class T> INLINE void take_step(T* values, const T* grad, const OptimizerState& m, i64 t, double rate, i64 first, i64 last) {
    T* mean = as<T>(m.first).data + first;
    const T* penalised = as<T>(m.penalised).data + first;
    if (m.solver == ADAM) adam(values + first, grad + first, mean, as<T>(m.second).data + first, penalised, m, t, rate, last - first);
    else momentum(values + first, grad + first, mean, penalised, m, rate, last - first);
}
// Adds the penalty and takes the step. Returns the squared norm of the gradient with the penalty.
template <class T> double update_block(T* values, T* grad, const OptimizerState& m, i64 t, double rate, i64 first, i64 last) {
    penalise(values, grad, m, first, last);
    const double norm = squared_norm(grad + first, last - first);
    take_step(values, grad, m, t, rate, first, last);
    return norm;
}
}  // namespace
