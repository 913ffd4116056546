"""Column blocks: the influence of every edge is carried along with the states, so that memory does not grow with time.

All in-edges of a neuron j share one propagation, J_j <- (J_j A) diag(phi') + e_j (x) s_prev, over the lists of its
reach.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.kernels.tuples import BlockCourse, Blocks
from meshnn.methods.method import Draft, Method
from meshnn.methods.plain import as_course
from meshnn.schedule import ROW_BYTES, ListBuilder, ListCounter, Walk
from meshnn.schedule.lists import offsets

__all__ = ["ColumnBlocks"]

I64 = NDArray[np.int64]


class Drawn(NamedTuple):
    """Blocks, the lists they run on, and the rows that they are kept in."""

    blocks: Blocks
    lists: ListCounter
    store_rows: float


class ColumnBlocks(Method):
    """`method="blocks"`."""

    name = "blocks"

    def draw(self, draft: Draft) -> Drawn:
        """Blocks up to the readout, whose gradient is that of the last tick; of the Jacobian, up to the outputs."""
        if not draft.jacobian:
            draft.pull_back(min(1, draft.ticks - 1))
            draft.correlate(ticks=slice(-1, None))
        return _blocks(draft)

    def course(self, draft: Draft, drawn: Drawn) -> tuple[Any, I64, I64]:
        """Weights of the blocks' lists come behind the others, and so do the gradients of their edges."""
        assert isinstance(drawn.lists, ListBuilder)
        plain, reads, gives = as_course(draft)
        block_ops = drawn.lists.build(draft.number)
        derived = draft.number if draft.schedule.candidates is None else draft.asked
        blocks = drawn.blocks._replace(eid=derived[drawn.blocks.eid])
        lists = (plain.ops, plain.forward, plain.back, plain.gradient_ops, plain.gradient)
        course = BlockCourse(*lists, block_ops, blocks)
        return course, np.concatenate([reads, block_ops.eid]), np.concatenate([gives, blocks.eid])

    def rows(self, draft: Draft, drawn: Drawn) -> dict[str, tuple[int, ...]]:
        """Two ticks of everything."""
        two = (2, draft.schedule.topology.n_neurons)
        return {"S": two, "D": two, "V": two, "store": (max(int(drawn.store_rows), 1),)}

    def gradient_kernel(self) -> Any:
        """Its own."""
        from meshnn.kernels.blocks import blocks_gradient_part

        return blocks_gradient_part

    def jacobian_kernel(self) -> Any:
        """Its own."""
        from meshnn.kernels.blocks import blocks_jacobian_part

        return blocks_jacobian_part


def _blocks(draft: Draft) -> Drawn:
    """A block per neuron that has in-edges which feed a row at some tick up to the last."""
    s, src, dst, stop = draft.schedule, draft.src, draft.dst, draft.last
    belongs = np.zeros(len(src), dtype=np.bool_)
    for k in range(1, stop + 1):
        belongs[s.into(k, src, dst)] = True
    eid = np.flatnonzero(belongs)
    neurons, counts = np.unique(dst[eid], return_counts=True)  # edges come by destination
    first = offsets(counts)
    begin = np.full(len(neurons), stop + 1)
    np.minimum.at(begin, np.repeat(np.arange(len(neurons)), counts), s.birth[src[eid]] + 1)
    walk = Walk(s, draft.new_lists())
    chain = np.full((len(neurons) if draft.emits else 0, stop + 1), -1, dtype=np.int64)
    room = np.zeros(len(neurons), dtype=np.int64)
    done, entries, rows, hops = 0, 0, 0, 0
    picked = draft.sample(len(neurons))
    for b in picked.tolist():
        j, width, nodes = int(neurons[b]), int(counts[b]), neurons[:0]
        for k in range(int(begin[b]), stop + 1):
            step = walk.follow(nodes, k, j if s.rows[k, j] else -1, positions=True)
            nodes = step.nodes
            if draft.emits:
                chain[b, k] = step.number
            entries += width * step.entries
            rows += width * len(nodes)
            hops += width
            room[b] = max(room[b], len(nodes))
        entries += width * len(nodes)  # contracted with the readout
        done += 1
        if draft.enough(walk.walked, done):
            break
    scale = draft.scaled(done, len(neurons), walk.lists, 0.0)
    offset = offsets(counts * room * 2)
    draft.work.carried += scale * entries
    draft.work.rows += scale * rows
    draft.work.hops += scale * hops
    draft.work.held = scale * float(offset[-1]) * ROW_BYTES
    draft.work.room = max(draft.work.near, draft.work.held)  # almost all rows are those of blocks
    draft.work.reads = float(draft.lists.entries) + scale * walk.lists.entries
    draft.work.gives = float(draft.entries + len(eid))
    draft.extra_bytes += walk.lists.nbytes + 8.0 * (len(neurons) * (stop + 6) + 3 * len(eid))
    blocks = Blocks(neurons, first, src[eid], eid, s.birth[src[eid]], room, offset[:-1], chain)
    return Drawn(blocks, walk.lists, scale * float(offset[-1]))
