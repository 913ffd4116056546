// Vectors of the compiler, and rows of samples made of them.
//
//   Vec<T>      one register of the instruction set
//   Pack<T, B>  B bytes in registers; a row is Pack<T, ROW>: 64 samples of float or 32 of double
//
// No header of the C++ library is used, so that nothing of it must be linked. Templates are in an anonymous namespace, so
// that the linker never merges the code of two instruction sets.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#if defined(__SSE__)
#include <immintrin.h>
#endif
#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
// Marks a loop whose iterations are independent.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace {
typedef int64_t i64;
typedef uint32_t u32;
constexpr int ROW = 256;                                  // bytes of a row of samples
constexpr int WIDE = VECTOR_BYTES == 64 ? 256 : 64;       // bytes of each of the four rows that a tile keeps in registers
constexpr int NARROW = WIDE > 64 ? WIDE / 2 : 64;         // the same where half a row may be sufficient
constexpr int SIDE = 64;                                  // panels are padded to a multiple of this many bytes
template <class T> constexpr int LANES = ROW / sizeof(T);

template <class T> struct IntegerOf;
template <> struct IntegerOf<float> { typedef int32_t type; };
template <> struct IntegerOf<double> { typedef int64_t type; };
template <class T, int B> struct VectorOf { typedef T type __attribute__((vector_size(B))); };
template <class T> using Vec = typename VectorOf<T, VECTOR_BYTES>::type;
template <class T> using Mask = typename VectorOf<typename IntegerOf<T>::type, VECTOR_BYTES>::type;
template <class T> constexpr int WIDTH = VECTOR_BYTES / sizeof(T);

template <size_t... I> struct Indices {};
template <size_t N, size_t... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <size_t... I> struct MakeIndices<0, I...> { typedef Indices<I...> type; };
// Unrolls an expression in I, because g++ keeps arrays of vectors in registers only without a loop.
#define EACH(count, expression)                                                             \
    [&]<size_t... I>(Indices<I...>) __attribute__((always_inline)) { ((expression), ...); } \
    (typename MakeIndices<(count)>::type{})

template <class T> INLINE T min_of(T a, T b) { return b < a ? b : a; }
template <class T> INLINE T max_of(T a, T b) { return a < b ? b : a; }
template <class V, class T> INLINE V load_vec(const T* p) { V v; __builtin_memcpy(&v, p, sizeof(V)); return v; }
template <class V, class T> INLINE void store_vec(T* p, V v) { __builtin_memcpy(p, &v, sizeof(V)); }
template <class V, class T> INLINE V splat(T x) { return x - V{}; }  // x + 0 would turn -0 into 0

template <class T, int B = ROW> struct Pack { Vec<T> v[B / VECTOR_BYTES]; };
#define PACKS template <class T, int B> INLINE
#define PACKS_ROW template <class T, int B = ROW> INLINE
PACKS_ROW Pack<T, B> load(const T* p) { Pack<T, B> x; EACH(B / VECTOR_BYTES, x.v[I] = load_vec<Vec<T>>(p + I * WIDTH<T>)); return x; }
PACKS void store(T* p, const Pack<T, B>& x) { EACH(B / VECTOR_BYTES, store_vec(p + I * WIDTH<T>, x.v[I])); }
PACKS_ROW Pack<T, B> fill(T a) { Pack<T, B> x; EACH(B / VECTOR_BYTES, x.v[I] = splat<Vec<T>>(a)); return x; }
PACKS_ROW Pack<T, B> zeros() { return fill<T, B>(T(0)); }
// sum += a x, and sum += x y
PACKS void axpy(Pack<T, B>& sum, T a, const Pack<T, B>& x) { auto s = splat<Vec<T>>(a); EACH(B / VECTOR_BYTES, sum.v[I] += s * x.v[I]); }
PACKS void fma(Pack<T, B>& sum, const Pack<T, B>& x, const Pack<T, B>& y) { EACH(B / VECTOR_BYTES, sum.v[I] += x.v[I] * y.v[I]); }
#define BINARY(name, op) \
    PACKS Pack<T, B> name(const Pack<T, B>& a, const Pack<T, B>& b) { Pack<T, B> o; EACH(B / VECTOR_BYTES, o.v[I] = a.v[I] op b.v[I]); return o; }
BINARY(add, +) BINARY(sub, -) BINARY(mul, *) BINARY(quotient, /)
#undef BINARY
PACKS Pack<T, B> relu(const Pack<T, B>& x) { Pack<T, B> o; Vec<T> z{}; EACH(B / VECTOR_BYTES, o.v[I] = x.v[I] <= z ? z : x.v[I]); return o; }
PACKS Pack<T, B> step(const Pack<T, B>& x) { Pack<T, B> o; Vec<T> z{}, e = z + T(1); EACH(B / VECTOR_BYTES, o.v[I] = x.v[I] <= z ? z : e); return o; }
// value where mask is not 0, else 0: a value with weight 0 may be infinite
PACKS Pack<T, B> where(const Pack<T, B>& mask, const Pack<T, B>& value) { Pack<T, B> o; Vec<T> z{}; EACH(B / VECTOR_BYTES, o.v[I] = mask.v[I] == z ? z : value.v[I]); return o; }

INLINE float root(float x) { return __builtin_sqrtf(x); }
INLINE double root(double x) { return __builtin_sqrt(x); }
template <class T> INLINE Vec<T> root(Vec<T> x) {
    Vec<T> o = x;
    for (int i = 0; i < WIDTH<T>; ++i) o[i] = root(x[i]);
    return o;
}

// -- sums across a register ----------------------------------------------------------------------------------------
template <class T> using Half = typename VectorOf<T, (VECTOR_BYTES >= 32 ? 32 : 16)>::type;
template <class T> INLINE Half<T> halved(Vec<T> t) {
    if constexpr (VECTOR_BYTES == 64) {
        if constexpr (sizeof(T) == 4)
            return __builtin_shufflevector(t, t, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(t, t, 8, 9, 10, 11, 12, 13, 14, 15);
        else
            return __builtin_shufflevector(t, t, 0, 1, 2, 3) + __builtin_shufflevector(t, t, 4, 5, 6, 7);
    } else {
        return t;
    }
}
template <class T, int B> INLINE Half<T> partial_dot(const Pack<T, B>& x, const Pack<T, B>& y) {
    Vec<T> t = x.v[0] * y.v[0];
    EACH(B / VECTOR_BYTES - 1, t += x.v[I + 1] * y.v[I + 1]);
    return halved<T>(t);
}
template <class T> INLINE T sum_of(Half<T> h) {
    if constexpr (sizeof(h) == 32 && sizeof(T) == 4) {
        auto q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
        return (q[0] + q[2]) + (q[1] + q[3]);
    } else if constexpr (sizeof(h) / sizeof(T) == 4) {
        return (h[0] + h[2]) + (h[1] + h[3]);
    } else {
        return h[0] + h[1];
    }
}
PACKS T dot(const Pack<T, B>& x, const Pack<T, B>& y) { return sum_of<T>(partial_dot(x, y)); }
template <class T> INLINE T sum_lanes(Vec<T> x) { return sum_of<T>(halved<T>(x)); }
// out[0:4] += the dot products of v with four rows
template <class T> INLINE void dot4(T* out, const Pack<T>& v, const T* a, const T* b, const T* c, const T* d) {
    auto A = partial_dot(v, load<T>(a)), B = partial_dot(v, load<T>(b)), C = partial_dot(v, load<T>(c)), D = partial_dot(v, load<T>(d));
    typedef typename VectorOf<T, 4 * sizeof(T)>::type Four;
    Four q;
    if constexpr (VECTOR_BYTES == 16) {
        q = Four{sum_of<T>(A), sum_of<T>(B), sum_of<T>(C), sum_of<T>(D)};
    } else if constexpr (sizeof(T) == 4) {
#define NEIGHBOURS(x, y) (__builtin_shufflevector(x, y, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(x, y, 1, 3, 9, 11, 5, 7, 13, 15))
        auto ab = NEIGHBOURS(A, B), cd = NEIGHBOURS(C, D), all = NEIGHBOURS(ab, cd);
        q = __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
#undef NEIGHBOURS
    } else {
        auto ab = __builtin_shufflevector(A, B, 0, 4, 2, 6) + __builtin_shufflevector(A, B, 1, 5, 3, 7);
        auto cd = __builtin_shufflevector(C, D, 0, 4, 2, 6) + __builtin_shufflevector(C, D, 1, 5, 3, 7);
        q = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    }
    store_vec(out, load_vec<Four>(out) + q);
}

// -- transposed squares --------------------------------------------------------------------------------------------
template <int S, class V, size_t... K> INLINE void exchange(V& a, V& b, Indices<K...>) {
    constexpr int n = sizeof...(K);
    V low = __builtin_shufflevector(a, b, ((int(K) & S) ? n + int(K) - S : int(K))...);
    V high = __builtin_shufflevector(a, b, ((int(K) & S) ? n + int(K) : int(K) + S)...);
    a = low, b = high;
}
template <int S, class V, size_t... K> INLINE void exchange_rounds(V* r, Indices<K...> all) {
    ([&]() __attribute__((always_inline)) { if constexpr (!(int(K) & S)) exchange<S>(r[K], r[K + S], all); }(), ...);
    if constexpr (S > 1) exchange_rounds<S / 2>(r, all);
}
// to[l * to_stride + i] = from[rows[i] * from_stride + l], for a square of one vector per side
template <class T, class Index> INLINE void transpose(const T* from, i64 from_stride, const Index* rows, T* to, i64 to_stride) {
    constexpr int n = WIDTH<T>;
    Vec<T> r[n];
    [&]<size_t... I>(Indices<I...> all) __attribute__((always_inline)) {
        ((r[I] = load_vec<Vec<T>>(from + (i64)rows[I] * from_stride)), ...);
        exchange_rounds<n / 2>(r, all);
        ((store_vec(to + (i64)I * to_stride, r[I])), ...);
    }(typename MakeIndices<n>::type{});
}

// to[:count] += x[:count]; later elements are not changed
PACKS void add_first(T* to, const Pack<T, B>& x, i64 count) {
    constexpr int n = WIDTH<T>;
    if (count >= B / (i64)sizeof(T)) {
        EACH(B / VECTOR_BYTES, store_vec(to + I * n, load_vec<Vec<T>>(to + I * n) + x.v[I]));
        return;
    }
    EACH(B / VECTOR_BYTES, ([&]() __attribute__((always_inline)) {
        i64 left = count - (i64)I * n;
        if (left >= n) {
            store_vec(to + I * n, load_vec<Vec<T>>(to + I * n) + x.v[I]);
        } else if (left > 0) {
#if defined(__AVX512F__)
            if constexpr (sizeof(T) == 4) {
                __mmask16 m = (__mmask16)((1u << left) - 1);
                _mm512_mask_storeu_ps(to + I * n, m, _mm512_maskz_loadu_ps(m, to + I * n) + (__m512)x.v[I]);
            } else {
                __mmask8 m = (__mmask8)((1u << left) - 1);
                _mm512_mask_storeu_pd(to + I * n, m, _mm512_maskz_loadu_pd(m, to + I * n) + (__m512d)x.v[I]);
            }
#else
            T some[n];
            store_vec(some, x.v[I]);
            for (i64 k = 0; k < left; ++k) to[I * n + k] += some[k];
#endif
        }
    }()));
}

// -- denormal numbers, which processors compute with up to a hundred times slower, are flushed to 0 in kernels --------
struct FlushDenormals {
#if defined(__SSE__)
    unsigned before = _mm_getcsr();
    INLINE FlushDenormals() { _mm_setcsr(before | 0x8040); }
    INLINE ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    INLINE FlushDenormals() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before));
        uint64_t now = before | (1ull << 24);
        __asm__ volatile("msr fpcr, %0" : : "r"(now));
    }
    INLINE ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#endif
};
}  // namespace
