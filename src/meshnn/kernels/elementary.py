"""Elementary functions in plain arithmetic, so that LLVM can turn a loop over samples into vector code.

Numba's own `exp` and `tanh` call the C library once a sample. These are accurate to a few units in the last place,
keep NaN and give infinity where the true value overflows.

    exp     x = k ln 2 + r, |r| <= ln 2 / 2;  e^x = 2^k (1 + expm1(r)), expm1 by its Taylor series
    log     x = 2^k m, m between sqrt(1/2) and sqrt(2);  log m = 2 atanh(f), f = (m - 1) / (m + 1), by its series
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from meshnn.kernels._jit import jit_exact

__all__ = ["exp", "expm1_moderate", "log", "log1p_unit"]

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
_LN2 = math.log(2.0)
_LOG2E = 1.0 / _LN2
_SQRT2 = math.sqrt(2.0)
# ln 2 in two parts: k times the first is exact for every k that occurs.
_LN2_HI8, _LN2_LO8 = 6.93145751953125e-1, 1.4286068203094173e-06
_LN2_HI4, _LN2_LO4 = f4(0.693359375), f4(-2.1219444005469057e-4)
# Coefficients, highest power first; as many as |r| <= 0.35 and |f| <= 0.172 ask for.
_EXP4 = tuple(f4(1 / math.factorial(n)) for n in range(7, 1, -1))
_EXP8 = tuple(f8(1 / math.factorial(n)) for n in range(13, 1, -1))
_LOG4 = tuple(f4(1 / n) for n in range(9, 1, -2))
_LOG8 = tuple(f8(1 / n) for n in range(23, 1, -2))


@intrinsic
def _as_float(typingctx, bits):
    """The float that has these bits."""
    small = bits == types.int32
    target = types.float32 if small else types.float64

    def generate(context, builder, sig, args):
        return builder.bitcast(args[0], ir.FloatType() if small else ir.DoubleType())

    return target(bits), generate


@intrinsic
def _as_bits(typingctx, x):
    """The bits of a float."""
    small = x == types.float32
    target = types.int32 if small else types.int64

    def generate(context, builder, sig, args):
        return builder.bitcast(args[0], ir.IntType(32 if small else 64))

    return target(x), generate


@jit_exact
def _horner(x, coefficients):
    p = coefficients[0]
    for c in coefficients[1:]:
        p = p * x + c
    return p


@jit_exact
def _split4(x):
    """`(k, expm1(r))`."""
    n = np.floor(x * f4(_LOG2E) + f4(0.5))
    r = (x - n * _LN2_HI4) - n * _LN2_LO4
    return i4(n), r + r * r * _horner(r, _EXP4)


@jit_exact
def _split8(x):
    n = np.floor(x * _LOG2E + 0.5)
    r = (x - n * _LN2_HI8) - n * _LN2_LO8
    return i4(n), r + r * r * _horner(r, _EXP8)  # a 32-bit k: AVX2 has no vector conversion to 64 bits


@jit_exact
def _pow2_4(k):
    return _as_float(i4((k + i4(127)) << i4(23)))


@jit_exact
def _pow2_8(k):
    return _as_float((i8(k) + i8(1023)) << i8(52))


@jit_exact
def _exp4(x):
    x = f4(90.0) if x > f4(90.0) else x  # written so that NaN passes through
    x = f4(-105.0) if x < f4(-105.0) else x
    k, p = _split4(x)
    half = i4(k >> i4(1))  # 2**k in two factors: alone it would overflow for the largest results
    return ((f4(1.0) + p) * _pow2_4(half)) * _pow2_4(i4(k - half))


@jit_exact
def _exp8(x):
    x = 711.0 if x > 711.0 else x
    x = -750.0 if x < -750.0 else x
    k, p = _split8(x)
    half = i4(k >> i4(1))
    return ((1.0 + p) * _pow2_8(half)) * _pow2_8(i4(k - half))


@jit_exact
def _expm1_4(x):
    k, p = _split4(x)
    scale = _pow2_4(k)
    return scale * p + (scale - f4(1.0))


@jit_exact
def _expm1_8(x):
    k, p = _split8(x)
    scale = _pow2_8(k)
    return scale * p + (scale - 1.0)


@jit_exact
def _log4(x):
    bits = _as_bits(x)
    k = i4((bits >> i4(23)) - i4(127))
    m = _as_float(i4((bits & i4(0x007FFFFF)) | i4(0x3F800000)))
    large = m > f4(_SQRT2)
    m = m * f4(0.5) if large else m
    k = i4(k + i4(1)) if large else k
    f = (m - f4(1.0)) / (m + f4(1.0))
    z = f * f
    value = f4(k) * _LN2_HI4 + (f4(k) * _LN2_LO4 + f4(2.0) * (f + f * z * _horner(z, _LOG4)))
    return value if x < f4(np.inf) else x


@jit_exact
def _log8(x):
    bits = _as_bits(x)
    k = i4((bits >> i8(52)) - i8(1023))
    m = _as_float((bits & i8(0x000FFFFFFFFFFFFF)) | i8(0x3FF0000000000000))
    large = m > _SQRT2
    m = m * 0.5 if large else m
    k = i4(k + i4(1)) if large else k
    f = (m - 1.0) / (m + 1.0)
    z = f * f
    value = f8(k) * _LN2_HI8 + (f8(k) * _LN2_LO8 + 2.0 * (f + f * z * _horner(z, _LOG8)))
    return value if x < np.inf else x


@jit_exact
def _log1p4(u):
    large = u > f4(_SQRT2 - 1)  # then 1 + u = 2 (1 + (u - 1) / 2)
    x = (u - f4(1.0)) * f4(0.5) if large else u
    f = x / (f4(2.0) + x)
    z = f * f
    value = f4(2.0) * (f + f * z * _horner(z, _LOG4))
    return value + f4(_LN2) if large else value


@jit_exact
def _log1p8(u):
    large = u > _SQRT2 - 1
    x = (u - 1.0) * 0.5 if large else u
    f = x / (2.0 + x)
    z = f * f
    value = 2.0 * (f + f * z * _horner(z, _LOG8))
    return value + _LN2 if large else value


def exp(x):
    """e to the x."""
    raise NotImplementedError("inside kernels only")


def expm1_moderate(x):
    """e to the x, minus 1, for x between -87 and 87."""
    raise NotImplementedError("inside kernels only")


def log(x):
    """Natural logarithm of a normal positive number, infinity or NaN."""
    raise NotImplementedError("inside kernels only")


def log1p_unit(u):
    """Natural logarithm of 1 + u, for u between 0 and 1."""
    raise NotImplementedError("inside kernels only")


def _by_width(name, narrow, wide):
    @overload(name)
    def choose(x):
        if x == types.float32:
            return lambda x: narrow(x)
        return lambda x: wide(x)


_by_width(exp, _exp4, _exp8)
_by_width(expm1_moderate, _expm1_4, _expm1_8)
_by_width(log, _log4, _log8)
_by_width(log1p_unit, _log1p4, _log1p8)
