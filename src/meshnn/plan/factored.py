"""The factored forward form: the influence of every (tick, neuron) is carried forward, contracted with the readout.

    P_k[i, j, o] = sum over m of s_{m-1}[i] F_{m,k}[j, o]

F_{m,.}[j, .] is a *tangent*: it starts at neuron j in tick m and hops on. Its chain of lists follows from the graph.
An influence of a single hop is phi' A phi': the edges themselves, so it is contracted without being formed, and up to
three ticks nothing has to be carried at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshnn.plan.adjoint import ChunkMethod
from meshnn.plan.lists import PlanTooLargeError, offsets
from meshnn.plan.method import CompiledPlan, Draft, Tangents
from meshnn.plan.plain import NO_TANGENTS, as_course
from meshnn.plan.walk import Walk

__all__ = ["Factored"]

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


class Factored(ChunkMethod):
    """`gradient="factored"`."""

    name = "factored"

    def draw(self, draft: Draft) -> Tangents:
        """The readout, the last hop, is contracted with the loss at once; all that comes before is pushed to it.

        In time everything is pushed to the last tick, and contracted wherever outputs are looked at on the way.
        """
        if draft.timed:
            draft.correlate()
        elif draft.jacobian:
            draft.correlate(ticks=slice(-1, None))
        else:
            draft.pull_back(min(2, draft.ticks - 1))
            draft.correlate()
        return _tangents(draft) if draft.last > (1 if draft.last == draft.ticks else 2) else NO_TANGENTS

    def course(self, draft: Draft, drawn: Tangents) -> tuple[CompiledPlan, U32, U32]:
        """With tangents."""
        return as_course(draft, drawn)

    def rows(self, draft: Draft, drawn: Tangents) -> dict[str, tuple[int, ...]]:
        """A tangent before and after a hop."""
        return super().rows(draft, drawn) | {"T": (2, draft.schedule.topology.n_neurons)}


def _tangents(draft: Draft) -> Tangents:
    """Chains of lists that carry each (tick m, neuron j) that has a gradient at m forward to the last tick."""
    tick, neuron, row, fan_in = _starts(draft)
    hops = draft.last - tick
    ptr = offsets(hops)
    draft.extra_bytes += 8.0 * 4 * len(tick) + 4.0 * float(ptr[-1])
    if draft.limit is not None and draft.extra_bytes > draft.limit:
        raise PlanTooLargeError
    chain = np.empty(ptr[-1] if draft.emits else 0, dtype=np.uint32)
    walk = Walk(draft.schedule, draft.lists)
    # the first hop of all of them at once
    reached = np.zeros(len(tick), dtype=np.int64)
    ends = np.searchsorted(tick, np.arange(1, draft.last + 1))  # they come by tick
    for m, here in enumerate(map(slice, ends[:-1].tolist(), ends[1:].tolist()), start=1):
        if here.start == here.stop:
            continue
        if draft.emits:
            singles = walk.singles(m + 1)
            reached[here] = np.diff(singles.ptr)[neuron[here]]
            chain[ptr[:-1][here]] = singles.number[neuron[here]]
        else:
            reached[here] = walk.count_singles(m + 1)[neuron[here]]
    first_hops = float(reached.sum())
    far = np.flatnonzero(hops > 1)
    picked, done = far[draft.sample(len(far))], 0
    before, entries, tiled, unseen = draft.lists.nbytes, 0, 0, 0.0
    for a in draft.watched(picked, "tangents"):
        k, j, last = int(tick[a]) + 1, int(neuron[a]), int(hops[a])
        nodes = walk.ends(j, k)
        state, size = walk.state(nodes), len(nodes)
        for h in range(1, last):
            step = walk.follow(state, k + h)
            if draft.emits:
                chain[ptr[a] + h] = step.number
            state, size = step.state, step.size
            entries += step.entries
            if draft.jacobian or h < last - 1:  # the last hop is contracted row by row
                tiled += step.tiled
            if draft.exhausted(walk.walked):  # the rest as this one
                entries += (last - 1 - h) * step.entries
                unseen += (last - 1 - h) * 8.0 * (step.entries + size)
                break
        reached[a] = size
        done += 1
        if draft.enough(walk.walked, done):
            break
    scale = draft.scaled(done, len(far), walk, before, unseen)
    # at its end a tangent is contracted with the readout, or with every in-edge for each output it has reached
    ended = reached * (fan_in if draft.jacobian else 1)
    draft.multiply_adds += (
        first_hops + float(ended[hops == 1].sum()) + scale * (entries + float(ended[picked[:done]].sum()))
    )
    draft.tiled += scale * tiled
    return Tangents(tick, neuron, row, ptr, chain)


def _starts(draft: Draft) -> tuple[I64, I64, I64, I64]:
    """Tick, neuron, row in the gradient list and fan-in of every tangent."""
    s, found, memo = draft.schedule, [], {}
    ticks = range(1, draft.last if draft.last == draft.ticks else draft.last - 1)
    for m, fed in zip(ticks, s.degrees(draft.src, draft.dst), strict=False):
        kind = s.live_key(m)
        if kind not in memo:
            rows = np.flatnonzero(s.rows[m])
            fan_in = fed[rows]
            at = np.flatnonzero(fan_in)
            memo[kind] = rows[at], draft.gradient_lists.first_row[int(draft.gradient[m])] + at, fan_in[at]
        found.append((np.full(len(memo[kind][0]), m), *memo[kind]))
    tick, neuron, row, fan_in = (np.concatenate(column) for column in zip(*found, strict=True))
    return tick, neuron, row, fan_in
