"""The loss of a batch, without its gradient."""

from __future__ import annotations

from meshnn.kernels._jit import jit
from meshnn.kernels.forward import run_two, unpacked
from meshnn.kernels.losses import loss_chunk

__all__ = ["loss_part"]


@jit
def loss_part(course, net, batch, room, first, last):
    """Sum of losses of the chunks first to last. S and D may be (2, n, L)."""
    ops, forward, w, codes, X, raw, S, D = unpacked(course, net, batch, room)
    code, y, share, G, scratch = batch.loss, batch.y[0], batch.share[0], room.G, room.scratch
    ticks = forward.shape[0] - 1
    loss = 0.0
    for c in range(first, last):
        run_two(ops, forward, w, codes, X, raw, c, S, D)
        loss += loss_chunk(code, S[ticks & 1, S.shape[1] - G.shape[0] :], y[c], share[c], G, scratch)
    return loss
