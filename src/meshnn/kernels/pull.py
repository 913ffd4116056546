"""Pull: rows become weighted sums of other rows, over one list.

Rows of a run (see `schedule/tiles.py`) are computed four at a time, a piece of their samples after the other: what is
loaded of a source serves all four, and the sums stay in registers. Other rows are computed one by one.

`lanes` is how many samples of a row count: all, or half. The others become 0, whatever the sources hold.
"""

from __future__ import annotations

import numpy as np

from meshnn.codes import IDENTITY, RELU
from meshnn.kernels._jit import jit_inline
from meshnn.kernels._piece import load_piece, piece_width, store_piece, whole_rows, zeros_piece
from meshnn.kernels._row import axpy, load, mul, ones, relu, step, store, width, zeros
from meshnn.kernels.activations import activate_row

__all__ = ["hop", "run_tick", "slope"]


@jit_inline
def slope(code, S, D, j):
    """phi'(t) of row j. Of identity and relu it follows from the state, so it is not stored."""
    if code == IDENTITY:
        return ones(S)
    if code == RELU:
        return step(load(S, j))
    return load(D, j)


@jit_inline
def _pull_tile(rows, ptr, col, r, w, source, seeds, seeded, target, lanes):
    """Rows r to r + 3 of a run; each begins with its row of `seeds`, if seeded."""
    p0, p1, p2, p3 = np.uint64(ptr[r]), np.uint64(ptr[r + 1]), np.uint64(ptr[r + 2]), np.uint64(ptr[r + 3])
    j0, j1, j2, j3 = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
    if whole_rows() and lanes == width(source):
        b0, b1, b2, b3 = zeros(source), zeros(source), zeros(source), zeros(source)
        if seeded:
            b0, b1, b2, b3 = load(seeds, j0), load(seeds, j1), load(seeds, j2), load(seeds, j3)
        for k in range(p1 - p0):
            x = load(source, col[p0 + k])
            b0 = axpy(b0, w[p0 + k], x)
            b1 = axpy(b1, w[p1 + k], x)
            b2 = axpy(b2, w[p2 + k], x)
            b3 = axpy(b3, w[p3 + k], x)
        store(target, j0, b0)
        store(target, j1, b1)
        store(target, j2, b2)
        store(target, j3, b3)
        return
    for lane in range(0, lanes, piece_width(source)):
        a0, a1, a2, a3 = zeros_piece(source), zeros_piece(source), zeros_piece(source), zeros_piece(source)
        if seeded:
            a0, a1 = load_piece(seeds, j0, lane), load_piece(seeds, j1, lane)
            a2, a3 = load_piece(seeds, j2, lane), load_piece(seeds, j3, lane)
        for k in range(p1 - p0):
            s = load_piece(source, col[p0 + k], lane)
            a0 = axpy(a0, w[p0 + k], s)
            a1 = axpy(a1, w[p1 + k], s)
            a2 = axpy(a2, w[p2 + k], s)
            a3 = axpy(a3, w[p3 + k], s)
        store_piece(target, j0, lane, a0)
        store_piece(target, j1, lane, a1)
        store_piece(target, j2, lane, a2)
        store_piece(target, j3, lane, a3)
    for lane in range(lanes, width(source), piece_width(source)):
        for b in range(r, r + np.uint64(4)):
            store_piece(target, rows[b], lane, zeros_piece(source))


@jit_inline
def _pull_row(rows, ptr, col, r, w, source, seeds, seeded):
    """A row that stands alone."""
    t = zeros(source)
    if seeded:
        t = load(seeds, rows[r])
    for p in range(ptr[r], ptr[r + 1]):
        t = axpy(t, w[p], load(source, col[p]))
    return t


@jit_inline
def _pull_narrow(rows, ptr, col, r, w, source, seeds, seeded, target, lanes):
    """The same for some samples of a row."""
    j = rows[r]
    for lane in range(0, lanes, piece_width(source)):
        t = zeros_piece(source)
        if seeded:
            t = load_piece(seeds, j, lane)
        for p in range(ptr[r], ptr[r + 1]):
            t = axpy(t, w[p], load_piece(source, col[p], lane))
        store_piece(target, j, lane, t)
    for lane in range(lanes, width(source), piece_width(source)):
        store_piece(target, j, lane, zeros_piece(source))


@jit_inline
def run_tick(ops, q, w, before, seeds, seeded, after, D, codes, lanes, plain):
    """One tick over list q: rows of `after` become phi of the weighted sums of rows of `before`; the sums, if plain."""
    # a look into a tuple takes its fields out: not in a loop
    rows, ptr, col, run = ops.rows, ops.ptr, ops.col, ops.run
    r, end = np.uint64(ops.start[q]), np.uint64(ops.start[q + 1])
    tiled = r  # rows up to here are in tiles
    while r < end:
        if run[r] > 0:
            tiled = r + run[r]
        some = np.uint64(1)
        if r < tiled:
            _pull_tile(rows, ptr, col, r, w, before, seeds, seeded, after, lanes)
            some = np.uint64(4)
        elif lanes < width(before):
            _pull_narrow(rows, ptr, col, r, w, before, seeds, seeded, after, lanes)
        else:
            j = rows[r]
            t = _pull_row(rows, ptr, col, r, w, before, seeds, seeded)
            code = IDENTITY if plain else codes[j]
            if code == IDENTITY:
                store(after, j, t)
            elif code == RELU:
                store(after, j, relu(t))
            else:
                store(after, j, t)
                activate_row(code, after, D, j)
            r += some
            continue
        for b in range(r, r + some):
            j = rows[b]
            code = IDENTITY if plain else codes[j]
            if code == RELU:
                store(after, j, relu(load(after, j)))
            elif code != IDENTITY:
                activate_row(code, after, D, j)
        r += some


@jit_inline
def hop(ops, q, w, source, seeds, seeded, target, codes, S, D, lanes):
    """Weighted sums over list q, each times phi' of its row."""
    rows, ptr, col, run = ops.rows, ops.ptr, ops.col, ops.run
    r, end = np.uint64(ops.start[q]), np.uint64(ops.start[q + 1])
    tiled = r
    while r < end:
        if run[r] > 0:
            tiled = r + run[r]
        some = np.uint64(1)
        if r < tiled:
            _pull_tile(rows, ptr, col, r, w, source, seeds, seeded, target, lanes)
            some = np.uint64(4)
        elif lanes < width(source):
            _pull_narrow(rows, ptr, col, r, w, source, seeds, seeded, target, lanes)
        else:
            j = rows[r]
            t = _pull_row(rows, ptr, col, r, w, source, seeds, seeded)
            store(target, j, mul(t, slope(codes[j], S, D, j)))
            r += some
            continue
        for b in range(r, r + some):
            j = rows[b]
            store(target, j, mul(load(target, j), slope(codes[j], S, D, j)))
        r += some
