"""States: s_k = phi(s_{k-1} A) on the rows that a plan asks for, a chunk of samples at a time.

Functions whose names end in `_part` are entry points; they take the tuples of `tuples.py`, run the chunks first to last
of a batch and release the GIL.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline, jit_inner
from meshnn.kernels._row import load, store, width
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.pull import run_tick

__all__ = ["clamp", "lanes_of", "predict_part", "run_ticks", "states_part", "unpacked"]


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
def lanes_of(S, size, per, c):
    """How many samples of chunk c, of so many `per` chunk, tiles should compute: all of a row, or half."""
    whole = width(S)
    return whole if 2 * min(size - c * per, per) > whole else whole // 2


@jit_inline
def run_ticks(course, w, codes, X, raw, c, S, D, U, lanes):
    """All ticks of one chunk. S and D have room for all of them, or for fewer, which take turns.

    If the course has a list `drive`, what the clamped neurons give, which is the same at every tick, is computed before
    the first one, into U.
    """
    ops, forward, drive, clamps = course.ops, course.forward, course.drive, course.clamps
    turns = S.shape[0]
    driven = drive >= 0
    for k in range(0 if driven else 1, forward.shape[0]):
        old, new = max(k - 1, 0) % turns, k % turns
        if clamps[k]:
            clamp(X, raw, max(k - 1, 0), c, S[old])
        q, after = (drive, U) if k == 0 else (forward[k], S[new])  # one call: its code is long
        run_tick(ops, q, w, S[old], U, driven and k > 0, after, D[new], codes, lanes, k == 0)


@jit_inline
def unpacked(net, batch, room):
    """What states are made of. Taken out of the tuples once: in a loop every look into one would count references."""
    return net.w, net.codes, batch.X, batch.raw, room.S, room.D, room.U


@jit
def predict_part(course, net, batch, room, first, last, Y):
    """Outputs of the chunks first to last, into Y (batch, n_outputs)."""
    mode = flush_denormals()
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    L = width(S)
    n_outputs = Y.shape[1]
    first_output = S.shape[1] - n_outputs
    end = (course.forward.shape[0] - 1) % S.shape[0]
    for c in range(first, last):
        run_ticks(course, w, codes, X, raw, c, S, D, U, lanes_of(S, Y.shape[0], L, c))
        for l in range(min(L, Y.shape[0] - c * L)):
            for o in range(n_outputs):
                Y[c * L + l, o] = S[end, first_output + o, l]
    restore(mode)


@jit
def states_part(course, net, batch, room, first, last, out, begin, end):
    """States after every tick, into the samples begin to end of out (ticks + 1, batch, n)."""
    mode = flush_denormals()
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    L = width(S)
    ticks = course.forward.shape[0] - 1
    for c in range(first, last):
        run_ticks(course, w, codes, X, raw, c, S, D, U, L)
        clamp(X, raw, ticks - 1, c, S[ticks])  # the inputs of the last tick stay
        for k in range(ticks + 1):
            for l in range(min(L, end - begin - c * L)):
                for j in range(S.shape[1]):
                    out[k, begin + c * L + l, j] = S[k, j, l]
    restore(mode)
