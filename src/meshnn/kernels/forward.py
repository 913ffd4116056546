"""States: s_k = phi(s_{k-1} A) on the rows that a plan asks for, a chunk of samples at a time.

    S   (ticks + 1, n, L)   states; S[k, i] is the row of samples of neuron i after tick k
    D   (ticks + 1, n, L)   phi'(t_k)
    w   (entries,)          weights in the order of the plan's entries
    L   samples in a row; the last chunk of a batch is filled up with copies of its last sample

Functions whose names end in `_part` are the entry points; they run the chunks first to last and release the GIL.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import axpy, load, ones, relu, step, store, zeros
from meshnn.kernels.activations import activate_row
from meshnn.kernels.codes import IDENTITY, RELU

__all__ = ["clamp", "predict_part", "run_tick", "run_ticks", "states_part"]


@jit_inner
def clamp(X, k, begin, end, n_inputs, n_clamped, S):
    """Set the input rows of S to the samples begin to end of tick k (of tick 0 if X does not change with time)."""
    k = k if X.shape[0] > 1 else 0
    n = S.shape[1]
    count = end - begin
    for i in range(n_inputs):
        for l in range(count):
            S[i, l] = X[k, begin + l, i]
        for l in range(count, n):
            S[i, l] = S[i, count - 1]
    for i in range(n_inputs, n_clamped):  # the bias
        for l in range(n):
            S[i, l] = 1


@jit_inner
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
            store(D, j, ones(D))
        elif code == RELU:
            store(after, j, relu(t))
            store(D, j, step(t))
        else:
            store(after, j, t)
            activate_row(code, after, D, j)


@jit_inner
def run_ticks(ops, forward, w, codes, X, begin, end, n_inputs, n_clamped, S, D):
    """All ticks of one chunk."""
    for k in range(1, forward.shape[0]):
        clamp(X, k - 1, begin, end, n_inputs, n_clamped, S[k - 1])
        run_tick(ops, forward[k], w, S[k - 1], S[k], D[k], codes)


@jit
def predict_part(ops, forward, w, codes, X, begin, end, n_inputs, n_clamped, S, D, Y):
    """Outputs of the samples begin to end, into Y (batch, n_outputs). Two state buffers do: S and D are (2, n, L)."""
    L = S.shape[2]
    n_outputs = Y.shape[1]
    first_output = S.shape[1] - n_outputs
    ticks = forward.shape[0] - 1
    for b in range(begin, end, L):
        stop = min(b + L, end)
        for k in range(1, ticks + 1):
            old, new = (k - 1) & 1, k & 1
            clamp(X, k - 1, b, stop, n_inputs, n_clamped, S[old])
            run_tick(ops, forward[k], w, S[old], S[new], D[new], codes)
        for o in range(n_outputs):
            for l in range(stop - b):
                Y[b + l, o] = S[ticks & 1, first_output + o, l]


@jit
def states_part(ops, forward, w, codes, X, begin, end, n_inputs, n_clamped, S, D, out, offset):
    """States after every tick, into out (ticks + 1, batch, n), from sample `offset` on."""
    L = S.shape[2]
    n = S.shape[1]
    ticks = forward.shape[0] - 1
    for b in range(begin, end, L):
        stop = min(b + L, end)
        run_ticks(ops, forward, w, codes, X, b, stop, n_inputs, n_clamped, S, D)
        # what the next tick would read: inputs of the last tick stay
        clamp(X, ticks - 1, b, stop, n_inputs, n_clamped, S[ticks])
        for k in range(ticks + 1):
            for j in range(n):
                for l in range(stop - b):
                    out[k, offset + b + l, j] = S[k, j, l]
