"""Lists of rows and edges: the only form in which the kernels receive a graph.

The kernels perform two operations over a list: *pull* (a row becomes the weighted sum of other rows) and *correlate*
(an edge gets the scalar product of two rows). All lists of a plan are stored consecutively in one `Lists` table.

A walk over a graph passes its lists to a `ListCounter`, which only counts them, or to a `ListBuilder`, which also keeps
them. Thus the cost of a plan and the plan itself come from the same walk.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.plan.tiles import PADDING, Tiled, UIntArray, tile
from meshnn.topology.reach import BLOCK

#: Bytes of a row of samples, as in the core: 64 samples in float32, 32 in float64.
ROW_BYTES = 256

#: Edge indices: an array or a contiguous range.
Edges = Array | slice


class PlanTooLargeError(Exception):
    """Raised when the index arrays would exceed the given limit."""


class Lists(NamedTuple):
    """Lists of rows: row r of list q sums over `col[ptr[r]:ptr[r + 1]]`, with the weights of `number[...]`."""

    start: UIntArray  # (lists + 1,) list q holds the rows start[q] to start[q + 1]
    rows: UIntArray  # (rows,) the neuron of each row
    ptr: UIntArray  # (rows + 1,) row r has the entries ptr[r] to ptr[r + 1]
    col: UIntArray  # (entries,) the neuron that an entry reads
    number: UIntArray  # (entries,) index of the value that is its weight: the parameter of its edge
    # (rows,) number of rows, from this one on, with the same columns that are computed in tiles; else 0
    run: UIntArray
    padding: UIntArray  # entries with weight 0 and without a gradient; `number` is ignored for them

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(a.nbytes for a in self)


class ListCounter:
    """Counts lists without keeping them. With `fill`, rows may be padded so that more of them are in tiles."""

    def __init__(self, fill: bool = True) -> None:
        self.fill = fill
        self.n_lists = self.n_rows = self.entries = self.padding = 0
        self.estimated = False  # whether only a part of some list was searched for tiles
        self.tiled = 0  # entries in tiles
        self.widest = 0  # largest number of columns of a tile
        self.first_row: dict[int, int] = {}  # first row of each list that was added alone

    @property
    def nbytes(self) -> float:
        """The bytes of the table that the lists would need."""
        return self.entries * 8.0 + self.padding * 4.0 + self.n_rows * 12.0 + self.n_lists * 4.0

    def count(self, n_rows: int, entries: int, n_lists: int = 1, tiled: int = 0) -> int:
        """Count `n_lists` lists and return the index of the first."""
        first = self.n_lists
        if n_lists == 1:
            self.first_row[first] = self.n_rows
        self.n_lists += n_lists
        self.n_rows += n_rows
        self.entries += entries
        self.tiled += tiled
        return first

    def add(
        self, rows: Array, counts: Array, eid: Edges, src: Array, lengths: Array | None = None, ordered: bool = False
    ) -> int:
        """Append one list, or one per element of `lengths`; return the index of the first.

        `rows` are neurons, in increasing order within a list, with `counts` entries each. `eid` is the edge of every
        entry, sorted by (destination, source), and `src` the source of every edge of the graph. With `ordered`, rows
        are read by later rows of the same list, so that only neighbouring equal rows may be computed together.
        """
        size, most = _length(eid), 1 << 18  # longer lists are searched for tiles only in `most` entries in the middle
        if size <= most or not _single(lengths):
            return self._add(rows, counts, eid, src, lengths, ordered)[0]
        ends = offsets(counts)
        first = int(np.searchsorted(ends, (size - most) // 2))
        last = max(int(np.searchsorted(ends, ends[first] + most, side="right")) - 1, min(first + 1, len(rows)))
        begin = (eid.start if isinstance(eid, slice) else 0) + int(ends[first])
        part = slice(begin, begin + int(ends[last] - ends[first]))
        edges = np.arange(part.start, part.stop) if isinstance(eid, slice) else eid[part]
        found = tile(counts[first:last], _u32(src[edges]), _u32(edges), self.fill and not ordered)
        scale = size / max(len(edges), 1)
        self.widest, self.estimated = max(self.widest, found.widest), True
        filled = round((len(found.eid) - len(edges)) * scale)
        self.padding += filled
        return self.count(len(rows), size + filled, tiled=round(found.tiled * scale))

    def _add(
        self, rows: Array, counts: Array, eid: Edges, src: Array, lengths: Array | None, ordered: bool
    ) -> tuple[int, Tiled]:
        col = _u32(src[eid])
        edges = np.arange(eid.start, eid.stop, dtype=np.uint32) if isinstance(eid, slice) else _u32(eid)
        if _single(lengths):
            found = tile(counts, col, edges, self.fill and not ordered)
        else:  # rows of many lists are short
            found = Tiled(np.zeros(len(rows), dtype=np.int64), counts, col, edges, 0, 0)
        self.widest, self.padding = max(self.widest, found.widest), self.padding + len(found.eid) - len(edges)
        first = self.count(len(rows), len(found.eid), 1 if lengths is None else len(lengths), found.tiled)
        return first, found


class ListBuilder(ListCounter):
    """Keeps lists in 32-bit arrays, without a second copy of a large table.

    It raises `PlanTooLargeError` beyond `limit` bytes of index arrays.
    """

    def __init__(self, limit: int | None = None, fill: bool = True) -> None:
        super().__init__(fill)
        self.limit = limit
        self._table = tuple(array("I") for _ in range(6))  # lengths, rows, counts, run, col, eid

    def add(
        self, rows: Array, counts: Array, eid: Edges, src: Array, lengths: Array | None = None, ordered: bool = False
    ) -> int:
        """Append one list, or one per element of `lengths`."""
        if self.entries + _length(eid) >= 2**32 or self._passes(len(rows), _length(eid)):
            raise PlanTooLargeError
        first, found = self._add(rows, counts, eid, src, lengths, ordered)
        if lengths is None:
            lengths = np.array([len(rows)])
        given: tuple[Array, ...] = (lengths, rows, found.counts, found.run, found.col, found.eid)
        for column, values in zip(self._table, given, strict=True):
            column.frombytes(np.ascontiguousarray(_u32(values)).view(np.uint8).data)
        return first

    def _passes(self, rows: int, entries: int) -> bool:
        return self.limit is not None and self.nbytes + 8.0 * entries + 12.0 * rows > self.limit

    def build(self, number: Array | None = None) -> Lists:
        """Return the table. `number` is the parameter index of each edge, by default its own. Call this only once."""
        lengths, rows, counts, run = map(_whole, self._table[:4])
        # kernels may read up to 64 columns beyond a row, whose values they ignore
        col, eid = _whole(self._table[4], 64), _whole(self._table[5])
        lists = Lists(
            narrow(offsets(lengths)), rows, narrow(offsets(counts)), col, eid, run, np.empty(0, dtype=np.uint32)
        )
        if self.padding:
            padding = np.flatnonzero(eid == PADDING)
            eid[padding] = 0
            lists = lists._replace(padding=_u32(padding))
        if number is not None:
            for begin in range(0, len(eid), BLOCK):
                some = eid[begin : begin + BLOCK]
                some[:] = number[some]
        return lists


def _whole(column: array[int], beyond: int = 1) -> UIntArray:
    """Return a column as an array that is followed by `beyond` zeros in memory."""
    column.frombytes(bytes(4 * beyond))
    return np.frombuffer(column, np.uint32)[:-beyond]


def _length(eid: Edges) -> int:
    return int(eid.stop - eid.start) if isinstance(eid, slice) else len(eid)


def _single(lengths: Array | None) -> bool:
    return lengths is None or len(lengths) == 1


def _u32(numbers: Array) -> UIntArray:
    """Return the numbers in 32 bits, without a copy if they are edge ends."""
    return numbers.view(np.uint32) if numbers.dtype == np.int32 else numbers.astype(np.uint32, copy=False)


def offsets(counts: Array) -> IntArray:
    """Return the begin of each run from the lengths of the runs, and the end of the last one."""
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def narrow(ends: IntArray) -> UIntArray:
    """Return the numbers in 32 bits if they fit."""
    if ends[-1] >= 2**32:
        raise PlanTooLargeError
    return ends.astype(np.uint32)


def runs_of(numbers: Array, window: int = 4096) -> IntArray:
    """Return begin, end and first value of all stretches of consecutive numbers in an array, of shape `(runs, 3)`.

    Several short stretches are merged into one, whose first value is -1. The array is searched `window` numbers at a
    time.
    """
    found = [_runs_within(numbers[begin : begin + window], begin) for begin in range(0, len(numbers), window)]
    if not found:
        return np.empty((0, 3), np.int64)
    runs = np.concatenate(found)
    # join stretches that continue beyond a window
    begin, end, start = runs.T
    goes_on = np.where(start[1:] < 0, start[:-1] < 0, (start[:-1] >= 0) & (start[1:] - start[:-1] == np.diff(begin)))
    first, last = np.append(True, ~goes_on), np.append(~goes_on, True)
    return np.ascontiguousarray(np.stack([begin[first], end[last], start[first]], axis=1))


def _runs_within(piece: Array, begin: int, least: int = 8) -> IntArray:
    """Return the stretches of a piece; a piece with many stretches shorter than `least` is one stretch."""
    ends = np.append(np.flatnonzero(np.diff(piece) != 1) + 1, len(piece))
    if least * len(ends) > len(piece) + least:
        return np.array([[begin, begin + len(piece), -1]])
    begins = np.append(0, ends[:-1])
    long = ends - begins >= least
    starts = np.where(long, piece[begins].astype(np.int64), -1)
    return np.stack([begin + begins, begin + ends, starts], axis=1)
