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
from meshnn.topology.reach import counted, taken

__all__ = ["ColumnBlocks"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


class Drawn(NamedTuple):
    """Blocks, the lists they run on, and the rows that they are kept in."""

    blocks: Blocks
    lists: ListCounter
    store_rows: float


class ColumnBlocks(Method):
    """`method="blocks"`."""

    name = "blocks"

    def draw(self, draft: Draft) -> Drawn:
        """Blocks up to the readout, whose gradient is that of the last tick; of the Jacobian, up to the outputs.

        In time, too: they are contracted wherever outputs are looked at.
        """
        if not draft.jacobian and not draft.timed:
            draft.pull_back(min(1, draft.ticks - 1))
            draft.correlate(ticks=slice(-1, None))
        return _blocks(draft)

    def course(self, draft: Draft, drawn: Drawn) -> tuple[Any, U32, U32]:
        """Weights of the blocks' lists come behind the others, and so do the gradients of their edges."""
        assert isinstance(drawn.lists, ListBuilder)
        plain, reads, gives = as_course(draft)
        block_ops = drawn.lists.build(draft.number)
        derived = draft.number if draft.schedule.candidates is None else draft.asked
        blocks = drawn.blocks
        if derived is not None:
            blocks = blocks._replace(eid=derived[blocks.eid].astype(np.uint32))
        lists = (plain.ops, plain.forward, plain.back, plain.gradient_ops, plain.gradient)
        course = BlockCourse(*lists, block_ops, blocks, plain.drive, plain.clamps)
        return course, np.concatenate([reads, block_ops.eid]), np.concatenate([gives, blocks.eid])

    def rows(self, draft: Draft, drawn: Drawn) -> dict[str, tuple[int, ...]]:
        """Two ticks of everything."""
        two = (2, draft.schedule.topology.n_neurons)
        return {"S": two, "D": two, "V": two, "store": (max(int(drawn.store_rows), 1),)}

    def gradient_kernel(self) -> Any:
        """Its own."""
        from meshnn.kernels.blocks import blocks_gradient_part

        return blocks_gradient_part

    def timed_kernel(self) -> Any:
        """Its own."""
        from meshnn.kernels.blocks import timed_blocks_part

        return timed_blocks_part

    def jacobian_kernel(self) -> Any:
        """Its own."""
        from meshnn.kernels.blocks import blocks_jacobian_part

        return blocks_jacobian_part


def _blocks(draft: Draft) -> Drawn:
    """A block per neuron that has in-edges which feed a row at some tick up to the last."""
    s, src, dst, stop = draft.schedule, draft.src, draft.dst, draft.last
    # the last tick at which each neuron is a row: an edge counts if its source is born before it
    latest = np.zeros(s.topology.n_neurons, dtype=np.int32)
    for k in range(1, stop + 1):
        latest[s.rows[k]] = k
    birth = taken(np.minimum(s.birth, stop + 1).astype(np.int32), src)
    counting = birth < taken(latest, dst)
    birth = birth[counting]
    fan_in = counted(s.topology.n_neurons, dst[counting])
    neurons = np.flatnonzero(fan_in)
    counts = fan_in[neurons]
    first = offsets(counts)  # edges come by destination
    begin = np.minimum.reduceat(birth, first[:-1]) + 1 if len(neurons) else neurons
    walk = Walk(s, draft.new_lists())
    nothing = walk.state(np.empty(0, dtype=np.uint32))
    chain = np.full((len(neurons) if draft.emits else 0, stop + 1), -1, dtype=np.int32)
    room = np.zeros(len(neurons), dtype=np.int64)
    done, entries, rows, hops, unseen = 0, 0, 0, 0, 0.0
    for b in draft.watched(draft.sample(len(neurons)), "blocks"):
        j, width, state, size = int(neurons[b]), int(counts[b]), nothing, 0
        for k in range(int(begin[b]), stop + 1):
            step = walk.follow(state, k, j if s.rows[k, j] else -1, positions=True)
            state, size = step.state, step.size
            if draft.emits:
                chain[b, k] = step.number
            entries += width * step.entries
            rows += width * size
            hops += width
            room[b] = max(room[b], size)
            if draft.exhausted(walk.walked):  # the rest as this one
                entries += (stop - k) * width * step.entries
                rows += (stop - k) * width * size
                unseen += (stop - k) * 8.0 * (step.entries + size)
                break
        entries += width * size  # contracted with the readout
        done += 1
        if draft.enough(walk.walked, done):
            break
    scale = draft.scaled(done, len(neurons), walk, 0.0, unseen)
    offset = offsets(counts * room * 2)
    draft.work.carried += scale * entries
    draft.work.kept += scale * rows
    draft.work.hops += scale * hops
    draft.work.held = scale * float(offset[-1]) * ROW_BYTES
    draft.work.room = draft.work.near  # of two ticks
    draft.work.reads = float(draft.lists.entries) + scale * walk.lists.entries
    draft.work.gives = float(draft.entries + len(birth))
    draft.extra_bytes += walk.lists.nbytes + len(neurons) * (4.0 * (stop + 1) + 32.0) + 12.0 * len(birth)
    edges = np.flatnonzero(counting) if draft.emits else neurons[:0]
    held = (src[edges].astype(np.int32), edges.astype(np.uint32), birth)
    blocks = Blocks(neurons, first, *held, room, offset[:-1], chain)
    return Drawn(blocks, walk.lists, scale * float(offset[-1]))
