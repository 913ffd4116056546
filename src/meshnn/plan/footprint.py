"""How much memory a method takes: while it is planned, and while it runs. Without data and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshnn.plan.lists import ROW_BYTES

if TYPE_CHECKING:
    from meshnn.plan.method import Draft

__all__ = ["footprint"]

#: Bytes that planning takes beside what it makes: for every edge (an order by source, and what it is sorted by), for
#: every entry of the largest list (edges and sources in 64 bits, masks), and for every set that a walk remembers.
EDGE, ENTRY, SET = 12.0, 32.0, 500.0
#: A table that grows has room for more.
SLACK = 1.125


def footprint(draft: Draft, rows: dict[str, tuple[int, ...]], workers: int, itemsize: int) -> float:
    """Bytes at the highest point, with buffers for so many workers."""
    index = draft.lists.nbytes + draft.extra_bytes
    if draft.gradient_lists is not draft.lists:
        index += draft.gradient_lists.nbytes
    room = sum(float(np.prod(shape, dtype=np.float64)) for shape in rows.values()) * ROW_BYTES
    # weights and gradient in the order of entries, the gradient by numbers in float64 and as it is returned
    gathered, summed, numbers = float(draft.lists.entries), float(draft.n_summed), float(draft.n_gradient)
    flow = itemsize * (gathered + workers * summed) + 8.0 * summed + (8.0 + itemsize) * numbers
    t = draft.schedule.topology
    largest = float(max(draft.pulled[0].max(initial=0), draft.correlated[0].max(initial=0)))
    planning = EDGE * t.n_edges + ENTRY * largest + draft.remembered + 2.0 * draft.schedule.rows.size
    return max(SLACK * index + planning, index + workers * room + flow)
