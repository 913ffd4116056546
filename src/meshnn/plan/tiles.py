"""Tiles: rows that read the same sources are computed together, so that each source is loaded once for all of them.

A *run* is a number of neighbouring rows of a list, a multiple of `SIDE`, whose entries read the same columns in the
same order. Kernels hold `SIDE` of its rows in registers. Rows that differ in a few columns are made equal with
*padding*: entries of weight 0 without a gradient. A dense graph without self-loops has one per row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import IntArray

UIntArray = NDArray[np.uint32]
#: Number of rows that are computed together.
SIDE = 4
#: Edge index of a padding entry.
PADDING = 2**32 - 1


class Tiled(NamedTuple):
    """A list with its runs."""

    run: IntArray  # (rows,) number of rows of the run that begins with a row; 0 elsewhere
    counts: IntArray  # (rows,) entries of each row
    col: UIntArray
    eid: UIntArray  # PADDING for padding entries
    widest: int  # largest number of columns of a run; 0 without runs
    tiled: int  # entries in runs, padding included


def tile(
    counts: IntArray, col: UIntArray, eid: UIntArray, fill: bool, fewest: int = 3, fewest_filled: int = 8
) -> Tiled:
    """Find the runs of a list whose rows have `counts` entries each.

    Equal neighbouring rows are found first. With `fill`, windows of rows that read mostly the same columns are then
    padded. A run has at least `fewest` columns, since below that single rows are as fast. A padded run consists of rows
    with at least `fewest_filled` entries.
    """
    counts = np.asarray(counts, dtype=np.int64)
    run = np.zeros(len(counts), dtype=np.int64)
    most = int(counts.max(initial=0))
    if len(counts) < SIDE or len(col) < SIDE * fewest or most < fewest:
        return Tiled(run, counts, col, eid, 0, 0)
    ptr = np.concatenate(([0], np.cumsum(counts)))
    for first, rows in _equal_runs(counts, ptr, col, fewest):
        run[first] = rows
    windows = _windows(counts, ptr, col, run, fewest_filled) if fill and most >= fewest_filled else []
    if windows:
        counts, col, eid = _filled(windows, counts, ptr, col, eid)
        for first, rows in windows:
            run[first] = rows
    heads = np.flatnonzero(run)
    tiled = int((run[heads] * counts[heads]).sum())
    return Tiled(run, counts, col, eid, int(counts[heads].max(initial=0)), tiled)


def _equal_runs(counts: IntArray, ptr: IntArray, col: UIntArray, fewest: int) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of every run of equal neighbours."""
    first, last = col[np.minimum(ptr[:-1], len(col) - 1)], col[np.maximum(ptr[1:] - 1, 0)]
    # most neighbours of a sparse graph differ in the number of entries, or in the first or last one
    same = (counts[1:] == counts[:-1]) & (counts[1:] >= fewest) & (first[1:] == first[:-1]) & (last[1:] == last[:-1])
    maybe = np.flatnonzero(same) + 1
    if maybe.size == 0:
        return []
    for begin in range(0, len(maybe), 4096):  # in blocks, to limit the memory for large lists
        rows = maybe[begin : begin + 4096]
        widths = counts[rows]
        entry = np.repeat(ptr[rows] - np.concatenate(([0], np.cumsum(widths)[:-1])), widths) + np.arange(widths.sum())
        equal = col[entry] == col[entry - np.repeat(widths, widths)]
        whole = np.add.reduceat(equal, np.concatenate(([0], np.cumsum(widths)[:-1]))) == widths
        same[rows - 1] = whole
    edges = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)  # rows begins to ends, both inclusive
    lengths = (ends - begins + 1) // SIDE * SIDE
    return [(int(a), int(b)) for a, b in zip(begins, lengths, strict=True) if b]


def _windows(
    counts: IntArray, ptr: IntArray, col: UIntArray, run: IntArray, fewest_filled: int, larger: float = 1.4
) -> list[tuple[int, int]]:
    """Find windows of rows outside of runs that are worth padding: the rows read most of the columns of the window.

    Padding may increase the entries by the factor `larger`, because tiles are three times as fast.
    """
    taken = np.zeros(len(counts) + 1, dtype=np.int64)
    heads = np.flatnonzero(run)
    taken[heads] += 1
    taken[heads + run[heads]] -= 1
    free = np.cumsum(taken[:-1]) == 0
    some = np.flatnonzero(free & (counts >= fewest_filled))
    if some.size < SIDE:
        return []
    starts = np.minimum(ptr[:-1], len(col) - 1)
    low, high = np.minimum.reduceat(col, starts), np.maximum.reduceat(col, starts)
    dense = some[larger * counts[some] >= high[some] - low[some] + 1]
    found: list[tuple[int, int]] = []
    first = previous = -SIDE
    lowest = highest = entries = 0
    for r, a, b, count in zip(
        dense.tolist(), low[dense].tolist(), high[dense].tolist(), counts[dense].tolist(), strict=True
    ):
        wide = max(highest, b) - min(lowest, a) + 1
        if r == previous + 1 and (r - first + 1) * wide <= larger * (entries + count):
            lowest, highest, entries = min(lowest, a), max(highest, b), entries + count
        else:
            found.append((first, previous - first + 1))
            first, lowest, highest, entries = r, a, b, count
        previous = r
    found.append((first, previous - first + 1))
    return [(begin, rows // SIDE * SIDE) for begin, rows in found if begin >= 0 and rows >= SIDE]


def _filled(
    windows: list[tuple[int, int]], counts: IntArray, ptr: IntArray, col: UIntArray, eid: UIntArray
) -> tuple[IntArray, UIntArray, UIntArray]:
    """Return counts, columns and edges with padding, so that each row of a window has all columns of the window."""
    counts, columns, edges, done = counts.copy(), [], [], 0
    for first, rows in windows:
        begin, end = ptr[first], ptr[first + rows]
        columns.append(col[done:begin])
        edges.append(eid[done:begin])
        union, place = np.unique(col[begin:end], return_inverse=True)
        row = np.repeat(np.arange(rows), counts[first : first + rows])
        full = np.full((rows, len(union)), PADDING, dtype=eid.dtype)
        full[row, place] = eid[begin:end]
        columns.append(np.tile(union, rows))
        edges.append(full.ravel())
        counts[first : first + rows] = len(union)
        done = end
    columns.append(col[done:])
    edges.append(eid[done:])
    return counts, np.concatenate(columns), np.concatenate(edges)
