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

__all__ = ["ROW_BYTES", "ListBuilder", "ListCounter", "Ops", "PlanTooLargeError"]

#: Bytes of a row of samples: 64 in float32, 32 in float64. Kernels stride by it. Another width sums in another order,
#: which tests/steady.py asks for.
ROW_BYTES = int(os.environ.get("MESHNN_ROW_BYTES", "256"))

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

    @property
    def nbytes(self) -> int:
        """Bytes of the five arrays."""
        return sum(a.nbytes for a in self)


class ListCounter:
    """Counts lists, without keeping them."""

    def __init__(self) -> None:
        self.n_lists = self.n_rows = self.entries = 0
        self.first_row: dict[int, int] = {}  # of each list that came alone

    @property
    def nbytes(self) -> float:
        """Bytes of the table that the lists would make."""
        return self.entries * 12.0 + self.n_rows * 8.0 + self.n_lists * 4.0

    def add(
        self, rows: I64, counts: I64, eid: I64, src: I64, *, within: I64 | None = None, lengths: I64 | None = None
    ) -> int:
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
        """
        first = self.n_lists
        if lengths is None:
            self.first_row[first] = self.n_rows
        self.n_lists += 1 if lengths is None else len(lengths)
        self.n_rows += len(rows)
        self.entries += len(eid)
        return first


class ListBuilder(ListCounter):
    """Keeps lists and lays them end to end.

    Parameters
    ----------
    limit : int, optional
        Bytes of index arrays at which to give up with `PlanTooLargeError`.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self._kept: list[tuple[I64, I64, I64, I64, I64]] = []

    def add(
        self, rows: I64, counts: I64, eid: I64, src: I64, *, within: I64 | None = None, lengths: I64 | None = None
    ) -> int:
        """Append a list, or as many as there are lengths; the number of the first."""
        first = super().add(rows, counts, eid, src, within=within, lengths=lengths)
        if self.limit is not None and self.nbytes > self.limit:
            raise PlanTooLargeError
        if lengths is None:
            eid, lengths = np.sort(eid), np.array([len(rows)])
        col = src[eid] if within is None else np.searchsorted(within, src[eid])
        self._kept.append((lengths, rows, counts, col, eid))
        return first

    def build(self, number: I64 | None = None) -> Ops:
        """The table; `number` says which parameter each edge takes its weight from, if not its own."""
        none = np.empty(0, dtype=np.int64)
        lengths, rows, counts, col, eid = (
            np.concatenate([none, *columns]) for columns in (zip(*self._kept, strict=True) if self._kept else [()] * 5)
        )
        ops = Ops(
            start=narrow(offsets(lengths)),
            rows=rows.astype(np.uint32),
            ptr=narrow(offsets(counts)),
            col=col.astype(np.uint32),
            eid=eid if number is None else number[eid],
        )
        return _reversed(ops) if os.environ.get("MESHNN_SUMS") == "reversed" else ops


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
