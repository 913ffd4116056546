"""The gradient of a loss: the factored forward form and backprop, which are two ends of one scale.

    F_{m,k}[j, o]   influence of the pre-activation of j at tick m on the state of o after tick k
    v_m[j]          sum over outputs o of F_{m,K}[j, o] dE/dy[o]
    dE/dA[i, j]     sum over ticks m of s_{m-1}[i] v_m[j]

`v_K` is the gradient by the outputs times phi', and the readout gives v_{K-1}. From there

* factored: every earlier (m, j) is a *tangent*: F_{m,.}[j, .] starts as phi' at (m, j) and is pulled forward, tick by
  tick, over the lists of its chain; the last hop is contracted with v_{K-1}. Nothing runs backward through time.
* adjoint: v_m is pulled back from v_{m+1} over the transposed lists (`hops_back` = ticks - 1). No tangents.

Up to two ticks both are the same computation.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline
from meshnn.kernels._row import axpy, dot, dot4, fma, load, mul, store, zeros
from meshnn.kernels.forward import run_ticks, slope, unpacked
from meshnn.kernels.losses import loss_chunk

__all__ = ["correlate_row", "gradient_part", "pull_back", "push_tangent"]


@jit_inline
def correlate_row(ops, r, V, j, S, g):
    """g[p] += v . s over the entries p of row r: row j of V against the states its in-edges read."""
    v = load(V, j)
    p = ops.ptr[r]
    end = ops.ptr[r + 1]
    while p + 4 <= end:
        dot4(
            g,
            p,
            v,
            load(S, ops.col[p]),
            load(S, ops.col[p + 1]),
            load(S, ops.col[p + 2]),
            load(S, ops.col[p + 3]),
        )
        p += 4
    while p < end:
        g[p] += dot(v, load(S, ops.col[p]))
        p += 1


@jit_inline
def correlate(ops, q, V, S, g):
    """The gradient of one tick: all rows of list q."""
    for r in range(ops.start[q], ops.start[q + 1]):
        correlate_row(ops, r, V, ops.rows[r], S, g)


@jit_inline
def pull_back(ops, q, w, codes, after, S, D, before):
    """One transposed hop: before[i] = phi'[i] * sum over the neurons j that i feeds of w[i, j] after[j]."""
    for r in range(ops.start[q], ops.start[q + 1]):
        i = ops.rows[r]
        v = zeros(after)
        for p in range(ops.ptr[r], ops.ptr[r + 1]):
            v = axpy(v, w[p], load(after, ops.col[p]))
        store(before, i, mul(v, slope(codes[i], S, D, i)))


@jit_inline
def push_tangent(ops, tangents, a, w, codes, S, D, T, hops):
    """Carry tangent a through the first `hops` lists of its chain; returns which half of T holds it."""
    m = tangents.tick[a]
    j = tangents.neuron[a]
    half = 0
    store(T[half], j, slope(codes[j], S[m], D[m], j))
    for h in range(hops):
        q = tangents.chain[tangents.ptr[a] + h]
        old, new, k = T[half], T[1 - half], m + 1 + h
        for r in range(ops.start[q], ops.start[q + 1]):
            o = ops.rows[r]
            f = zeros(old)
            for p in range(ops.ptr[r], ops.ptr[r + 1]):
                f = axpy(f, w[p], load(old, ops.col[p]))
            store(new, o, mul(f, slope(codes[o], S[k], D[k], o)))
        half = 1 - half
    return half


@jit
def gradient_part(course, net, batch, room, first, last, g):
    """Sum of losses of the chunks first to last; g becomes their gradient, in the order of the plan's entries."""
    ops, forward, w, codes, X, raw, S, D = unpacked(course, net, batch, room)
    code, y, share, V, T, G, scratch = batch.loss, batch.y[0], batch.share[0], room.V, room.T, room.G, room.scratch
    back, hops_back, gradient_ops, gradient = course.back, course.hops_back, course.gradient_ops, course.gradient
    tangents = course.tangents
    for p in range(g.shape[0]):
        g[p] = 0
    ticks = forward.shape[0] - 1
    n_outputs = G.shape[0]
    first_output = S.shape[1] - n_outputs
    loss = 0.0
    for c in range(first, last):
        run_ticks(ops, forward, w, codes, X, raw, c, S, D)
        loss += loss_chunk(code, S[ticks, first_output:], y[c], share[c], G, scratch)
        for o in range(n_outputs):
            j = first_output + o
            store(V[ticks & 1], j, mul(load(G, o), slope(codes[j], S[ticks], D[ticks], j)))
        correlate(gradient_ops, gradient[ticks], V[ticks & 1], S[ticks - 1], g)
        for k in range(ticks - 1, ticks - 1 - hops_back, -1):
            pull_back(ops, back[k], w, codes, V[(k + 1) & 1], S[k], D[k], V[k & 1])
            correlate(gradient_ops, gradient[k], V[k & 1], S[k - 1], g)
        readout = V[(ticks - 1) & 1]
        for a in range(tangents.tick.shape[0]):
            hops = tangents.ptr[a + 1] - tangents.ptr[a]
            half = push_tangent(ops, tangents, a, w, codes, S, D, T, hops - 1)
            q = tangents.chain[tangents.ptr[a + 1] - 1]
            v = zeros(readout)
            for r in range(ops.start[q], ops.start[q + 1]):
                f = zeros(readout)
                for p in range(ops.ptr[r], ops.ptr[r + 1]):
                    f = axpy(f, w[p], load(T[half], ops.col[p]))
                v = fma(v, f, load(readout, ops.rows[r]))
            store(T[1 - half], 0, v)
            correlate_row(gradient_ops, tangents.row[a], T[1 - half], 0, S[tangents.tick[a] - 1], g)
    return loss
