"""Gauss-Newton for looks at ticks, or a readout: backprop from every look and every output.

As `curvature.py`; a look after tick k is a row of the Jacobian of its own, so that a sample fills as many columns as it
has looks. What is read has one row an output, whatever the number of ticks it is read from.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import add, dot, fma, load, mul, ones, store, where_equal, width, zeros
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.jacobian import spread
from meshnn.kernels.losses import write_columns
from meshnn.kernels.pull import slope
from meshnn.kernels.timed import add_readout, any_of, begin, loss_at, one_tick, read_loss
from meshnn.kernels.timed_gradient import back_hop

__all__ = ["timed_curvature_part"]


@jit_inner
def _sweep(course, net, batch, c, room, top, o):
    """The derivative of output o after tick `top`, or of what is read of it, into C, which comes zeroed."""
    w, codes, S, D, V, C = net.w, net.codes, room.S, room.D, room.V, room.C
    ops, reads = course.ops, batch.readout.shape[0] > 0
    outputs = room.G.shape[0]
    count, j = C.shape[0] // outputs, S.shape[1] - outputs + o
    for k in range(top, 0, -1):
        now = V[k & 1]
        if k == top:  # rows that count at later ticks only
            q = course.forward[k]
            for r in range(ops.start[q], ops.start[q + 1]):
                store(now, ops.rows[r], zeros(S))
        else:
            back_hop(ops, course.back[k], w, V[(k + 1) & 1], now, codes, S[k], D[k], width(S))
        if reads and any_of(batch.readout[k - 1, c]):
            weight = load(batch.readout[k - 1, c], 0)
            store(now, j, add(load(now, j), mul(weight, slope(codes[j], S[k], D[k], j))))
        elif not reads and k == top:
            share = load(batch.share[k - 1, c], 0)
            store(now, j, where_equal(share, 0, zeros(S), slope(codes[j], S[k], D[k], j)))
        spread(ops, course.gradient[k], now, S[k - 1], C, o * count)


@jit_inner
def _look(course, net, batch, c, room, k, Y, y, share, live, g, R, column):
    """What a look gives to g and R, whose dE/dY is in G; the next free piece of R."""
    C, G = room.C, room.G
    outputs = G.shape[0]
    count = C.shape[0] // outputs
    for e in range(C.shape[0]):
        store(C, e, zeros(C))
    for o in range(outputs):
        _sweep(course, net, batch, c, room, k, o)
    for e in range(live.shape[0]):
        total = zeros(C)
        for o in range(outputs):
            total = fma(total, load(G, o), load(C, o * count + live[e]))
        g[e] += dot(total, ones(C))
    return write_columns(batch.loss, Y, y, share, C, live, room.P, R, column)


@jit
def timed_curvature_part(course, net, batch, room, first, last, low, high, live, g, R):
    """Sum of losses of the chunks first to last; g grows by their gradient, R gets their columns.

    Of looks, those after the ticks low to high, high not included.
    """
    mode = flush_denormals()
    S, D, U = room.S, room.D, room.U
    G, scratch, ticks, reads = room.G, room.scratch, batch.ticks, batch.readout.shape[0] > 0
    outputs = G.shape[0]
    Y, first_output = room.store[:outputs], S.shape[1] - outputs
    loss, column = 0.0, 0
    for c in range(first, last):
        first_stop = begin(batch, c, S)
        for o in range(outputs):
            store(Y, o, zeros(Y))
        for k in range(1, ticks + 1 if reads else high):
            one_tick(course, net, batch, c, k, S, D, U, width(S), first_stop)
            if reads:
                add_readout(batch, c, k, S[k], Y)
        if reads:
            loss += read_loss(batch, c, Y, G, scratch)
            column = _look(course, net, batch, c, room, ticks, Y, batch.y[0, c], batch.share[0, c], live, g, R, column)
            continue
        for k in range(low, high):
            if any_of(batch.share[k - 1, c]):
                after = S[k, first_output:]
                loss += loss_at(batch, c, k, after, G, scratch)
                y = batch.y[k - 1 if batch.y.shape[0] > 1 else 0, c]
                column = _look(course, net, batch, c, room, k, after, y, batch.share[k - 1, c], live, g, R, column)
    restore(mode)
    return loss
