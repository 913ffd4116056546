"""dy/dA per sample after the last tick of a run that begins with given states: backprop from each output in turn."""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import store, width, zeros
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.jacobian import spread
from meshnn.kernels.pull import slope
from meshnn.kernels.timed import begin, one_tick
from meshnn.kernels.timed_gradient import back_hop

__all__ = ["timed_jacobian_part"]


@jit_inner
def _sweep(course, net, room, ticks, o, n_outputs):
    """The derivative of output o after the last tick, into C, which comes zeroed."""
    w, codes, S, D, V, C = net.w, net.codes, room.S, room.D, room.V, room.C
    ops, count, j = course.ops, C.shape[0] // n_outputs, S.shape[1] - n_outputs + o
    for k in range(ticks, 0, -1):
        now = V[k & 1]
        if k == ticks:
            q = course.forward[k]
            for r in range(ops.start[q], ops.start[q + 1]):
                store(now, ops.rows[r], zeros(S))
            store(now, j, slope(codes[j], S[k], D[k], j))
        else:
            back_hop(ops, course.back[k], w, V[(k + 1) & 1], now, codes, S[k], D[k], width(S))
        spread(ops, course.gradient[k], now, S[k - 1], C, o * count)


@jit
def timed_jacobian_part(course, net, batch, room, first, last, J):
    """Derivatives of each output for the chunks first to last, into J (batch, n_outputs, n_gradient)."""
    mode = flush_denormals()
    S, C, ticks = room.S, room.C, batch.ticks
    L = width(C)
    n_outputs, count = J.shape[1], J.shape[2]
    for c in range(first, last):
        first_stop = begin(batch, c, S)
        for k in range(1, ticks + 1):
            one_tick(course, net, batch, c, k, S, room.D, room.U, L, first_stop)
        for e in range(n_outputs * count):
            store(C, e, zeros(C))
        for o in range(n_outputs):
            _sweep(course, net, room, ticks, o, n_outputs)
        for o in range(n_outputs):
            for e in range(count):
                for l in range(min(L, J.shape[0] - c * L)):
                    J[c * L + l, o, e] = C[o * count + e, l]
    restore(mode)
