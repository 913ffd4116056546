"""One tick of a stream: states, and the influence of every learned edge on every neuron, with the edges innermost.

    s, s'       states before and after the tick
    J[o, e]     d s[o] / d A[e], on the edges that can reach o
    phi'        slopes of the tick, D

    J'[o, .] = phi'[o] * ( sum over sources i of A[i, o] J[i, .]  +  s[src(e)] at the in-edges e of o )

Rows that share their columns and sources are a product of matrices, four rows at a time in registers, a block of
columns after the other, so that the block of all sources stays in the nearest cache.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit_inline, jit_inner
from meshnn.kernels._piece import block_width, load_at, store_at, vector_width, zeros_block, zeros_vector
from meshnn.kernels._row import axpy
from meshnn.kernels.activations import activate_row

__all__ = ["stream_tick"]


@jit_inline
def _four(panel, wide, new, offset, rows, r, ptr, w, many, lane, nothing, d0, d1, d2, d3):
    """Some columns of four rows with the same sources, which lie in the panel."""
    p0, p1, p2, p3 = ptr[r], ptr[r + 1], ptr[r + 2], ptr[r + 3]
    a0, a1, a2, a3 = nothing, nothing, nothing, nothing
    for k in range(many):
        x = load_at(panel, k * wide, nothing)
        a0 = axpy(a0, w[p0 + k], x)
        a1 = axpy(a1, w[p1 + k], x)
        a2 = axpy(a2, w[p2 + k], x)
        a3 = axpy(a3, w[p3 + k], x)
    store_at(new, offset[rows[r]] + lane, axpy(nothing, d0, a0))
    store_at(new, offset[rows[r + 1]] + lane, axpy(nothing, d1, a1))
    store_at(new, offset[rows[r + 2]] + lane, axpy(nothing, d2, a2))
    store_at(new, offset[rows[r + 3]] + lane, axpy(nothing, d3, a3))


@jit_inline
def _one(old, new, offset, rows, r, ptr, col, w, many, lane, nothing, d):
    """Some columns of a row."""
    p = ptr[r]
    a = nothing
    for k in range(many):
        a = axpy(a, w[p + k], load_at(old, offset[col[p + k]] + lane, nothing))
    store_at(new, offset[rows[r]] + lane, axpy(nothing, d, a))


@jit_inline
def _gather(old, offset, col, p, many, lane, nothing, panel, wide):
    """Some columns of all sources side by side: read where they lie, they would be a page of memory each."""
    for k in range(many):
        store_at(panel, k * wide, load_at(old, offset[col[p + k]] + lane, nothing))


@jit_inner
def _group(old, new, offset, rows, first, last, ptr, col, w, many, size, lanes, D, panel):
    """The whole rows that a group of rows pulls; slopes included."""
    block, vector = zeros_block(old), zeros_vector(old)
    big, small = block_width(old), vector_width(old)
    fours = first + (last - first) // 4 * 4
    lane = 0
    while lane < size:
        wide = lane + big <= size
        if fours > first:
            if wide:
                _gather(old, offset, col, ptr[first], many, lane, block, panel, big)
            else:
                _gather(old, offset, col, ptr[first], many, lane, vector, panel, small)
        for r in range(first, fours, 4):
            d0, d1, d2, d3 = D[lanes[r]], D[lanes[r + 1]], D[lanes[r + 2]], D[lanes[r + 3]]
            if wide:
                _four(panel, big, new, offset, rows, r, ptr, w, many, lane, block, d0, d1, d2, d3)
            else:
                _four(panel, small, new, offset, rows, r, ptr, w, many, lane, vector, d0, d1, d2, d3)
        for r in range(fours, last):
            d = D[lanes[r]]
            if wide:
                _one(old, new, offset, rows, r, ptr, col, w, many, lane, block, d)
            else:
                _one(old, new, offset, rows, r, ptr, col, w, many, lane, vector, d)
        lane += big if wide else small


@jit_inner
def _carry(course, q, w, s, old, new, D, panel):
    """The influences of a tick."""
    rows, ptr, col, offset, lanes, whole = course.rows, course.ptr, course.col, course.offset, course.lane, course.whole
    hop_ptr, hop_col, hop_weight, hop_run = course.hop_ptr, course.hop_col, course.hop_weight, course.hop_run
    runs, groups, into = course.runs, course.groups, course.into
    nothing, step = zeros_vector(old), np.int64(vector_width(old))
    for g in range(course.group_start[q], course.group_start[q + 1]):
        first, last, size = groups[g, 0], groups[g, 1], groups[g, 2]
        many = whole[first]
        if last - first < 4:  # a call would take longer
            for r in range(first, last):
                d = D[lanes[r]]
                for lane in range(0, size, step):
                    _one(old, new, offset, rows, r, ptr, col, w, many, lane, nothing, d)
        else:
            _group(old, new, offset, rows, first, last, ptr, col, w, many, size, lanes, D, panel)
        for r in range(first, last):
            begin = offset[rows[r]]
            d = D[lanes[r]]
            for h in range(hop_ptr[r], hop_ptr[r + 1]):
                source = offset[hop_col[h]]
                factor = d * w[hop_weight[h]]
                for u in range(hop_run[h, 0], hop_run[h, 1]):
                    a, b = source + runs[u, 0], begin + runs[u, 1]
                    # what lies behind the last columns of a source is 0, and may be added to anything
                    for k in range(0, runs[u, 3], step):
                        store_at(new, b + k, axpy(load_at(new, b + k, nothing), factor, load_at(old, a + k, nothing)))
                    for k in range(runs[u, 3], runs[u, 2]):
                        new[np.uint64(b + k)] += factor * old[np.uint64(a + k)]
            for p in range(ptr[r], ptr[r + 1]):
                if into[p] >= 0:
                    new[np.uint64(begin + into[p])] += d * s[np.uint64(col[p])]


@jit_inner
def stream_tick(course, q, w, s, after, old, new, T, t, D, d, panel, influences):
    """Run list q: `after` gets the new states of its rows (it may be `s`), `new` their influences, if asked for.

    `t` and `d` are T and D as flat arrays.
    """
    rows, ptr, col, lanes, pack = course.rows, course.ptr, course.col, course.lane, course.pack
    first, last = course.start[q], course.start[q + 1]
    for r in range(first, last):
        total = T.dtype.type(0)
        for p in range(np.uint64(ptr[r]), np.uint64(ptr[r + 1])):
            total += w[p] * s[np.uint64(col[p])]
        t[lanes[r]] = total
    base = course.pack_start[q]
    for k in range(base, course.pack_start[q + 1]):
        activate_row(pack[k], T, D, k - base)
    if influences:
        _carry(course, q, w, s, old, new, d, panel)
    for r in range(first, last):
        after[rows[r]] = t[lanes[r]]
