"""Correlate: the gradient of an edge is the scalar product, over the samples, of two rows.

Of a run (see `schedule/tiles.py`) these are a product of two matrices. The rows that its entries read are transposed
into a *panel*, samples outermost; then four rows of the run and a block of columns are summed up in registers over the
samples, and nothing has to be added up across a register.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit_inline, jit_inner
from meshnn.kernels._piece import (
    add_first,
    block_width,
    load_at,
    load_piece,
    piece_width,
    transpose,
    vector_width,
    zeros_block,
    zeros_pair,
    zeros_vector,
)
from meshnn.kernels._row import axpy, dot, dot4, load, width

__all__ = ["correlate"]

#: Columns that are left over and taken one by one: the bias often is.
FEW = 3


@jit_inline
def _correlate_row(ptr, col, r, V, j, S, g):
    """g[p] += v . s over the entries p of row r: row j of V against the states its in-edges read."""
    v = load(V, j)
    p = ptr[r]
    end = ptr[r + 1]
    while p + 4 <= end:
        dot4(
            g,
            p,
            v,
            load(S, col[p]),
            load(S, col[p + 1]),
            load(S, col[p + 2]),
            load(S, col[p + 3]),
        )
        p += 4
    while p < end:
        g[p] += dot(v, load(S, col[p]))
        p += 1


@jit_inline
def _correlate_narrow(ptr, col, r, V, j, S, g, lanes):
    """The same for some samples of a row."""
    for lane in range(0, lanes, piece_width(S)):
        v = load_piece(V, j, lane)
        for p in range(ptr[r], ptr[r + 1]):
            g[p] += dot(v, load_piece(S, col[p], lane))


@jit_inline
def _block(panel, i, stride, V, rows, r, ptr, lanes, g, count, zero):
    """g of four rows and as many columns, from i on, as `zero` has."""
    j0, j1, j2, j3 = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
    a0, a1, a2, a3 = zero, zero, zero, zero
    for l in range(lanes):
        s = load_at(panel, l * stride + i, zero)
        a0 = axpy(a0, V[j0, l], s)
        a1 = axpy(a1, V[j1, l], s)
        a2 = axpy(a2, V[j2, l], s)
        a3 = axpy(a3, V[j3, l], s)
    add_first(g, ptr[r] + i, a0, count - i)
    add_first(g, ptr[r + 1] + i, a1, count - i)
    add_first(g, ptr[r + 2] + i, a2, count - i)
    add_first(g, ptr[r + 3] + i, a3, count - i)


@jit_inner
def _correlate_run(rows, ptr, col, first, last, V, S, g, panel, lanes):
    """Rows first to last of a run."""
    begin, count = np.int64(ptr[first]), np.int64(ptr[first + 1]) - np.int64(ptr[first])
    side = vector_width(S)
    whole = count - count % side if count % side <= FEW else count  # what is left is not worth a block
    stride = (whole + side - 1) // side * side
    for i in range(0, stride, side):
        for l in range(0, lanes, side):
            transpose(S, width(S), col, begin + i, l, panel, l * stride + i, stride)
    i = stride - stride  # 0, but no constant
    while i + block_width(S) <= stride:
        for r in range(first, last, 4):
            _block(panel, i, stride, V, rows, np.uint64(r), ptr, np.uint64(lanes), g, whole, zeros_block(S))
        i += block_width(S)
    while i + 2 * side <= stride:
        for r in range(first, last, 4):
            _block(panel, i, stride, V, rows, np.uint64(r), ptr, np.uint64(lanes), g, whole, zeros_pair(S))
        i += 2 * side
    while i < stride:
        for r in range(first, last, 4):
            _block(panel, i, stride, V, rows, np.uint64(r), ptr, np.uint64(lanes), g, whole, zeros_vector(S))
        i += side
    for i in range(whole, count):
        s = load(S, col[begin + i])
        for r in range(first, last):
            g[ptr[r] + i] += dot(load(V, rows[r]), s)


@jit_inline
def correlate(ops, q, V, S, g, panel, lanes):
    """The gradient of one tick: all rows of list q."""
    rows, ptr, col, run = ops.rows, ops.ptr, ops.col, ops.run
    r, end = np.uint64(ops.start[q]), np.uint64(ops.start[q + 1])
    while r < end:
        if run[r] > 0:
            _correlate_run(rows, ptr, col, r, r + run[r], V, S, g, panel, lanes)
            r += np.uint64(run[r])
        elif lanes < width(S):
            _correlate_narrow(ptr, col, r, V, rows[r], S, g, lanes)
            r += np.uint64(1)
        else:
            _correlate_row(ptr, col, r, V, rows[r], S, g)
            r += np.uint64(1)
