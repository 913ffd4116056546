"""The loss of a batch, without its gradient."""

from __future__ import annotations

from meshnn.kernels._jit import jit
from meshnn.kernels.forward import run_two
from meshnn.kernels.losses import loss_chunk

__all__ = ["loss_part"]


@jit
def loss_part(course, net, batch, room, first, last):
    """Sum of losses of the chunks first to last. S and D may be (2, n, L)."""
    S, G = room.S, room.G
    ticks = course.forward.shape[0] - 1
    loss = 0.0
    for c in range(first, last):
        run_two(course, net, batch, c, S, room.D)
        Y = S[ticks & 1, S.shape[1] - G.shape[0] :]
        loss += loss_chunk(batch.loss, Y, batch.y[0, c], batch.share[0, c], G, room.scratch)
    return loss
