"""Lists of rows and edges: all that kernels know of a graph.

Everything the kernels do is one of two things over a list: *pull* (a row becomes the weighted sum of other rows) and
*correlate* (an edge gets the scalar product of two rows). All lists of a plan lie end to end in one `Ops` table.

Whoever walks over a graph hands its lists to a `ListCounter`, which only counts them, or to a `ListBuilder`, which
keeps them too: what a plan would cost and what it is are found by the same walk.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.schedule.tiles import HOLE, Tiled, tile

__all__ = ["ROW_BYTES", "ListBuilder", "ListCounter", "Ops", "PlanTooLargeError"]

#: Bytes of a row of samples: 64 in float32, 32 in float64. Kernels stride by it. Another width sums in another order,
#: which tests/steady.py asks for.
ROW_BYTES = int(os.environ.get("MESHNN_ROW_BYTES", "256"))

#: Entries behind the last one that may be looked at, though nothing is made of them.
BEYOND = 64

U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]


class PlanTooLargeError(Exception):
    """The index arrays would pass the limit that was set."""


class Ops(NamedTuple):
    """Lists of rows: row r of list q pulls from `col[ptr[r]:ptr[r + 1]]` over the edges `eid[...]`."""

    start: U32  # (lists + 1,) list q holds the rows start[q] to start[q + 1]
    rows: U32  # (rows,) the neuron each row is
    ptr: U32  # (rows + 1,) its entries
    col: U32  # (entries,) where an entry reads: a neuron (in blocks: a position in the set of the tick before)
    eid: I64  # (entries,) the number whose weight it takes: the parameter of its edge
    run: U32  # (rows,) how many rows from this one on have the same columns and are computed in tiles; else 0
    holes: U32  # (holes,) entries whose weight is 0, whatever `eid` says, and that have no gradient

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self)


class ListCounter:
    """Counts lists, without keeping them.

    Parameters
    ----------
    fill : bool
        Whether holes may be put into rows, so that more of them are in tiles.
    """

    def __init__(self, fill: bool = True) -> None:
        self.fill = fill
        self.n_lists = self.n_rows = self.entries = 0
        self.tiled = 0  # entries in tiles
        self.widest = 0  # most columns of a tile
        self.first_row: dict[int, int] = {}  # of each list that came alone

    @property
    def nbytes(self) -> float:
        """Bytes of the table that the lists would make."""
        return self.entries * 12.0 + self.n_rows * 12.0 + self.n_lists * 4.0

    def add(
        self, rows: I64, counts: I64, eid: I64, src: I64, *, within: I64 | None = None, lengths: I64 | None = None,
        ordered: bool = False,
    ) -> int:  # fmt: skip
        """Append a list, or as many as there are lengths; the number of the first.

        Parameters
        ----------
        rows : int array
            The neuron each row is, in increasing order within a list.
        counts : int array
            Entries of each row.
        eid : int array
            The edge of every entry; without `lengths` in any order: edges are numbered by (destination, source).
        src : int array
            The source of every edge there is.
        within : int array, optional
            A sorted set of neurons: entries read positions in it instead of neurons.
        lengths : int array, optional
            Rows of each list.
        ordered : bool
            Whether rows are read by later ones of the same list, so that only equal rows may be computed together.
        """
        return self._add(rows, counts, eid, src, within, lengths, ordered)[0]

    def _add(
        self, rows: I64, counts: I64, eid: I64, src: I64, within: I64 | None, lengths: I64 | None, ordered: bool
    ) -> tuple[int, Tiled]:
        first = self.n_lists
        if lengths is None:
            self.first_row[first] = self.n_rows
            eid = np.sort(eid)
        col = src[eid] if within is None else np.searchsorted(within, src[eid])
        if within is None and (lengths is None or len(lengths) == 1):
            found = tile(counts, col, eid, self.fill and not ordered)
        else:  # rows of blocks have an influence each; those of many lists are short
            found = Tiled(np.zeros(len(rows), dtype=np.int64), counts, col, eid, 0, 0)
        self.n_lists += 1 if lengths is None else len(lengths)
        self.n_rows += len(rows)
        self.entries += len(found.eid)
        self.tiled += found.tiled
        self.widest = max(self.widest, found.widest)
        return first, found


class ListBuilder(ListCounter):
    """Keeps lists and lays them end to end.

    Parameters
    ----------
    limit : int, optional
        Bytes of index arrays at which to give up with `PlanTooLargeError`.
    fill : bool
        As for `ListCounter`.
    """

    def __init__(self, limit: int | None = None, fill: bool = True) -> None:
        super().__init__(fill)
        self.limit = limit
        self._kept: list[tuple[I64, I64, I64, I64, I64, I64]] = []

    def add(
        self, rows: I64, counts: I64, eid: I64, src: I64, *, within: I64 | None = None, lengths: I64 | None = None,
        ordered: bool = False,
    ) -> int:  # fmt: skip
        """Append a list, or as many as there are lengths; the number of the first."""
        first, found = self._add(rows, counts, eid, src, within, lengths, ordered)
        if self.limit is not None and self.nbytes > self.limit:
            raise PlanTooLargeError
        if lengths is None:
            lengths = np.array([len(rows)])
        self._kept.append((lengths, rows, found.counts, found.col, found.eid, found.run))
        return first

    def build(self, number: I64 | None = None) -> Ops:
        """The table; `number` says which parameter each edge takes its weight from, if not its own."""
        none = np.empty(0, dtype=np.int64)
        lengths, rows, counts, col, eid, run = (
            np.concatenate([none, *columns]) for columns in (zip(*self._kept, strict=True) if self._kept else [()] * 6)
        )
        ops = Ops(
            start=narrow(offsets(lengths)),
            rows=rows.astype(np.uint32),
            ptr=narrow(offsets(counts)),
            col=col.astype(np.uint32),
            eid=eid,
            run=run.astype(np.uint32),
            holes=none.astype(np.uint32),
        )
        if os.environ.get("MESHNN_SUMS") == "reversed":
            ops = _reversed(ops)
        holes = np.flatnonzero(ops.eid == HOLE)
        eid = np.where(ops.eid == HOLE, 0, ops.eid)
        # kernels look a few columns beyond a row
        col = np.concatenate([ops.col, np.zeros(BEYOND, dtype=np.uint32)])[: len(ops.col)]
        return ops._replace(
            col=col, eid=eid if number is None else number[eid], holes=holes.astype(np.uint32)
        )


def _reversed(ops: Ops) -> Ops:
    """The same sums in another order, which tests/steady.py asks for: no test may depend on it."""
    ptr = ops.ptr.astype(np.int64)
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    order = ptr[row] + ptr[row + 1] - 1 - np.arange(len(row))
    return ops._replace(col=ops.col[order], eid=ops.eid[order])


def offsets(counts: I64) -> I64:
    """Where each of several runs of things begins, and where the last one ends."""
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def narrow(ends: I64) -> U32:
    """The same in 32 bits, if they fit."""
    if ends[-1] >= 2**32:
        raise PlanTooLargeError
    return ends.astype(np.uint32)
