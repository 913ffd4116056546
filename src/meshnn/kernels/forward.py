"""States: s_k = phi(s_{k-1} A) on the rows that a plan asks for, a chunk of samples at a time.

    L   samples in a row; a chunk is L samples, the last one of a batch is filled up with copies of its last sample
    X   (T, chunks, n_inputs, L)   packed inputs; T is 1 if they do not change from tick to tick, else ticks
    S   (ticks + 1, n, L)   states; S[k, i] is the row of samples of neuron i after tick k
    D   (ticks + 1, n, L)   phi'(t_k), where the activation is neither identity nor relu: read it with `slope`
    w   (entries,)          weights in the order of the plan's entries

The row of the bias neuron is set when the buffers are made and never written. Functions whose names end in `_part`
are entry points; they run the chunks first to last and release the GIL.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline
from meshnn.kernels._row import axpy, load, ones, relu, step, store, width, zeros
from meshnn.kernels.activations import activate_row
from meshnn.kernels.codes import IDENTITY, RELU

__all__ = ["clamp", "predict_part", "run_tick", "run_ticks", "run_two", "slope", "states_part"]


@jit_inline
def clamp(X, k, c, S):
    """Set the input rows of S to chunk c of tick k."""
    x = X[k if X.shape[0] > 1 else 0, c]
    for i in range(x.shape[0]):
        store(S, i, load(x, i))


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
def run_ticks(ops, forward, w, codes, X, c, S, D):
    """All ticks of one chunk."""
    for k in range(1, forward.shape[0]):
        clamp(X, k - 1, c, S[k - 1])
        run_tick(ops, forward[k], w, S[k - 1], S[k], D[k], codes)


@jit_inline
def run_two(ops, forward, w, codes, X, c, S, D):
    """All ticks of one chunk where nobody asks for the earlier states: S and D are (2, n, L)."""
    for k in range(1, forward.shape[0]):
        old, new = (k - 1) & 1, k & 1
        clamp(X, k - 1, c, S[old])
        run_tick(ops, forward[k], w, S[old], S[new], D[new], codes)


@jit
def predict_part(ops, forward, w, codes, X, first, last, S, D, Y):
    """Outputs of the chunks first to last, into Y (batch, n_outputs). Two state buffers do: S and D are (2, n, L)."""
    L = width(S)
    n_outputs = Y.shape[1]
    first_output = S.shape[1] - n_outputs
    ticks = forward.shape[0] - 1
    for c in range(first, last):
        run_two(ops, forward, w, codes, X, c, S, D)
        for l in range(min(L, Y.shape[0] - c * L)):
            for o in range(n_outputs):
                Y[c * L + l, o] = S[ticks & 1, first_output + o, l]


@jit
def states_part(ops, forward, w, codes, X, first, last, S, D, out, begin, end):
    """States after every tick, into the samples begin to end of out (ticks + 1, batch, n)."""
    L = width(S)
    ticks = forward.shape[0] - 1
    for c in range(first, last):
        run_ticks(ops, forward, w, codes, X, c, S, D)
        clamp(X, ticks - 1, c, S[ticks])  # the inputs of the last tick stay
        for k in range(ticks + 1):
            for l in range(min(L, end - begin - c * L)):
                for j in range(S.shape[1]):
                    out[k, begin + c * L + l, j] = S[k, j, l]
