"""The gradient of a loss: the factored forward form and backprop, which are two ends of one scale.

    F_{m,k}[j, o]   influence of the pre-activation of j at tick m on the state of o after tick k
    v_m[j]          sum over outputs o of F_{m,K}[j, o] dE/dy[o]
    dE/dA[i, j]     sum over ticks m of s_{m-1}[i] v_m[j]

`v_K` is the gradient by the outputs times phi', and the readout gives v_{K-1}. From there

* factored: F_{K-2,K-1}[j, o], one hop, is phi'[j] A[j, o] phi'[o]: a product with v_{K-1} needs no more than the edges.
  Every earlier (m, j) is a *tangent*: F_{m,.}[j, .] starts as phi' at (m, j) and is pulled forward, tick by tick, over
  the lists of its chain; the last hop is contracted with v_{K-1}. Nothing runs backward through time.
* adjoint: v_m is pulled back from v_{m+1} over the transposed lists (`hops_back` = ticks - 1). No tangents. In a
  *sweep*, where all that counts has settled, there is one pass forward and one back, in one place for all ticks.

Up to three ticks both are the same computation.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inline
from meshnn.kernels._row import add, axpy, fma, load, mul, store, zeros
from meshnn.kernels.correlate import correlate
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import lanes_of, run_ticks, unpacked
from meshnn.kernels.losses import loss_chunk
from meshnn.kernels.pull import hop, slope

__all__ = ["gradient_part", "push_tangent"]


@jit_inline
def push_tangent(ops, tangents, a, w, codes, S, D, T, hops, lanes):
    """Carry tangent a through the first `hops` lists of its chain; returns which half of T holds it."""
    m = tangents.tick[a]
    j = tangents.neuron[a]
    half, plain = 0, hops < 0
    store(T[half], j, slope(codes[j], S[m], D[m], j))
    for h in range(hops):
        k = m + 1 + h
        q = np.int64(tangents.chain[tangents.ptr[a] + h])
        hop(ops, q, w, T[half], T[half], plain, T[1 - half], codes, S[k], D[k], lanes)
        half = 1 - half
    return half


@jit_inline
def _contracted(ops, q, w, tangent, readout):
    """The last hop of a tangent, over list q, contracted with the readout at once."""
    rows, ptr, col = ops.rows, ops.ptr, ops.col
    v = zeros(readout)
    for r in range(ops.start[q], ops.start[q + 1]):
        f = zeros(readout)
        for p in range(ptr[r], ptr[r + 1]):
            f = axpy(f, w[p], load(tangent, col[p]))
        v = fma(v, f, load(readout, rows[r]))
    return v


@jit_inline
def _seed_outputs(codes, G, S, D, V, whole):
    """dE/dt of the outputs; dE/ds, and 0 of all other neurons, where `whole` neurons are still to be pulled."""
    first = V.shape[0] - G.shape[0]
    if whole:
        for j in range(first):
            store(V, j, zeros(V))
    for o in range(G.shape[0]):
        j = first + o
        if whole:
            store(V, j, load(G, o))
        else:
            store(V, j, mul(load(G, o), slope(codes[j], S, D, j)))


@jit_inline
def _tick_gradient(course, k, V, S, g, total, panel, lanes):
    """The gradient that tick k gives; if there is a drive, that of edges from clamped neurons waits in `total`."""
    ops, q = course.gradient_ops, course.gradient[k]
    if course.drive >= 0:
        rows = ops.rows
        for r in range(ops.start[q], ops.start[q + 1]):
            j = rows[r]
            store(total, j, add(load(total, j), load(V, j)))
    correlate(ops, q, V, S, g, panel, lanes)


@jit
def gradient_part(course, net, batch, room, first, last, g):
    """Sum of losses of the chunks first to last; g becomes their gradient, in the order of the plan's entries."""
    mode = flush_denormals()
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    code, y, share, V, T, G, scratch = batch.loss, batch.y[0], batch.share[0], room.V, room.T, room.G, room.scratch
    ops, back, hops_back, tangents, sweep = course.ops, course.back, course.hops_back, course.tangents, course.sweep
    total, panel, gradient_ops, drive = room.W, room.panel, course.gradient_ops, course.drive
    for p in range(g.shape[0]):
        g[p] = 0
    turns = S.shape[0]  # one, if it is a sweep
    ticks = course.forward.shape[0] - 1
    loss = 0.0
    for c in range(first, last):
        lanes = lanes_of(S, batch.size, batch.per, c)
        run_ticks(course, w, codes, X, raw, c, S, D, U, lanes)
        loss += loss_chunk(code, S[ticks % turns, S.shape[1] - G.shape[0] :], y[c], share[c], G, scratch)
        if drive >= 0:
            for r in range(ops.start[drive], ops.start[drive + 1]):
                store(total, ops.rows[r], zeros(total))
        a = tangents.ptr[0]  # 0, but no constant: with one, all would be compiled once more
        # outputs, hops back, then the ticks that tangents begin at
        for h in range(hops_back + 1):
            k = ticks - h
            at = k % turns
            new, old = (0, 0) if sweep else (k & 1, (k + 1) & 1)
            if h == 0:
                _seed_outputs(codes, G, S[at], D[at], V[new], sweep)
            if h > 0 or sweep:
                hop(ops, back[k], w, V[old], V[new], sweep, V[new], codes, S[at], D[at], lanes)
            _tick_gradient(course, k, V[new], S[(k - 1) % turns], g, total, panel, lanes)
        while a < tangents.tick.shape[0]:
            m = tangents.tick[a]
            while a < tangents.tick.shape[0] and tangents.tick[a] == m:
                hops = tangents.ptr[a + 1] - tangents.ptr[a]
                half = push_tangent(ops, tangents, a, w, codes, S, D, T, hops - 1, lanes)
                v = _contracted(ops, tangents.chain[tangents.ptr[a + 1] - 1], w, T[half], V[(ticks - 1) & 1])
                store(V[2], tangents.neuron[a], v)
                a += 1
            _tick_gradient(course, m, V[2], S[m - 1], g, total, panel, lanes)
        if drive >= 0:
            correlate(gradient_ops, drive, total, S[0], g, panel, lanes)
    for h in range(gradient_ops.holes.shape[0]):
        if gradient_ops.holes[h] < g.shape[0]:
            g[gradient_ops.holes[h]] = 0
    restore(mode)
    return loss
