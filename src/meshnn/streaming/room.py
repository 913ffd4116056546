"""The buffers of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshnn.kernels.tuples import MOMENT_ROWS, StreamRoom
from meshnn.memory import check_fits
from meshnn.streaming.influence import VECTOR

if TYPE_CHECKING:
    from meshnn.streaming.stream import Stream

__all__ = ["new_room"]


def new_room(stream: Stream) -> StreamRoom:
    """Buffers for all that a stream remembers, and to compute in."""
    from meshnn.kernels._row import aligned, lanes

    t, plan, B, dtype = stream.topology, stream.plan, stream.n_streams, stream.dtype
    n, C, N, L = t.n_neurons, t.n_outputs, stream.ties.n_parameters, lanes(dtype)
    depth = stream.late + 1 if stream.late else 0
    needed = dtype.itemsize * (2.0 * B * plan.columns + (depth * B + 1.0) * C * N)
    check_fits(needed, f"the influences of {B} streams", 'take fewer streams, a smaller `late` or method="snap-1"')
    packs = int(np.diff(plan.course.pack_start).max(initial=1))
    m, d = stream.width, t.n_inputs
    again = stream.learner.places if stream.memory == "none" and B == 1 else 0
    s = np.zeros((B, n), dtype)
    T, D = aligned((max(packs, 1), L), dtype), aligned((max(packs, 1), L), dtype)
    s[:, t.n_inputs : t.n_clamped] = 1  # the bias
    return StreamRoom(
        s=s,
        J=aligned((B, 2, plan.columns + VECTOR // dtype.itemsize), dtype),
        side=np.zeros(B, np.int64),
        other=np.zeros(n, dtype),
        T=T,
        t=T.reshape(-1),
        D=D,
        d=D.reshape(-1),
        panel=aligned((256 // dtype.itemsize * int(plan.course.whole.max(initial=1)),), dtype),
        w=stream.values[plan.reads],
        Y=aligned((C, L), dtype),
        y=aligned((m, L), dtype),
        share=aligned((1, L), dtype),
        G=aligned((C, L), dtype),
        scratch=aligned((2, L), dtype),
        grad=np.zeros(len(stream.values), dtype),
        H=np.zeros((C, N), dtype),
        past_slopes=np.zeros((depth, B, C, N), dtype),
        past_outputs=np.zeros((depth, B, C), dtype),
        x=np.zeros(d, dtype),
        target=np.zeros((B, m), dtype),
        last=np.zeros(d if again else 0, dtype),
        x_moments=np.zeros((MOMENT_ROWS, d if stream.scale else 0)),
        y_moments=np.zeros((MOMENT_ROWS, 0 if stream.loss.likelihood or not stream.scale else m)),
        past_x=np.zeros((again, d), dtype),
        past_t=np.zeros((again, m), dtype),
        clock=np.zeros(8, np.int64),
    )
