"""Samples into rows of samples, once a batch."""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline
from meshnn.kernels._piece import transpose_next, vector_width
from meshnn.kernels._row import axpy, dot, load, width, zeros

__all__ = ["pack_chunk", "pack_part"]


@jit_inline
def pack_chunk(given, begin, count, rows, repeat):
    """Samples begin to begin + count of given (batch, m) into rows (m, L), filled up as `pack_part` says."""
    L, side = width(given), vector_width(given)
    features = given.shape[1]
    done = 0
    if count == L and features >= side:
        done = features - features % side
        for i in range(0, done, side):
            for l in range(0, L, side):
                transpose_next(given, features, begin + l, i, rows, i * L + l, L)
    samples = given[begin : begin + count]
    for l in range(count):
        for i in range(done, features):
            rows[i, l] = samples[l, i]
    for i in range(features):
        for l in range(count, L):
            rows[i, l] = samples[count - 1, i] if repeat else given.dtype.type(0)


@jit
def pack_part(given, first, last, packed, repeat):
    """Samples (T, batch, m) into rows (T, chunks, m, L), for the chunks first to last; whether all are finite.

    The last chunk is filled up with copies of the last sample (so that a filled-up place never overflows alone), or
    with zeros if not `repeat`.
    """
    L = width(given)
    size = given.shape[1]
    spoilt = zeros(given)
    nothing = given.dtype.type(0)
    for k in range(given.shape[0]):
        for c in range(first, last):
            rows = packed[k, c]
            pack_chunk(given[k], c * L, min(L, size - c * L), rows, repeat)
            for i in range(given.shape[2]):
                spoilt = axpy(spoilt, nothing, load(rows, i))  # 0, or NaN for ever
    return dot(spoilt, spoilt) == 0
