"""The gradient of a loss at ticks, or of a readout: backprop and the factored forward form.

    o_k[j]         dE/ds of output j by its state after tick k, where it is looked at; 0 elsewhere
    v_m[j]         sum over ticks k >= m and outputs o of F_{m,k}[j, o] o_k[o]
    dE/dA[i, j]    sum over ticks m of s_{m-1}[i] v_m[j]

* adjoint: v_k is pulled back from v_{k+1}, and phi' o_k is added on the way.
* factored: the tangent of every (m, j) is carried to the last tick and contracted with o_k wherever it comes by.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import add, load, mul, store, zeros
from meshnn.kernels.correlate import correlate
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import lanes_of
from meshnn.kernels.losses.diagonal import counted
from meshnn.kernels.pull import hop, slope
from meshnn.kernels.timed import add_readout, begin, loss_at, one_tick, read_loss

__all__ = ["back_hop", "inject", "timed_gradient_part"]


@jit_inner
def run_and_look(course, net, batch, c, room, lanes):
    """All ticks of chunk c and its loss; rows k * n_outputs + o of `room.store` become o_k."""
    S, D, U = room.S, room.D, room.U
    O, G, scratch, ticks = room.store, room.G, room.scratch, batch.ticks
    outputs = G.shape[0]
    first_output = S.shape[1] - outputs
    first_stop = begin(batch, c, S)
    for k in range(1, ticks + 1):
        one_tick(course, net, batch, c, k, S, D, U, lanes, first_stop)
    loss = 0.0
    if batch.readout.shape[0] == 0:
        for k in range(1, ticks + 1):
            loss += loss_at(batch, c, k, S[k, first_output:], O[k * outputs : (k + 1) * outputs], scratch)
        return loss
    Y = O[:outputs]
    for o in range(outputs):
        store(Y, o, zeros(Y))
    for k in range(1, ticks + 1):
        add_readout(batch, c, k, S[k], Y)
    loss += read_loss(batch, c, Y, G, scratch)
    for k in range(1, ticks + 1):
        row = load(batch.readout[k - 1, c], 0)
        for o in range(outputs):
            store(O, k * outputs + o, mul(row, load(G, o)))
    return loss


@jit_inner
def back_hop(ops, q, w, source, target, codes, S, D, lanes):
    """A hop that is compiled once."""
    hop(ops, q, w, source, source, False, target, codes, S, D, lanes)


@jit_inner
def inject(O, k, outputs, codes, S, D, V, pulled):
    """What a look at tick k gives to dE/dt of the outputs, added to what was pulled back."""
    first = V.shape[0] - outputs
    for o in range(outputs):
        j = first + o
        v = mul(load(O, k * outputs + o), slope(codes[j], S, D, j))
        if pulled:
            v = add(v, load(V, j))
        store(V, j, v)


@jit_inner
def _tangent(ops, tangents, a, w, codes, S, D, T, O, outputs, lanes):
    """v of tangent a."""
    m, j = tangents.tick[a], tangents.neuron[a]
    first = S.shape[1] - outputs
    store(T[0], j, slope(codes[j], S[m], D[m], j))
    v = zeros(S)
    if j >= first:
        looked = load(O, m * outputs + j - first)
        v = add(v, counted(looked, mul(looked, load(T[0], j))))
    half = 0
    for h in range(tangents.ptr[a + 1] - tangents.ptr[a]):
        k = m + 1 + h
        q = np.int64(tangents.chain[tangents.ptr[a] + h])
        back_hop(ops, q, w, T[half], T[1 - half], codes, S[k], D[k], lanes)
        half = 1 - half
        r = np.int64(ops.start[q + 1]) - 1  # rows come in order, outputs last
        while r >= np.int64(ops.start[q]) and ops.rows[r] >= first:
            looked = load(O, k * outputs + np.int64(ops.rows[r]) - first)
            v = add(v, counted(looked, mul(looked, load(T[half], ops.rows[r]))))
            r -= 1
    store(T[0], j, v)


@jit
def timed_gradient_part(course, net, batch, room, first, last, g):
    """Sum of losses of the chunks first to last; g becomes their gradient, in the order of the plan's entries."""
    mode = flush_denormals()
    w, codes, S, D = net.w, net.codes, room.S, room.D
    V, T, O, panel, ticks = room.V, room.T, room.store, room.panel, batch.ticks
    ops, back, tangents, gradient, gradient_ops = (
        course.ops,
        course.back,
        course.tangents,
        course.gradient,
        course.gradient_ops,
    )
    outputs = room.G.shape[0]
    carries = tangents.tick.shape[0] > 0
    for p in range(g.shape[0]):
        g[p] = 0
    loss = 0.0
    for c in range(first, last):
        lanes = lanes_of(S, batch.size, batch.per, c)
        loss += run_and_look(course, net, batch, c, room, lanes)
        a = tangents.tick.shape[0] - 1
        for k in range(ticks, 0, -1):
            at = 2 if carries else k & 1
            pulls = k < ticks and not carries and course.hops_back > 0
            if pulls:
                back_hop(ops, back[k], w, V[(k + 1) & 1], V[at], codes, S[k], D[k], lanes)
            if not carries or k == ticks:
                inject(O, k, outputs, codes, S[k], D[k], V[at], pulls)
            while a >= 0 and tangents.tick[a] == k:
                _tangent(ops, tangents, a, w, codes, S, D, T, O, outputs, lanes)
                store(V[2], tangents.neuron[a], load(T[0], tangents.neuron[a]))
                a -= 1
            correlate(gradient_ops, gradient[k], V[at], S[k - 1], g, panel, lanes)
    for h in range(gradient_ops.holes.shape[0]):
        if gradient_ops.holes[h] < g.shape[0]:
            g[gradient_ops.holes[h]] = 0
    restore(mode)
    return loss
