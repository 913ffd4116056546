"""The loss of a batch, without its gradient."""

from __future__ import annotations

from meshnn.kernels._jit import jit
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import lanes_of, run_ticks, unpacked
from meshnn.kernels.losses import loss_chunk

__all__ = ["loss_part"]


@jit
def loss_part(course, net, batch, room, first, last):
    """Sum of losses of the chunks first to last."""
    mode = flush_denormals()
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    code, y, share, G, scratch = batch.loss, batch.y[0], batch.share[0], room.G, room.scratch
    end = (course.forward.shape[0] - 1) % S.shape[0]
    loss = 0.0
    for c in range(first, last):
        run_ticks(course, w, codes, X, raw, c, S, D, U, lanes_of(S, batch.size, batch.per, c))
        loss += loss_chunk(code, S[end, S.shape[1] - G.shape[0] :], y[c], share[c], G, scratch)
    restore(mode)
    return loss
