"""Activations phi and their derivatives, a row of samples at a time.

The kink of relu, leaky_relu and elu at 0 takes the derivative from the left, as PyTorch does.
"""

from __future__ import annotations

import numpy as np

from meshnn.codes import ELU, GAUSS, IDENTITY, LEAKY_RELU, RELU, SIGMOID, SIN, SOFTPLUS, TANH
from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.elementary import exp, expm1_moderate, log1p_unit

__all__ = ["activate_all", "activate_row"]

#: Exponent up to which expm1 is finite in float32; beyond it tanh is 1, elu -1 and their slopes 0, in float64 too but
#: for slopes below 1e-37.
FAR = 87.0


@jit_inner
def activate_row(code, S, D, j):
    """Row j of S holds t; make it phi(t) and row j of D phi'(t)."""
    zero, one, two, four = S.dtype.type(0), S.dtype.type(1), S.dtype.type(2), S.dtype.type(4)
    slope = S.dtype.type(0.01)
    far = S.dtype.type(FAR)
    n = width(S)
    # Slopes are made of x = exp(-|t|) or so, never of 1 - s, which is all rounding where a neuron is saturated.
    if code == TANH:
        for l in range(n):
            t = S[j, l]
            size = abs(t) * two
            e = expm1_moderate(far if size > far else size)
            s = e / (e + two)
            S[j, l] = -s if t < 0 else s
            x = one / (e + one)  # exp(-2 |t|)
            D[j, l] = zero if size > far else four * x / ((one + x) * (one + x))
    elif code == SIGMOID:
        for l in range(n):
            t = S[j, l]
            x = exp(-abs(t))
            S[j, l] = (x if t < 0 else one) / (one + x)
            D[j, l] = x / ((one + x) * (one + x))
    elif code == LEAKY_RELU:
        for l in range(n):
            t = S[j, l]
            S[j, l] = t * slope if t <= 0 else t
            D[j, l] = slope if t <= 0 else one
    elif code == ELU:
        for l in range(n):
            t = S[j, l]
            size = far if t < -far else (-t if t < 0 else zero)
            e = expm1_moderate(size)
            x = one / (e + one)  # exp(t)
            S[j, l] = (x - one if size > one else -e * x) if t <= 0 else t
            D[j, l] = (zero if t < -far else x) if t <= 0 else one
    elif code == SOFTPLUS:
        for l in range(n):
            t = S[j, l]
            e = exp(-abs(t))
            S[j, l] = (zero if t < 0 else t) + log1p_unit(e)
            D[j, l] = (e if t < 0 else one) / (one + e)
    elif code == SIN:
        for l in range(n):
            t = S[j, l]
            S[j, l] = np.sin(t)
            D[j, l] = np.cos(t)
    elif code == GAUSS:
        for l in range(n):
            t = S[j, l]
            t = far if t > far else (-far if t < -far else t)  # beyond it both are 0, and nothing overflows
            s = exp(-t * t)
            S[j, l] = s
            D[j, l] = -two * t * s
    elif code == RELU:
        for l in range(n):
            t = S[j, l]
            S[j, l] = zero if t <= 0 else t
            D[j, l] = zero if t <= 0 else one
    elif code == IDENTITY:
        for l in range(n):
            D[j, l] = one


@jit
def activate_all(codes, S, D):
    """All neurons at once; S and D are (n, L)."""
    for j in range(S.shape[0]):
        activate_row(codes[j], S, D, j)
