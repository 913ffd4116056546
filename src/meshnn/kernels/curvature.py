"""Gauss-Newton: the gradient of a loss and a square root of its curvature, from the Jacobian of one chunk at a time.

live (n_live,)          the parameters that can count at all
g    (n_live,)          the gradient by them
R    (n_live, columns)  R R' is the sum of J' H J over samples, H the Hessian of the loss by the outputs
"""

from __future__ import annotations

from meshnn.kernels._jit import jit
from meshnn.kernels._row import dot, fma, load, ones, zeros
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.jacobian import jacobian_chunk
from meshnn.kernels.losses import loss_chunk, write_columns

__all__ = ["curvature_part"]


@jit
def curvature_part(course, net, batch, room, first, last, live, g, R):
    """Sum of losses of the chunks first to last; g grows by their gradient, R gets their columns."""
    mode = flush_denormals()
    S, G, C, P, scratch, code = room.S, room.G, room.C, room.P, room.scratch, batch.loss
    targets, shares = batch.y[0], batch.share[0]
    ticks = course.forward.shape[0] - 1
    n_outputs = G.shape[0]
    count = C.shape[0] // n_outputs
    column = 0
    loss = 0.0
    for c in range(first, last):
        jacobian_chunk(course, net, batch, c, room, n_outputs)
        Y, y, share = S[ticks, S.shape[1] - n_outputs :], targets[c], shares[c]
        loss += loss_chunk(code, Y, y, share, G, scratch)
        for e in range(live.shape[0]):
            total = zeros(C)
            for o in range(n_outputs):
                total = fma(total, load(G, o), load(C, o * count + live[e]))
            g[e] += dot(total, ones(C))
        column = write_columns(code, Y, y, share, C, live, P, R, column)
    restore(mode)
    return loss
