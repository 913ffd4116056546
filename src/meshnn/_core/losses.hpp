// Losses of a chunk of samples: value, gradient by the outputs and curvature, side by side. Codes as in meshnn/codes.py.
//
//   Y   (outputs, L)        outputs z
//   y   (1 or outputs, L)   labels as numbers, or target values
//   r   (L)                 each sample's weight in the mean; 0 for padding
//   G   (outputs, L)        becomes dE/dY, including the sample weights
//   P   (outputs, L)        input of the curvature: the diagonal of the Hessian, or the softmax
#pragma once
#include "elementary.hpp"

namespace {
enum LossCode { CROSS_ENTROPY, SQUARED_ERROR, HUBER, POISSON, BINARY_CROSS_ENTROPY, QUANTILE = 1000 };
constexpr double HUBER_WIDTH = 1.0, QUANTILE_WIDTH = 0.05;

// Losses that are sums over the outputs: `at` gives value and slope, `curve` the second derivative.
struct SquaredError {
    template <class T> static INLINE Vec<T> at(Vec<T> z, Vec<T> y, Vec<T>& slope) { slope = z - y; return slope * slope * T(0.5); }
    template <class T> static INLINE Vec<T> curve(Vec<T>, Vec<T>) { return splat<Vec<T>>(T(1)); }
};
// Squared up to a width, linear beyond (Huber, 1964). The curvature is slope / error, that of the parabola that touches
// the loss and is nowhere below it: the exact one is 0 beyond the width and would not limit a second-order step.
struct Huber {
    template <class T> static INLINE Vec<T> at(Vec<T> z, Vec<T> y, Vec<T>& slope) {
        Vec<T> d = z - y, b = splat<Vec<T>>(T(HUBER_WIDTH));
        slope = d < -b ? -b : (d > b ? b : d);
        return slope * (d - slope * T(0.5));
    }
    template <class T> static INLINE Vec<T> curve(Vec<T> z, Vec<T> y) {
        Vec<T> size = abs_of<T>(z - y), b = splat<Vec<T>>(T(HUBER_WIDTH));
        return size > b ? b / size : splat<Vec<T>>(T(1));
    }
};
// The pinball loss (1/2 - level) d + |d| / 2 of d = z - y, a parabola up to a width, plus a constant: its minimum is 0.
// The curvature is that of the parabola that touches the symmetric part and is nowhere below it, as for Huber.
struct Quantile {
    double level;
    explicit Quantile(i64 code) : level((code - QUANTILE) / 1000.0) {}
    template <class T> INLINE Vec<T> at(Vec<T> z, Vec<T> y, Vec<T>& slope) const {
        Vec<T> d = z - y, b = splat<Vec<T>>(T(QUANTILE_WIDTH)), near = d < -b ? -b : (d > b ? b : d);
        slope = near * T(0.5 / QUANTILE_WIDTH) + T(0.5 - level);
        return slope * (d - near + slope * b);
    }
    template <class T> static INLINE Vec<T> curve(Vec<T> z, Vec<T> y) {
        Vec<T> size = abs_of<T>(z - y), b = splat<Vec<T>>(T(QUANTILE_WIDTH));
        return splat<Vec<T>>(T(0.5)) / (size > b ? size : b);
    }
};
// Half the deviance of Poisson's distribution with the rate e^z: y (e^d - 1 - d), d = z - log y; e^z if y is 0.
struct Poisson {
    template <class T> static INLINE Vec<T> at(Vec<T> z, Vec<T> y, Vec<T>& slope) {
        Vec<T> zero{}, far = zero + T(40), tiny = zero + T(1.1754943508222875e-38), rate = exp_of<T>(z);
        Vec<T> d = z - log_of<T>(y < tiny ? tiny : y), near = d < -far ? -far : (d > far ? far : d);
        // near the minimum, use expm1 against rounding; far from it, exp is sufficient
        Vec<T> value = abs_of<T>(d) <= far ? y * (expm1_of<T>(near) - d) : rate - y * (d + T(1));
        slope = rate - y;
        return y == zero ? rate : value;
    }
    template <class T> static INLINE Vec<T> curve(Vec<T> z, Vec<T>) { return exp_of<T>(z); }
};
// log(1 + e^z) - y z for y from 0 to 1; by e = exp(-|z|) nothing overflows, and 1 - p is never rounded.
struct BinaryCrossEntropy {
    template <class T> static INLINE Vec<T> at(Vec<T> z, Vec<T> y, Vec<T>& slope) {
        Vec<T> zero{}, one = zero + T(1), e = exp_of<T>(-abs_of<T>(z)), less = e / (one + e);  // the smaller of p and 1 - p
        slope = z > zero ? (y == one ? -less : (one - y) - less) : less - y;
        return log1p_of<T>(e) + (z > zero ? z * (one - y) : -z * y);
    }
    template <class T> static INLINE Vec<T> curve(Vec<T> z, Vec<T>) {
        Vec<T> e = exp_of<T>(-abs_of<T>(z));
        return e / ((e + T(1)) * (e + T(1)));
    }
};

template <class Loss, class T> NOINLINE double elementwise_loss(Loss kind, const T* Y, const T* y, const T* r, T* G, i64 outputs) {
    constexpr int L = LANES<T>;
    Vec<T> total{};
    for (int l = 0; l < L; l += WIDTH<T>) {
        Vec<T> share = load_vec<Vec<T>>(r + l), zero{}, loss{};
        for (i64 o = 0; o < outputs; ++o) {
            Vec<T> slope, value = kind.template at<T>(load_vec<Vec<T>>(Y + o * L + l), load_vec<Vec<T>>(y + o * L + l), slope);
            store_vec(G + o * L + l, share == zero ? zero : share * slope);
            loss += share == zero ? zero : value;
        }
        total += share * loss;
    }
    return sum_lanes<T>(total);
}
// log(sum exp(Y)) - Y[label]; Adds the weights of samples whose largest output is the label's to `correct`.
template <class T> NOINLINE double cross_entropy(const T* Y, const T* y, const T* r, T* G, i64 outputs, double& correct) {
    typedef Vec<T> V;
    constexpr int L = LANES<T>;
    V total{}, hits{};
    for (int l = 0; l < L; l += WIDTH<T>) {
        V label = load_vec<V>(y + l), share = load_vec<V>(r + l), top = load_vec<V>(Y + l), picked = top, zero{}, one = zero + T(1);
        for (i64 o = 1; o < outputs; ++o) {
            V z = load_vec<V>(Y + o * L + l);
            top = z > top ? z : top;
            picked = label == splat<V>(T(o)) ? z : picked;
        }
        V hit{}, mass{};
        for (i64 o = outputs - 1; o >= 0; --o)  // of equal outputs the first counts, as in argmax
            hit = load_vec<V>(Y + o * L + l) == top ? (label == splat<V>(T(o)) ? one : zero) : hit;
        hits += share * hit;
        for (i64 o = 0; o < outputs; ++o) {
            V e = exp_of<T>(load_vec<V>(Y + o * L + l) - top);
            store_vec(G + o * L + l, e);
            mass += e;
        }
        V factor = share / mass;
        for (i64 o = 0; o < outputs; ++o) {
            V g = load_vec<V>(G + o * L + l) * factor - (label == splat<V>(T(o)) ? share : zero);
            store_vec(G + o * L + l, share == zero ? zero : g);
        }
        V loss = log_of<T>(mass) + (top - picked);
        total += share * (share == zero ? zero : loss);
    }
    correct += sum_lanes<T>(hits);
    return sum_lanes<T>(total);
}
// Sum of the weights of samples whose outputs are all on the right side of 0.
template <class T> NOINLINE double all_sides_right(const T* Y, const T* y, const T* r, i64 outputs) {
    constexpr int L = LANES<T>;
    double total = 0;
    for (int l = 0; l < L; ++l) {
        bool right = true;
        for (i64 o = 0; o < outputs; ++o) right = right && (Y[o * L + l] > 0) == (y[o * L + l] > T(0.5));
        total += right ? r[l] : T(0);
    }
    return total;
}
// f(the struct of a loss that is a sum over the outputs)
template <class F> INLINE auto with_loss(i64 code, const F& f) {
    switch (code) {
        case SQUARED_ERROR: return f(SquaredError{});
        case HUBER: return f(Huber{});
        case POISSON: return f(Poisson{});
        case BINARY_CROSS_ENTROPY: return f(BinaryCrossEntropy{});
        default: return f(Quantile(code));
    }
}
// The weighted mean loss of a chunk; its gradient is written to G.
template <class T> double loss_of(i64 code, const T* Y, const T* y, const T* r, T* G, i64 outputs, double& correct) {
    if (code == CROSS_ENTROPY) return cross_entropy(Y, y, r, G, outputs, correct);
    if (code == BINARY_CROSS_ENTROPY) correct += all_sides_right(Y, y, r, outputs);
    return with_loss(code, [&](auto kind) { return elementwise_loss(kind, Y, y, r, G, outputs); });
}

// -- curvature: columns R with R R' = sum of J' H J, H the Hessian by the outputs, J the Jacobian C of the chunk -------
template <class T> void softmax(const T* Y, T* P, i64 outputs) {
    constexpr int L = LANES<T>;
    for (int l = 0; l < L; l += WIDTH<T>) {
        Vec<T> top = load_vec<Vec<T>>(Y + l), total{}, least = splat<Vec<T>>(T(1e-30));  // division without overflow
        for (i64 o = 1; o < outputs; ++o) { Vec<T> z = load_vec<Vec<T>>(Y + o * L + l); top = z > top ? z : top; }
        for (i64 o = 0; o < outputs; ++o) {
            Vec<T> e = exp_of<T>(load_vec<Vec<T>>(Y + o * L + l) - top);
            store_vec(P + o * L + l, e);
            total += e;
        }
        for (i64 o = 0; o < outputs; ++o) {
            Vec<T> p = load_vec<Vec<T>>(P + o * L + l) / total;
            store_vec(P + o * L + l, p > least ? p : least);
        }
    }
}
template <class Loss, class T> void curve_rows(Loss kind, const T* Y, const T* y, T* P, i64 outputs) {
    for (i64 k = 0; k < outputs * LANES<T>; k += WIDTH<T>)
        store_vec(P + k, kind.template curve<T>(load_vec<Vec<T>>(Y + k), load_vec<Vec<T>>(y + k)));
}
template <class T> INLINE Pack<T> root_of(Pack<T> x) { EACH(ROW / VECTOR_BYTES, x.v[I] = root<T>(x.v[I])); return x; }
// One column sqrt(share H_o) J_o per output, where H is diagonal. Row e of R begins at e * stride and has pieces of L samples;
// C is (outputs, count, L).
template <class T> i64 diagonal_columns(const T* C, i64 count, const i64* live, i64 n_live, T* P, const T* r, i64 outputs, T* R, i64 stride, i64 piece) {
    constexpr int L = LANES<T>;
    for (i64 o = 0; o < outputs; ++o) store(P + o * L, root_of(mul(load<T>(r), load<T>(P + o * L))));
    for (i64 e = 0; e < n_live; ++e)
        for (i64 o = 0; o < outputs; ++o)
            store(R + e * stride + (piece + o) * L, mul(load<T>(P + o * L), load<T>(C + (o * count + live[e]) * L)));
    return piece + outputs;
}
// diag(p) - p p' is L D L' in closed form (Tanabe and Sagae, 1992): with q_i = p_{i+1} + ... + p_last, column i is
// sqrt(share p_i q_i / q_{i-1}) (J_i - sum_{k>i} p_k J_k / q_i). Outputs - 1 columns are sufficient. P has space for the
// roots and the 1 / q_i behind the p_i.
template <class T> i64 softmax_columns(const T* C, i64 count, const i64* live, i64 n_live, T* P, const T* r, i64 outputs, T* R, i64 stride, i64 piece) {
    constexpr int L = LANES<T>;
    T *roots = P + outputs * L, *inverse = roots + outputs * L;
    Pack<T> q = load<T>(P + (outputs - 1) * L);
    for (i64 i = outputs - 2; i >= 0; --i) {
        Pack<T> p = load<T>(P + i * L);
        store(roots + i * L, root_of(mul(load<T>(r), quotient(mul(p, q), add(p, q)))));
        store(inverse + i * L, quotient(fill<T>(T(1)), q));
        q = add(q, p);
    }
    for (i64 e = 0; e < n_live; ++e) {
        Pack<T> rest = mul(load<T>(P + (outputs - 1) * L), load<T>(C + ((outputs - 1) * count + live[e]) * L));
        for (i64 i = outputs - 2; i >= 0; --i) {
            Pack<T> J = load<T>(C + (i * count + live[e]) * L);
            store(R + e * stride + (piece + i) * L, mul(load<T>(roots + i * L), sub(J, mul(rest, load<T>(inverse + i * L)))));
            fma(rest, load<T>(P + i * L), J);
        }
    }
    return piece + outputs - 1;
}
// Columns of a chunk from piece `piece` of R on; returns the next free piece.
template <class T> i64 curvature_columns(i64 code, const T* Y, const T* y, const T* r, const T* C, i64 count, const i64* live, i64 n_live, T* P, i64 outputs, T* R, i64 stride, i64 piece) {
    if (code == CROSS_ENTROPY) {
        softmax(Y, P, outputs);
        return softmax_columns(C, count, live, n_live, P, r, outputs, R, stride, piece);
    }
    with_loss(code, [&](auto kind) { curve_rows(kind, Y, y, P, outputs); });
    return diagonal_columns(C, count, live, n_live, P, r, outputs, R, stride, piece);
}
}  // namespace
