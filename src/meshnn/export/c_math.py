"""C99 text of the elementary functions and activations, in float32 and in plain arithmetic.

The operations and their order are those of `kernels/strict.py`, so that both sides give the same bits on every machine
whose float is that of IEEE 754: nothing here calls a library, and nothing is computed in double. What a compiler could
do to the bits, a header forbids it (`arithmetic_begin`): fused multiply-adds, excess precision, fast math.

A function is text in which `@` stands for the prefix of all names. Each lists those that it calls, so that a header has
only what it needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from meshnn.errors import MeshError

__all__ = ["ACTIVATIONS", "activation_source", "arithmetic_begin", "arithmetic_end", "literal", "math_source"]


def literal(value: float) -> str:
    """A float32 as C writes it: the shortest decimal number that is read as the same bits."""
    with np.errstate(over="ignore"):  # refused
        found = np.float32(value)
    if not np.isfinite(found):
        raise MeshError(
            f"{float(value):.3g} cannot be written as a float of C; weights must be finite, and features numbers "
            "that float32 holds: scale them first"
        )
    text = repr(float(str(found)))
    return f"{text if 'e' in text or '.' in text else text + '.0'}f"


class _Function(NamedTuple):
    calls: tuple[str, ...]
    text: str


def _horner(x: str, coefficients: list[float]) -> str:
    """Lines that make p a polynomial in x; the highest power comes first."""
    first, *rest = map(literal, coefficients)
    return "\n".join([f"    float p = {first};", *(f"    p = p * {x} + {c};" for c in rest)])


_EXP = [1 / math.factorial(n) for n in range(7, 1, -1)]
_LOG = [1 / n for n in range(9, 1, -2)]
_SIN = [(-1) ** (n // 2) / math.factorial(n) for n in range(9, 2, -2)]
_COS = [(-1) ** (n // 2) / math.factorial(n) for n in range(10, 1, -2)]
#: A quarter of 2 / pi, in words of 32 bits: enough to know the product with the largest float modulo 4.
TWO_OVER_PI = (0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410)

_FUNCTIONS = {
    "bits": _Function(
        (),
        """
static inline uint32_t @bits(float x) {
    uint32_t u = 0u;
#if defined(__GNUC__)
    __builtin_memcpy(&u, &x, sizeof u);
#else
    unsigned char *to = (unsigned char *)&u;
    const unsigned char *from = (const unsigned char *)&x;
    unsigned i;
    for (i = 0u; i < sizeof u; i++) to[i] = from[i];
#endif
    return u;
}
""",
    ),
    "from_bits": _Function(
        (),
        """
static inline float @from_bits(uint32_t u) {
    float x = 0.0f;
#if defined(__GNUC__)
    __builtin_memcpy(&x, &u, sizeof x);
#else
    unsigned char *to = (unsigned char *)&x;
    const unsigned char *from = (const unsigned char *)&u;
    unsigned i;
    for (i = 0u; i < sizeof x; i++) to[i] = from[i];
#endif
    return x;
}
""",
    ),
    "abs": _Function(
        ("bits", "from_bits"),
        """
static inline float @abs(float x) {
    return @from_bits(@bits(x) & 0x7fffffffu);
}
""",
    ),
    "pow2": _Function(
        ("from_bits",),
        """
/* 2 to the k, for k from -126 to 127 */
static inline float @pow2(int32_t k) {
    return @from_bits((uint32_t)(k + 127) << 23);
}
""",
    ),
    "split": _Function(
        (),
        f"""
/* x = k ln 2 + r: expm1(r), and k through the pointer; x is from -105 to 90 */
static inline float @split(float x, int32_t *power) {{
    float v = x * {literal(1 / math.log(2))} + 0.5f;
    int32_t k = (int32_t)v;
    float n, r;
    if ((float)k > v) k -= 1;
    n = (float)k;
    r = (x - n * 0.693359375f) - n * {literal(-2.1219444005469057e-4)};
    *power = k;
    {{
{_horner("r", _EXP).replace("    ", "        ")}
        return r + r * r * p;
    }}
}}
""",
    ),
    "exp": _Function(
        ("split", "pow2"),
        """
static inline float @exp(float x) {
    int32_t k, half;
    float p;
    if (x != x) return x;
    if (x > 90.0f) x = 90.0f;
    if (x < -105.0f) x = -105.0f;
    p = @split(x, &k);
    half = k >= 0 ? k / 2 : -((1 - k) / 2); /* 2^k in two factors: alone it would overflow for the largest results */
    return ((1.0f + p) * @pow2(half)) * @pow2(k - half);
}
""",
    ),
    "expm1": _Function(
        ("split", "pow2"),
        """
/* e to the x, minus 1, for x from -87 to 87 */
static inline float @expm1(float x) {
    int32_t k;
    float p, scale;
    if (x != x) return x;
    p = @split(x, &k);
    scale = @pow2(k);
    return scale * p + (scale - 1.0f);
}
""",
    ),
    "log1p": _Function(
        (),
        f"""
/* the logarithm of 1 + u, for u from 0 to 1 */
static inline float @log1p(float u) {{
    int large = u > {literal(math.sqrt(2) - 1)};
    float x = large ? (u - 1.0f) * 0.5f : u;
    float f = x / (2.0f + x);
    float z = f * f;
{_horner("z", _LOG)}
    p = 2.0f * (f + f * z * p);
    return large ? p + {literal(math.log(2))} : p;
}}
""",
    ),
    "log": _Function(
        ("bits", "from_bits"),
        f"""
/* of a normal positive number, infinity or NaN */
static inline float @log(float x) {{
    uint32_t u = @bits(x);
    int32_t k = (int32_t)(u >> 23) - 127;
    float m = @from_bits((u & 0x007fffffu) | 0x3f800000u);
    float f, z;
    if (!(x < @from_bits(0x7f800000u))) return x;
    if (m > {literal(math.sqrt(2))}) {{
        m = m * 0.5f;
        k += 1;
    }}
    f = (m - 1.0f) / (m + 1.0f);
    z = f * f;
    {{
{_horner("z", _LOG).replace("    ", "        ")}
        return (float)k * 0.693359375f + ((float)k * {literal(-2.1219444005469057e-4)} + 2.0f * (f + f * z * p));
    }}
}}
""",
    ),
    "quarter": _Function(
        ("bits",),
        f"""
/* x = q pi/2 + r, |r| <= pi/4: r, and q modulo 4 through the pointer; exact for every x (Payne and Hanek, 1983) */
static inline float @quarter(float x, int32_t *q) {{
    static const uint32_t two_over_pi[6] = {{{", ".join(f"0x{word:08x}u" for word in TWO_OVER_PI)}}};
    uint32_t b = @bits(x) & 0x7fffffffu;
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
    if (e > 0) {{
        hi = (hi << e) | (mid >> (32 - e));
        mid = (mid << e) | (lo >> (32 - e));
        lo = (lo << e) | (two_over_pi[i + 2] >> (32 - e));
    }}
    p = ((uint64_t)m * lo) >> 32;
    p = p + (uint64_t)m * mid;
    p = p + ((uint64_t)(m * hi) << 32); /* in quarter turns, of which two bits stand before the point */
    turns = (int32_t)(p >> 62);
    p = p & 0x3fffffffffffffffu;
    if (p >= 0x2000000000000000u) {{
        turns += 1;
        r = -(float)(int64_t)(0x4000000000000000u - p);
    }} else {{
        r = (float)(int64_t)p;
    }}
    r = (r * {literal(2.0**-62)}) * {literal(math.pi / 2)};
    *q = (@bits(x) >> 31) ? (4 - turns) & 3 : turns & 3;
    return (@bits(x) >> 31) ? -r : r;
}}
""",
    ),
    "sin_near": _Function(
        (),
        f"""
static inline float @sin_near(float r) {{
    float z = r * r;
{_horner("z", _SIN)}
    return r + r * z * p;
}}
""",
    ),
    "cos_near": _Function(
        (),
        f"""
static inline float @cos_near(float r) {{
    float z = r * r;
{_horner("z", _COS)}
    return 1.0f + z * p;
}}
""",
    ),
    "sqrt": _Function(
        ("bits", "from_bits"),
        """
/* correctly rounded, also where neither the processor nor a library has it; 0 of what is not above 0 */
static inline float @sqrt(float x) {
    uint32_t u, root = 0u, twice = 0u, bit;
    int32_t e;
    if (!(x > 0.0f)) return x != x ? x : 0.0f;
#if defined(__arm__) && defined(__GNUC__) && defined(__ARM_FP)
    {
        float found;
        __asm__("vsqrt.f32 %0, %1" : "=t"(found) : "t"(x));
        return found;
    }
#endif
    u = @bits(x);
    if (u >= 0x7f800000u) return x;
    e = (int32_t)(u >> 23);
    if (e == 0) {
        e = 1;
        while (!(u & 0x00800000u)) {
            u <<= 1;
            e -= 1;
        }
    }
    u = (u & 0x007fffffu) | 0x00800000u;
    e -= 127;
    if (e & 1) {
        u <<= 1;
        e -= 1;
    }
    u <<= 1;
    for (bit = 0x01000000u; bit; bit >>= 1) { /* one bit of the root after the other, and one more to round by */
        if (twice + bit <= u) {
            u -= twice + bit;
            twice += bit << 1;
            root += bit;
        }
        u <<= 1;
    }
    root = (root + 1u) >> 1; /* the root of a float lies never in the middle of two */
    return @from_bits(root - 0x00800000u + ((uint32_t)(e / 2 + 127) << 23));
}
""",
    ),
}

#: Activations: those of `kernels/activations.py`. Lines with a `!` write the slope.
_ACTIVATIONS = {
    "identity": _Function(
        (),
        """
!    *d = 1.0f;
    return t;
""",
    ),
    "relu": _Function(
        (),
        """
!    *d = t <= 0.0f ? 0.0f : 1.0f;
    return t <= 0.0f ? 0.0f : t;
""",
    ),
    "leaky_relu": _Function(
        (),
        """
!    *d = t <= 0.0f ? 0.01f : 1.0f;
    return t <= 0.0f ? t * 0.01f : t;
""",
    ),
    "elu": _Function(
        ("expm1",),
        """
    float size = t < -87.0f ? 87.0f : (t < 0.0f ? -t : 0.0f);
    float e = @expm1(size);
    float x = 1.0f / (e + 1.0f);
!    *d = t <= 0.0f ? (t < -87.0f ? 0.0f : x) : 1.0f;
    return t <= 0.0f ? (size > 1.0f ? x - 1.0f : -e * x) : t;
""",
    ),
    "softplus": _Function(
        ("abs", "exp", "log1p"),
        """
    float e = @exp(-@abs(t));
!    *d = (t < 0.0f ? e : 1.0f) / (1.0f + e);
    return (t < 0.0f ? 0.0f : t) + @log1p(e);
""",
    ),
    "sigmoid": _Function(
        ("abs", "exp"),
        """
    float x = @exp(-@abs(t));
!    *d = x / ((1.0f + x) * (1.0f + x));
    return (t < 0.0f ? x : 1.0f) / (1.0f + x);
""",
    ),
    "tanh": _Function(
        ("abs", "expm1"),
        """
    float size = @abs(t) * 2.0f;
    float e = @expm1(size > 87.0f ? 87.0f : size);
    float s = e / (e + 2.0f);
!    float x = 1.0f / (e + 1.0f);
!    *d = size > 87.0f ? 0.0f : 4.0f * x / ((1.0f + x) * (1.0f + x));
    return t < 0.0f ? -s : s;
""",
    ),
    "sin": _Function(
        ("quarter", "sin_near", "cos_near"),
        """
    int32_t q;
    float r = @quarter(t, &q);
    float s = @sin_near(r), c = @cos_near(r);
!    *d = q == 0 ? c : (q == 1 ? -s : (q == 2 ? -c : s));
    return q == 0 ? s : (q == 1 ? c : (q == 2 ? -s : -c));
""",
    ),
    "gauss": _Function(
        ("exp",),
        """
    float s;
    if (t > 87.0f) t = 87.0f;
    if (t < -87.0f) t = -87.0f;
    s = @exp(-t * t);
!    *d = -2.0f * t * s;
    return s;
""",
    ),
}

#: The names of the activations that can be written.
ACTIVATIONS = tuple(_ACTIVATIONS)

_BEGIN = """\
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "@: compile without -ffast-math: the order of operations and NaN are part of the result"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "@: float must be computed as float; on 32-bit x86 compile with -msse2 -mfpmath=sse"
#endif
/* No fused multiply-adds: they round once where all other machines round twice. Nor calls of memcpy and memset for
   loops that copy and fill: there may be no library. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off", "no-tree-loop-distribute-patterns")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif
"""
_END = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
"""


def arithmetic_begin(name: str) -> str:
    """What stands before the first function of a header: it is refused where its arithmetic could not be kept.

    `name` is that of the header, as the error of the compiler says it. `<stdint.h>` must have been included.
    """
    return _BEGIN.replace("@", name)


def arithmetic_end() -> str:
    """What stands behind the last function."""
    return _END


def math_source(names: Iterable[str], prefix: str) -> str:
    """Elementary functions and those they call: `exp`, `expm1`, `log`, `log1p`, `sqrt`, `abs`, `bits`, `from_bits`.

    Examples
    --------
    >>> from meshnn.export.c_math import math_source
    >>> "static inline float net_sqrt(float x)" in math_source(["sqrt"], "net_")
    True
    """
    return _written(_needed(names, _FUNCTIONS), prefix)


def activation_source(names: Iterable[str], slopes: bool, prefix: str, also: Iterable[str] = ()) -> str:
    """Activations as functions `float PREFIXname(float t)`, with all that they call.

    Parameters
    ----------
    names : of activations
    slopes : bool
        With slopes they are `float PREFIXname(float t, float *d)`, and the slope goes to `d`.
    prefix : str
        Begins all names, such as "net_".
    also : names of elementary functions that are wanted besides, see `math_source`

    Examples
    --------
    >>> from meshnn.export.c_math import activation_source
    >>> print(activation_source(["relu"], True, "net_"))
    static inline float net_relu(float t, float *d) {
        *d = t <= 0.0f ? 0.0f : 1.0f;
        return t <= 0.0f ? 0.0f : t;
    }
    <BLANKLINE>
    """
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in _ACTIVATIONS:
            raise MeshError(f"{name!r} has no C; activations that can be written are {', '.join(ACTIVATIONS)}")
    below = [call for name in wanted for call in _ACTIVATIONS[name].calls]
    found = _written(_needed([*below, *also], _FUNCTIONS), prefix)
    for name in wanted:
        body = _ACTIVATIONS[name].text.strip("\n")
        lines = [line.removeprefix("!") for line in body.split("\n") if slopes or not line.startswith("!")]
        head = f"static inline float @{name}(float t{', float *d' if slopes else ''}) {{"
        found += re.sub("@", prefix, "\n".join(["\n" + head if found else head, *lines, "}\n"]))
    return found


def _needed(names: Iterable[str], functions: dict[str, _Function]) -> list[str]:
    """The names and all that they call, callees first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for call in functions[name].calls:
            visit(call)
        found.setdefault(name)

    for name in names:
        visit(name)
    return list(found)


def _written(names: list[str], prefix: str) -> str:
    return "\n".join(_FUNCTIONS[name].text.strip("\n") + "\n" for name in names).replace("@", prefix)
