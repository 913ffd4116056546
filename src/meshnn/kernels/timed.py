"""Runs in time: states that begin where they are told to, outputs that are looked at after any tick.

A loss is asked for in one of two ways, for every sample by itself (`TimedBatch`):

* *at ticks*: E = sum over ticks k of share[k] loss(y_k, target_k), with y_k the outputs after tick k;
* of a *readout*: E = share loss(y, target) with y = sum over ticks k of readout[k] y_k.

A sample that ends early (`stop`) is quenched: its states are 0 from then on. Otherwise a net that grows without bounds
on what is filled up behind a short sequence would spoil every sum, 0 times infinity being no number.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import axpy, fma, larger, load, ones, store, sub, where_equal, where_same, width, zeros
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import clamp, lanes_of
from meshnn.kernels.losses import loss_chunk
from meshnn.kernels.pull import run_tick

__all__ = [
    "add_readout",
    "any_of",
    "begin",
    "loss_at",
    "one_tick",
    "read_loss",
    "timed_loss_part",
    "timed_outputs_part",
]


@jit_inner
def begin(batch, c, S):
    """The states of chunk c before the first tick, if they are given; the tick at which its first sample ends."""
    state, stop = batch.state, batch.stop
    L = width(S)
    if state.shape[0] > 0:
        for l in range(L):
            sample = min(c * L + l, state.shape[0] - 1)
            for j in range(state.shape[1]):
                S[0, j, l] = state[sample, j]
    first = batch.ticks
    if stop.shape[1] > 0:
        for l in range(L):
            first = min(first, int(stop[0, c, 0, l]))
    return first


@jit_inner
def one_tick(course, net, batch, c, k, S, D, U, lanes, first_stop):
    """Tick k of chunk c; S and D have room for all ticks, or for fewer, which take turns."""
    turns = S.shape[0]
    old, new = (k - 1) % turns, k % turns
    ops, q, codes = course.ops, course.forward[k], net.codes
    if course.clamps[k]:
        clamp(batch.X, batch.raw, k - 1, c, S[old])
    run_tick(ops, q, net.w, S[old], U, False, S[new], D[new], codes, lanes, False)
    if k > first_stop:
        stop, now = load(batch.stop[0, c], 0), axpy(zeros(S), S.dtype.type(k), ones(S))
        goes_on = where_same(larger(stop, now), stop, ones(S), zeros(S))
        for r in range(ops.start[q], ops.start[q + 1]):
            j = ops.rows[r]
            store(S[new], j, where_equal(goes_on, 0, zeros(S), load(S[new], j)))
            store(D[new], j, where_equal(goes_on, 0, zeros(S), load(D[new], j)))


@jit_inner
def any_of(row):
    """Whether anything in row 0 is not 0."""
    for l in range(width(row)):
        if row[0, l] != 0:
            return True
    return False


@jit_inner
def _of_counting(share, G):
    """Nothing where a sample does not count: what it holds may be no number."""
    row = load(share, 0)
    for o in range(G.shape[0]):
        store(G, o, where_equal(row, 0, sub(row, row), load(G, o)))


@jit_inner
def loss_at(batch, c, k, Y, G, scratch):
    """Loss of the outputs Y of chunk c after tick k; its gradient goes to G."""
    share = batch.share[k - 1, c]
    if not any_of(share):
        for o in range(G.shape[0]):
            store(G, o, zeros(G))
        return 0.0
    loss = loss_chunk(batch.loss, Y, batch.y[k - 1 if batch.y.shape[0] > 1 else 0, c], share, G, scratch)
    _of_counting(share, G)
    return loss


@jit_inner
def add_readout(batch, c, k, S, Y):
    """What tick k, whose states are S, adds to the outputs Y that are read."""
    readout = batch.readout[k - 1, c]
    if any_of(readout):
        first, row = S.shape[0] - Y.shape[0], load(readout, 0)
        for o in range(Y.shape[0]):
            store(Y, o, fma(load(Y, o), row, where_equal(row, 0, sub(row, row), load(S, first + o))))


@jit_inner
def read_loss(batch, c, Y, G, scratch):
    """Loss of the outputs that were read; its gradient by them goes to G."""
    loss = loss_chunk(batch.loss, Y, batch.y[0, c], batch.share[0, c], G, scratch)
    _of_counting(batch.share[0, c], G)
    return loss


@jit
def timed_loss_part(course, net, batch, room, first, last):
    """Sum of losses of the chunks first to last."""
    mode = flush_denormals()
    S, D, U = room.S, room.D, room.U
    G, Y, scratch, ticks = room.G, room.P, room.scratch, batch.ticks
    turns, first_output = S.shape[0], S.shape[1] - G.shape[0]
    loss = 0.0
    for c in range(first, last):
        first_stop = begin(batch, c, S)
        for o in range(Y.shape[0]):
            store(Y, o, zeros(Y))
        for k in range(1, ticks + 1):
            one_tick(course, net, batch, c, k, S, D, U, lanes_of(S, batch.size, batch.per, c), first_stop)
            if batch.readout.shape[0] > 0:
                add_readout(batch, c, k, S[k % turns], Y)
            else:
                loss += loss_at(batch, c, k, S[k % turns, first_output:], G, scratch)
        if batch.readout.shape[0] > 0:
            loss += read_loss(batch, c, Y, G, scratch)
    restore(mode)
    return loss


@jit_inner
def _copied(rows, L, out):
    """Rows (m, L) of samples, into out (some of them, m)."""
    for l in range(min(L, out.shape[0])):
        for j in range(out.shape[1]):
            out[l, j] = rows[j, l]


@jit
def timed_outputs_part(course, net, batch, room, first, last, out, whole, end, begins):
    """The last neurons after every tick, into out (ticks, batch, m); or after the last, if that is (1, batch, m).

    With `whole` all neurons, from before the first tick on: out is (ticks + 1, batch, n). The states of all neurons
    after the last tick go into `end` (batch, n), if it has samples. The slab begins with sample `begins`.
    """
    mode = flush_denormals()
    X, raw, S, D, U = batch.X, batch.raw, room.S, room.D, room.U
    turns, ticks, L, n = S.shape[0], batch.ticks, width(S), S.shape[1]
    top = n - out.shape[2]
    for c in range(first, last):
        low, high = begins + c * L, begins + min((c + 1) * L, batch.size)
        first_stop = begin(batch, c, S)
        if whole:
            clamp(X, raw, 0, c, S[0])
            _copied(S[0], L, out[0, low:high])
        for k in range(1, ticks + 1):
            one_tick(course, net, batch, c, k, S, D, U, lanes_of(S, batch.size, batch.per, c), first_stop)
            after = S[k % turns]
            if whole or (k == ticks and end.shape[0] > 0):
                clamp(X, raw, min(k, ticks - 1), c, after)  # the inputs of the last tick stay
            if whole:
                _copied(after, L, out[k, low:high])
            elif out.shape[0] > 1 or k == ticks:
                _copied(after[top:], L, out[k - 1 if out.shape[0] > 1 else 0, low:high])
        if end.shape[0] > 0:
            _copied(S[ticks % turns], L, end[low:high])
    restore(mode)
