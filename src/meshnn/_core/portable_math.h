/* Elementary functions and activations in float, with the same bits on every machine with IEEE 754 arithmetic.

   They call no library, compute nothing in double and use no fused multiply-add. The core compiles this file, and export
   copies single functions from it into headers: it renames net_ and NET_, keeps one branch of every `if (NET_FLAG)` and
   leaves out all functions that are not called (meshnn/export/c/text.py). Blank lines separate functions. */
#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "net: compile without -ffast-math: the order of operations and NaN are part of the result"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "net: float must be computed as float; on 32-bit x86 compile with -msse2 -mfpmath=sse"
#endif
/* No fused multiply-adds, because they round once where other machines round twice. Loops that copy or fill must not become
   calls of memcpy and memset, because there may be no library. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off", "no-tree-loop-distribute-patterns")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

static inline uint32_t net_bits(float x) {
    union { float value; uint32_t bits; } both;
    both.value = x;
    return both.bits;
}

static inline float net_from_bits(uint32_t bits) {
    union { float value; uint32_t bits; } both;
    both.bits = bits;
    return both.value;
}

static inline float net_abs(float x) {
    return net_from_bits(net_bits(x) & 0x7fffffffu);
}

static inline int net_finite(float x) {
    return (net_bits(x) & 0x7f800000u) != 0x7f800000u;
}

/* 2 to the power k, for k from -126 to 127 */
static inline float net_pow2(int32_t k) {
    return net_from_bits((uint32_t)(k + 127) << 23);
}

/* x = k ln 2 + r with |r| <= ln 2 / 2: return expm1(r) and store k; x is from -105 to 90 */
static inline float net_split(float x, int32_t *power) {
    const float v = x * 1.442695f + 0.5f;
    int32_t k = (int32_t)v;
    float n, r;
    if ((float)k > v) k -= 1;
    n = (float)k;
    r = (x - n * 0.693359375f) - n * -0.00021219444f;
    *power = k;
    return r + r * r * (((((0.0001984127f * r + 0.0013888889f) * r + 0.008333334f) * r + 0.041666668f) * r
        + 0.16666667f) * r + 0.5f);
}

static inline float net_exp(float x) {
    int32_t k, half;
    float p;
    if (x != x) return x;
    if (x > 90.0f) x = 90.0f;
    if (x < -105.0f) x = -105.0f;
    p = net_split(x, &k);
    half = k >= 0 ? k / 2 : -((1 - k) / 2); /* 2^k in two factors: alone it would overflow for the largest results */
    return ((1.0f + p) * net_pow2(half)) * net_pow2(k - half);
}

/* exp(x) - 1 for x from -87 to 87 */
static inline float net_expm1(float x) {
    int32_t k;
    float p, scale;
    if (x != x) return x;
    p = net_split(x, &k);
    scale = net_pow2(k);
    return scale * p + (scale - 1.0f);
}

/* 2 atanh(f) by its series: the logarithm of (1 + f) / (1 - f) */
static inline float net_log_series(float f) {
    const float z = f * f;
    return 2.0f * (f + f * z * (((0.11111111f * z + 0.14285715f) * z + 0.2f) * z + 0.33333334f));
}

/* log(1 + u) for u from 0 to 1 */
static inline float net_log1p(float u) {
    const int large = u > 0.41421357f;
    const float x = large ? (u - 1.0f) * 0.5f : u;
    const float p = net_log_series(x / (2.0f + x));
    return large ? p + 0.6931472f : p;
}

/* the logarithm of a normal positive number, infinity or NaN */
static inline float net_log(float x) {
    const uint32_t u = net_bits(x);
    int32_t k = (int32_t)(u >> 23) - 127;
    float m = net_from_bits((u & 0x007fffffu) | 0x3f800000u);
    if (!(x < net_from_bits(0x7f800000u))) return x;
    if (m > 1.4142135f) {
        m = m * 0.5f;
        k += 1;
    }
    return (float)k * 0.693359375f + ((float)k * -0.00021219444f + net_log_series((m - 1.0f) / (m + 1.0f)));
}

/* the correctly rounded square root, also without an instruction or library function; 0 if x is not above 0 */
static inline float net_sqrt(float x) {
    uint32_t u, root = 0u, twice = 0u, bit;
    int32_t e;
    if (!(x > 0.0f)) return x != x ? x : 0.0f;
    if (NET_BUILTIN_SQRT) {
        return __builtin_sqrtf(x);
    }
#if defined(__arm__) && defined(__GNUC__) && defined(__ARM_FP)
    {
        float found;
        __asm__("vsqrt.f32 %0, %1" : "=t"(found) : "t"(x));
        return found;
    }
#endif
    u = net_bits(x);
    if (u >= 0x7f800000u) return x;
    if (u < 0x00800000u) return net_sqrt(x * 16777216.0f) * 0.000244140625f; /* denormal: scale by 2^24, the result by 2^-12 */
    e = (int32_t)(u >> 23) - 127;
    u = (u & 0x007fffffu) | 0x00800000u;
    if (e & 1) {
        u <<= 1;
        e -= 1;
    }
    u <<= 1;
    for (bit = 0x01000000u; bit; bit >>= 1) { /* one bit of the root after the other, and one more for rounding */
        if (twice + bit <= u) {
            u -= twice + bit;
            twice += bit << 1;
            root += bit;
        }
        u <<= 1;
    }
    root = (root + 1u) >> 1; /* the root of a float is never halfway between two floats */
    return net_from_bits(root - 0x00800000u + ((uint32_t)(e / 2 + 127) << 23));
}

/* x = q pi/2 + r with |r| <= pi/4: return r and store q modulo 4; exact for every x (Payne and Hanek, 1983) */
static inline float net_quarter(float x, int32_t *q) {
    /* 1 / (2 pi) in words of 32 bits: enough for the product with the largest float modulo 4 */
    static const uint32_t two_over_pi[6] = {0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u};
    const uint32_t b = net_bits(x) & 0x7fffffffu, negative = net_bits(x) >> 31;
    uint32_t m, hi, mid, lo;
    uint64_t p;
    int32_t e, i, turns;
    float r;
    *q = 0;
    if (b <= 0x3f490fdau) return x;
    if (b >= 0x7f800000u) return x - x; /* NaN */
    m = ((b & 0x007fffffu) | 0x00800000u) << 8;
    e = (int32_t)(b >> 23) - 126;
    i = e / 32;
    e = e % 32;
    hi = i > 0 ? two_over_pi[i - 1] : 0u;
    mid = two_over_pi[i];
    lo = two_over_pi[i + 1];
    if (e > 0) {
        hi = (hi << e) | (mid >> (32 - e));
        mid = (mid << e) | (lo >> (32 - e));
        lo = (lo << e) | (two_over_pi[i + 2] >> (32 - e));
    }
    p = ((uint64_t)m * lo) >> 32;
    p = p + (uint64_t)m * mid;
    p = p + ((uint64_t)(m * hi) << 32); /* in quarter turns: two integer bits */
    turns = (int32_t)(p >> 62);
    p = p & 0x3fffffffffffffffu;
    if (p >= 0x2000000000000000u) {
        turns += 1;
        r = -(float)(int64_t)(0x4000000000000000u - p);
    } else {
        r = (float)(int64_t)p;
    }
    r = (r * 2.1684043e-19f) * 1.5707964f;
    *q = (negative ? 4 - turns : turns) & 3;
    return negative ? -r : r;
}

static inline float net_sin_near(float r) {
    const float z = r * r;
    return r + r * z * (((2.7557319e-06f * z + -0.0001984127f) * z + 0.008333334f) * z + -0.16666667f);
}

static inline float net_cos_near(float r) {
    const float z = r * r;
    return 1.0f + z * ((((-2.755732e-07f * z + 2.4801588e-05f) * z + -0.0013888889f) * z + 0.041666668f) * z + -0.5f);
}

static inline float net_identity(float t, float *d) {
    if (NET_SLOPES) *d = 1.0f;
    return t;
}

static inline float net_relu(float t, float *d) {
    if (NET_SLOPES) *d = t <= 0.0f ? 0.0f : 1.0f;
    return t <= 0.0f ? 0.0f : t;
}

static inline float net_leaky_relu(float t, float *d) {
    if (NET_SLOPES) *d = t <= 0.0f ? 0.01f : 1.0f;
    return t <= 0.0f ? t * 0.01f : t;
}

static inline float net_elu(float t, float *d) {
    const float size = t < -87.0f ? 87.0f : (t < 0.0f ? -t : 0.0f);
    const float e = net_expm1(size);
    const float x = 1.0f / (e + 1.0f);
    if (NET_SLOPES) *d = t <= 0.0f ? (t < -87.0f ? 0.0f : x) : 1.0f;
    return t <= 0.0f ? (size > 1.0f ? x - 1.0f : -e * x) : t;
}

static inline float net_softplus(float t, float *d) {
    const float e = net_exp(-net_abs(t));
    if (NET_SLOPES) *d = (t < 0.0f ? e : 1.0f) / (1.0f + e);
    return (t < 0.0f ? 0.0f : t) + net_log1p(e);
}

static inline float net_sigmoid(float t, float *d) {
    const float x = net_exp(-net_abs(t));
    if (NET_SLOPES) *d = x / ((1.0f + x) * (1.0f + x));
    return (t < 0.0f ? x : 1.0f) / (1.0f + x);
}

static inline float net_tanh(float t, float *d) {
    const float size = net_abs(t) * 2.0f;
    const float e = net_expm1(size > 87.0f ? 87.0f : size);
    const float s = e / (e + 2.0f);
    if (NET_SLOPES) {
        const float x = 1.0f / (e + 1.0f);
        *d = size > 87.0f ? 0.0f : 4.0f * x / ((1.0f + x) * (1.0f + x));
    }
    return t < 0.0f ? -s : s;
}

static inline float net_sin(float t, float *d) {
    int32_t q;
    const float r = net_quarter(t, &q);
    const float s = net_sin_near(r), c = net_cos_near(r);
    if (NET_SLOPES) *d = q == 0 ? c : (q == 1 ? -s : (q == 2 ? -c : s));
    return q == 0 ? s : (q == 1 ? c : (q == 2 ? -s : -c));
}

/* exp(-t t); for t t above 87 value and slope are 0, without overflow */
static inline float net_gauss(float t, float *d) {
    float s;
    if (t > 87.0f) t = 87.0f;
    if (t < -87.0f) t = -87.0f;
    s = net_exp(-t * t);
    if (NET_SLOPES) *d = -2.0f * t * s;
    return s;
}

/* t clipped to -1 and 1 */
static inline float net_hardtanh(float t, float *d) {
    if (NET_SLOPES) *d = t <= -1.0f || t >= 1.0f ? 0.0f : 1.0f;
    return t <= -1.0f ? -1.0f : (t >= 1.0f ? 1.0f : t);
}

/* the activation with a code of meshnn/codes.py */
static inline float net_activate(unsigned code, float t, float *d) {
    switch (code) {
        case 1u: return net_relu(t, d);
        case 2u: return net_leaky_relu(t, d);
        case 3u: return net_elu(t, d);
        case 4u: return net_softplus(t, d);
        case 5u: return net_sigmoid(t, d);
        case 6u: return net_tanh(t, d);
        case 7u: return net_sin(t, d);
        case 8u: return net_gauss(t, d);
        case 9u: return net_hardtanh(t, d);
        default: return net_identity(t, d);
    }
}
