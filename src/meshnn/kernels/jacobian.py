"""dy/dA per sample: sum over ticks m of s_{m-1}[i] F_{m,K}[j, o].

* factored: tangents run all the way to the outputs, so one tangent serves every output.
* adjoint: backprop from each output in turn.

Entries add to the number they are derived by, `ops.eid`: edges that share a parameter add up.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import fma, load, store, width, zeros
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import run_ticks, unpacked
from meshnn.kernels.gradient import push_tangent
from meshnn.kernels.pull import hop, slope

__all__ = ["jacobian_chunk", "jacobian_part", "spread"]


@jit_inner
def _spread_row(ops, r, v, j, S, C, base):
    """C[base + number] += v * s over the entries of row r: the derivative of one output by the in-edges of a neuron."""
    for p in range(ops.ptr[r], ops.ptr[r + 1]):
        e = base + ops.eid[p]
        store(C, e, fma(load(C, e), load(v, j), load(S, ops.col[p])))


@jit_inner
def spread(ops, q, V, S, C, base):
    """The same for all rows of list q."""
    for r in range(ops.start[q], ops.start[q + 1]):
        _spread_row(ops, r, V, ops.rows[r], S, C, base)


@jit_inner
def _one_hot(codes, S, D, V, n_outputs, o):
    """phi' of output o in row o of V, zero for the other outputs."""
    n = S.shape[0]
    for other in range(n_outputs):
        j = n - n_outputs + other
        if other == o:
            store(V, j, slope(codes[j], S, D, j))
        else:
            store(V, j, zeros(V))


@jit_inner
def jacobian_chunk(course, net, batch, c, room, n_outputs):
    """The Jacobian of chunk c, into C; the states of the chunk stay in S."""
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    ops, gradient, tangents, back, V, T, C = (
        course.ops,
        course.gradient,
        course.tangents,
        course.back,
        room.V,
        room.T,
        room.C,
    )
    n = S.shape[1]
    L = width(S)
    ticks = course.forward.shape[0] - 1
    count = C.shape[0] // n_outputs
    run_ticks(course, w, codes, X, raw, c, S, D, U, L)
    for e in range(n_outputs * count):
        store(C, e, zeros(C))
    if course.hops_back > 0:
        for o in range(n_outputs):
            _one_hot(codes, S[ticks], D[ticks], V[ticks & 1], n_outputs, o)
            spread(ops, gradient[ticks], V[ticks & 1], S[ticks - 1], C, o * count)
            for k in range(ticks - 1, 0, -1):
                old, new = V[(k + 1) & 1], V[k & 1]
                hop(ops, back[k], w, old, old, False, new, codes, S[k], D[k], L)
                spread(ops, gradient[k], V[k & 1], S[k - 1], C, o * count)
    else:
        q = gradient[ticks]
        for r in range(ops.start[q], ops.start[q + 1]):
            j = ops.rows[r]
            store(V[0], j, slope(codes[j], S[ticks], D[ticks], j))
            _spread_row(ops, r, V[0], j, S[ticks - 1], C, (j - (n - n_outputs)) * count)
        for a in range(tangents.tick.shape[0]):
            half = push_tangent(ops, tangents, a, w, codes, S, D, T, tangents.ptr[a + 1] - tangents.ptr[a], L)
            q = tangents.chain[tangents.ptr[a + 1] - 1]
            for r in range(ops.start[q], ops.start[q + 1]):
                j = ops.rows[r]
                base = (j - (n - n_outputs)) * count
                _spread_row(ops, tangents.row[a], T[half], j, S[tangents.tick[a] - 1], C, base)


@jit
def jacobian_part(course, net, batch, room, first, last, J):
    """Derivatives of each output for the chunks first to last, into J (batch, n_outputs, n_gradient)."""
    mode = flush_denormals()
    C = room.C
    L = width(C)
    n_outputs, count = J.shape[1], J.shape[2]
    for c in range(first, last):
        jacobian_chunk(course, net, batch, c, room, n_outputs)
        for o in range(n_outputs):
            for e in range(count):
                for l in range(min(L, J.shape[0] - c * L)):
                    J[c * L + l, o, e] = C[o * count + e, l]
    restore(mode)
