"""Activations phi and their derivatives, a row of samples at a time.

The kink of relu, leaky_relu and elu at 0 takes the derivative from the left, as PyTorch does.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import width
from meshnn.kernels.codes import ELU, GAUSS, IDENTITY, LEAKY_RELU, RELU, SIGMOID, SIN, SOFTPLUS, TANH
from meshnn.kernels.elementary import exp, expm1_moderate, log1p_unit

__all__ = ["activate_all", "activate_row"]


@jit_inner
def activate_row(code, S, D, j):
    """Row j of S holds t; make it phi(t) and row j of D phi'(t)."""
    one = S.dtype.type(1)
    two = S.dtype.type(2)
    slope = S.dtype.type(0.01)
    far = S.dtype.type(40)  # beyond it tanh is 1 and expm1 is -1 to the last bit
    n = width(S)
    if code == TANH:
        for l in range(n):
            t = S[j, l]
            size = abs(t) * two
            size = far if size > far else size
            e = expm1_moderate(size)
            s = e / (e + two)
            s = -s if t < 0 else s
            S[j, l] = s
            D[j, l] = one - s * s
    elif code == SIGMOID:
        for l in range(n):
            s = one / (one + exp(-S[j, l]))
            S[j, l] = s
            D[j, l] = s * (one - s)
    elif code == LEAKY_RELU:
        for l in range(n):
            t = S[j, l]
            S[j, l] = t * slope if t <= 0 else t
            D[j, l] = slope if t <= 0 else one
    elif code == ELU:
        for l in range(n):
            t = S[j, l]
            below = -far if t < -far else (t if t < 0 else S.dtype.type(0))
            e = expm1_moderate(below)
            S[j, l] = e if t <= 0 else t
            D[j, l] = e + one if t <= 0 else one
    elif code == SOFTPLUS:
        for l in range(n):
            t = S[j, l]
            e = exp(-abs(t))
            S[j, l] = (S.dtype.type(0) if t < 0 else t) + log1p_unit(e)
            D[j, l] = (e if t < 0 else one) / (one + e)
    elif code == SIN:
        for l in range(n):
            t = S[j, l]
            S[j, l] = np.sin(t)
            D[j, l] = np.cos(t)
    elif code == GAUSS:
        for l in range(n):
            t = S[j, l]
            s = exp(-t * t)
            S[j, l] = s
            D[j, l] = -two * (t * s)  # t * t may overflow, t * s cannot: there s is 0
    elif code == RELU:
        for l in range(n):
            t = S[j, l]
            S[j, l] = S.dtype.type(0) if t <= 0 else t
            D[j, l] = S.dtype.type(0) if t <= 0 else one
    elif code == IDENTITY:
        for l in range(n):
            D[j, l] = one


@jit
def activate_all(codes, S, D):
    """All neurons at once; S and D are (n, L)."""
    for j in range(S.shape[0]):
        activate_row(codes[j], S, D, j)
