"""States: s_k = phi(s_{k-1} A) on the rows that a plan asks for, a chunk of samples at a time.

Functions whose names end in `_part` are entry points; they take the tuples of `tuples.py`, run the chunks first to last
of a batch and release the GIL.
"""

from __future__ import annotations

from meshnn.codes import IDENTITY, RELU
from meshnn.kernels._jit import jit, jit_inline, jit_inner
from meshnn.kernels._row import axpy, load, ones, relu, step, store, width, zeros
from meshnn.kernels.activations import activate_row

__all__ = ["clamp", "predict_part", "run_tick", "run_ticks", "run_two", "slope", "states_part", "unpacked"]


@jit_inner
def _pack(x, c, S):
    """Chunk c of the samples x (batch, n_inputs) into the first rows of S."""
    last = x.shape[0] - 1
    for l in range(width(S)):
        for i in range(x.shape[1]):
            S[i, l] = x[min(c * width(S) + l, last), i]


@jit_inline
def clamp(X, raw, k, c, S):
    """Set the input rows of S to chunk c of tick k."""
    if X.shape[1] > 0:
        x = X[k if X.shape[0] > 1 else 0, c]
        for i in range(x.shape[0]):
            store(S, i, load(x, i))
    else:  # a packed copy of a long sequence of few samples would be many times as large as the sequence
        _pack(raw[k], c, S)


@jit_inline
def run_tick(ops, q, w, before, after, D, codes):
    """One tick over list q: rows of `after` become phi of the weighted sums of rows of `before`."""
    for r in range(ops.start[q], ops.start[q + 1]):
        j = ops.rows[r]
        t = zeros(before)
        for p in range(ops.ptr[r], ops.ptr[r + 1]):
            t = axpy(t, w[p], load(before, ops.col[p]))
        code = codes[j]
        if code == IDENTITY:
            store(after, j, t)
        elif code == RELU:
            store(after, j, relu(t))
        else:
            store(after, j, t)
            activate_row(code, after, D, j)


@jit_inline
def slope(code, S, D, j):
    """phi'(t) of row j. Of identity and relu it follows from the state, so it is not stored."""
    if code == IDENTITY:
        return ones(S)
    if code == RELU:
        return step(load(S, j))
    return load(D, j)


@jit_inline
def run_ticks(ops, forward, w, codes, X, raw, c, S, D):
    """All ticks of one chunk."""
    for k in range(1, forward.shape[0]):
        clamp(X, raw, k - 1, c, S[k - 1])
        run_tick(ops, forward[k], w, S[k - 1], S[k], D[k], codes)


@jit_inline
def run_two(ops, forward, w, codes, X, raw, c, S, D):
    """All ticks of one chunk where nobody asks for the earlier states: S and D are (2, n, L)."""
    for k in range(1, forward.shape[0]):
        old, new = (k - 1) & 1, k & 1
        clamp(X, raw, k - 1, c, S[old])
        run_tick(ops, forward[k], w, S[old], S[new], D[new], codes)


@jit_inline
def unpacked(course, net, batch, room):
    """What states are made of. Taken out of the tuples once: in a loop every look into one would count references."""
    return course.ops, course.forward, net.w, net.codes, batch.X, batch.raw, room.S, room.D


@jit
def predict_part(course, net, batch, room, first, last, Y):
    """Outputs of the chunks first to last, into Y (batch, n_outputs). Two state buffers do: S and D are (2, n, L)."""
    ops, forward, w, codes, X, raw, S, D = unpacked(course, net, batch, room)
    L = width(S)
    n_outputs = Y.shape[1]
    first_output = S.shape[1] - n_outputs
    ticks = course.forward.shape[0] - 1
    for c in range(first, last):
        run_two(ops, forward, w, codes, X, raw, c, S, D)
        for l in range(min(L, Y.shape[0] - c * L)):
            for o in range(n_outputs):
                Y[c * L + l, o] = S[ticks & 1, first_output + o, l]


@jit
def states_part(course, net, batch, room, first, last, out, begin, end):
    """States after every tick, into the samples begin to end of out (ticks + 1, batch, n)."""
    ops, forward, w, codes, X, raw, S, D = unpacked(course, net, batch, room)
    L = width(S)
    ticks = forward.shape[0] - 1
    for c in range(first, last):
        run_ticks(ops, forward, w, codes, X, raw, c, S, D)
        clamp(X, raw, ticks - 1, c, S[ticks])  # the inputs of the last tick stay
        for k in range(ticks + 1):
            for l in range(min(L, end - begin - c * L)):
                for j in range(S.shape[1]):
                    out[k, begin + c * L + l, j] = S[k, j, l]
