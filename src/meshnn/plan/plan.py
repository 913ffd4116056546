"""The data a run needs besides numbers: lists of rows and edges for every tick.

Everything the kernels do is one of two things over a list: *pull* (a row becomes the weighted sum of other rows) and
*correlate* (an edge gets the scalar product of two rows). All lists of a plan lie end to end in one `Ops` table.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROW_BYTES", "Blocks", "Ops", "Plan", "Tangents"]

#: Bytes of a row of samples: 64 in float32, 32 in float64. Kernels stride by it. Another width sums in another order,
#: which tests/steady.py asks for.
ROW_BYTES = int(os.environ.get("MESHNN_ROW_BYTES", "256"))

U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]


class Ops(NamedTuple):
    """Lists of rows: row r of list q pulls from `col[ptr[r]:ptr[r + 1]]` over the edges `eid[...]`."""

    start: U32  # (lists + 1,) list q holds the rows start[q] to start[q + 1]
    rows: U32  # (rows,) the neuron each row is
    ptr: U32  # (rows + 1,) its entries
    col: U32  # (entries,) where an entry reads: a neuron (in blocks: a position in the set of the tick before)
    eid: I64  # (entries,) the edge it goes over

    @property
    def nbytes(self) -> int:
        """Bytes of the five arrays."""
        return sum(a.nbytes for a in self)


class Tangents(NamedTuple):
    """Influences F[m, .][j, .] to push forward, one per (tick m, neuron j)."""

    tick: I64  # (T,) m
    neuron: I64  # (T,) j
    row: I64  # (T,) the row of j in the gradient list of tick m
    ptr: I64  # (T + 1,) into chain
    chain: I64  # lists to apply at ticks m + 1, m + 2, ...

    @property
    def nbytes(self) -> int:
        """Bytes of the five arrays."""
        return sum(a.nbytes for a in self)


class Blocks(NamedTuple):
    """Column blocks: all in-edges of one neuron share the lists that carry their influence on.

    Rows are stored compactly: at tick k the influence of block b lies in the rows of list `chain[b, k]`, in order.
    """

    neuron: I64  # (N,) j
    first: I64  # (N + 1,) edges of block b are first[b] to first[b + 1]
    src: I64  # (edges,) source of each edge
    eid: I64  # (edges,) its number
    birth: I64  # (edges,) first tick at which the source can be non-zero
    room: I64  # (N,) rows to keep per edge
    offset: I64  # (N,) first row of block b in the store
    chain: I64  # (N, stop + 1) list at tick k; -1 while the block is empty
    store_rows: int  # rows of the store, both halves

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self if isinstance(a, np.ndarray))


@dataclass(frozen=True, eq=False)
class Plan:
    """A compiled (topology, ticks, method)."""

    method: str  # "forward_pass", "states", "factored", "blocks" or "adjoint"
    ticks: int
    n: int
    n_inputs: int
    n_clamped: int
    n_outputs: int
    ops: Ops
    forward: I64  # (ticks + 1,) list that computes the states of tick k
    back: I64  # (ticks + 1,) list that pulls the adjoint from tick k + 1 to k, where `hops_back` asks for it
    hops_back: int  # 1: readout only (forward-only); ticks - 1: all the way (backprop); 0: none (Jacobian)
    gradient_ops: Ops  # the same table, unless other edges than the graph's are asked for
    gradient: I64  # (ticks + 1,) list whose entries get a gradient at tick k
    n_gradient: int  # length of the gradient
    gradient_entries: int  # leading entries of `gradient_ops` that can get a gradient
    tangents: Tangents
    blocks: Blocks | None
    block_ops: Ops | None

    @property
    def nbytes(self) -> int:
        """Bytes of the index arrays."""
        total = self.ops.nbytes + self.tangents.nbytes
        if self.gradient_ops is not self.ops:
            total += self.gradient_ops.nbytes
        if self.blocks is not None and self.block_ops is not None:
            total += self.blocks.nbytes + self.block_ops.nbytes
        return total
