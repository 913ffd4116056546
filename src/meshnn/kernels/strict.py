"""Elementary functions and activations of single float32 numbers, with the same bits on every machine.

They are those of `elementary.py` and `activations.py`, compiled without fused multiply-adds, and a sine of their own;
`export/c_math.py` has the same in C, operation by operation.
"""

from __future__ import annotations

import math

import numpy as np

from meshnn.codes import ELU, GAUSS, LEAKY_RELU, RELU, SIGMOID, SIN, SOFTPLUS, TANH
from meshnn.kernels import elementary
from meshnn.kernels._jit import jit_strict, jit_strict_inner, variant

__all__ = ["activate", "activate_each", "strict_exp", "strict_expm1", "strict_log", "strict_log1p"]

f4, i4, i8, u4, u8 = np.float32, np.int32, np.int64, np.uint32, np.uint64
_FAR = f4(87.0)
_SLOPE = f4(0.01)
_SIN = tuple(f4((-1) ** (n // 2) / math.factorial(n)) for n in range(9, 2, -2))
_COS = tuple(f4((-1) ** (n // 2) / math.factorial(n)) for n in range(10, 1, -2))
#: A quarter of 2 / pi, in words of 32 bits: enough to know the product with the largest float modulo 4.
_TWO_OVER_PI = (0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410)
_STEP, _QUARTER = f4(2.0**-62), f4(math.pi / 2)


def _strictly(function, name, **others):
    return jit_strict_inner(variant(function.py_func, name, **others))


_horner = _strictly(elementary._horner, "strict_horner")
_pow2 = _strictly(elementary._pow2_4, "strict_pow2")
_split = _strictly(elementary._split4, "strict_split", _horner=_horner)
strict_exp = _strictly(elementary._exp4, "strict_exp", _split4=_split, _pow2_4=_pow2)
strict_expm1 = _strictly(elementary._expm1_4, "strict_expm1", _split4=_split, _pow2_4=_pow2)
strict_log = _strictly(elementary._log4, "strict_log", _horner=_horner)
strict_log1p = _strictly(elementary._log1p4, "strict_log1p", _horner=_horner)


@jit_strict_inner
def _word(i):
    # a branch each: Numba would make an array of the tuple at every call
    if i < 3:
        return u8(_TWO_OVER_PI[0]) if i == 0 else (u8(_TWO_OVER_PI[1]) if i == 1 else u8(_TWO_OVER_PI[2]))
    return u8(_TWO_OVER_PI[3]) if i == 3 else (u8(_TWO_OVER_PI[4]) if i == 4 else u8(_TWO_OVER_PI[5]))


@jit_strict_inner
def _quarter(x):
    """`(r, q)` with x = q pi/2 + r, |r| <= pi/4, exact for every x (Payne and Hanek, 1983); q is modulo 4."""
    bits = u8(elementary._as_bits(x)) & u8(0xFFFFFFFF)
    size = bits & u8(0x7FFFFFFF)
    if size <= u8(0x3F490FDA):
        return x, 0
    if size >= u8(0x7F800000):
        return x - x, 0
    low = u8(0xFFFFFFFF)
    m = ((size & u8(0x007FFFFF)) | u8(0x00800000)) << u8(8)
    exponent = i8(size >> u8(23)) - 126
    i, e = exponent // 32, u8(exponent % 32)
    hi = _word(i - 1) if i > 0 else u8(0)
    mid, lo = _word(i), _word(i + 1)
    if e > u8(0):
        back = u8(32) - e
        hi = ((hi << e) & low) | (mid >> back)
        mid = ((mid << e) & low) | (lo >> back)
        lo = ((lo << e) & low) | (_word(i + 2) >> back)
    p = ((m * lo) >> u8(32)) + m * mid + (((m * hi) & low) << u8(32))  # two bits before the point, modulo 4
    turns = i8(p >> u8(62))
    p = p & u8(0x3FFFFFFFFFFFFFFF)
    if p >= u8(0x2000000000000000):
        turns += 1
        r = -f4(i8(u8(0x4000000000000000) - p))
    else:
        r = f4(i8(p))
    r = (r * _STEP) * _QUARTER
    if bits >> u8(31):
        return -r, (4 - turns) & 3
    return r, turns & 3


@jit_strict_inner
def _sine(t):
    """Sine and cosine."""
    r, q = _quarter(t)
    z = r * r
    s = r + r * z * _horner(z, _SIN)
    c = f4(1.0) + z * _horner(z, _COS)
    if q == 0:
        return s, c
    if q == 1:
        return c, -s
    if q == 2:
        return -s, -c
    return -c, s


@jit_strict_inner
def activate(code, t):
    """phi(t) and phi'(t); as in `activations.py`, where the formulas are explained."""
    zero, one, two, four = f4(0.0), f4(1.0), f4(2.0), f4(4.0)
    if code == TANH:
        size = abs(t) * two
        e = strict_expm1(_FAR if size > _FAR else size)
        s = e / (e + two)
        x = one / (e + one)
        return (-s if t < zero else s), (zero if size > _FAR else four * x / ((one + x) * (one + x)))
    if code == SIGMOID:
        x = strict_exp(-abs(t))
        return (x if t < zero else one) / (one + x), x / ((one + x) * (one + x))
    if code == LEAKY_RELU:
        return (t * _SLOPE if t <= zero else t), (_SLOPE if t <= zero else one)
    if code == ELU:
        size = _FAR if t < -_FAR else (-t if t < zero else zero)
        e = strict_expm1(size)
        x = one / (e + one)
        s = (x - one if size > one else -e * x) if t <= zero else t
        return s, ((zero if t < -_FAR else x) if t <= zero else one)
    if code == SOFTPLUS:
        e = strict_exp(-abs(t))
        return (zero if t < zero else t) + strict_log1p(e), (e if t < zero else one) / (one + e)
    if code == SIN:
        return _sine(t)
    if code == GAUSS:
        t = _FAR if t > _FAR else (-_FAR if t < -_FAR else t)
        s = strict_exp(-t * t)
        return s, -two * t * s
    if code == RELU:
        return (zero if t <= zero else t), (zero if t <= zero else one)
    return t, one


@jit_strict
def activate_each(code, T, S, D):
    """Values and slopes of many numbers."""
    for k in range(T.shape[0]):
        S[k], D[k] = activate(code, T[k])
