"""A net as a layer among others: outputs from inputs, and dE/dx and dE/dA from dE/dy.

    G            (n_outputs, L)   dE/dy, handed in
    v_m[j]       dE/dt of neuron j at tick m, by pulling back as in `gradient.py`
    dE/dA[i, j]  sum over ticks m of s_{m-1}[i] v_m[j]
    dE/dx[i]     sum over ticks m and edges (i, j) of A[i, j] v_m[j]: inputs are held, so v is added up over the ticks
                 first, into `total`, and pulled over the edges that leave inputs once

Samples, weights, outputs and gradients lie in the memory of another library and are handed over by address: values
(n_values,), X and dX (batch, n_inputs), Y and G (batch, n_outputs), all C-contiguous and of the dtype of the room.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inline, jit_inner
from meshnn.kernels._row import add, axpy, load, mul, placed, store, width, zeros
from meshnn.kernels.correlate import correlate
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import lanes_of, run_ticks
from meshnn.kernels.packing import pack_chunk
from meshnn.kernels.pull import hop, slope
from meshnn.kernels.steps import give, read_weights

__all__ = ["layer_back_part", "layer_part"]

#: What is asked for: dE/dA, dE/dx; and whether the room holds the states of the one chunk already.
WEIGHTS, INPUTS, KEPT = 1, 2, 4


@jit_inner
def _states(course, desk, room, given, c, lanes):
    """The states of chunk c of the samples given (batch, n_inputs)."""
    L, packed = width(room.S), desk.X
    pack_chunk(given, c * L, min(L, given.shape[0] - c * L), packed[0, 0], True)
    run_ticks(course, desk.w, desk.codes, packed, desk.raw, 0, room.S, room.D, room.U, lanes)


@jit_inner
def _unpack(rows, c, out):
    """Rows (m, L) into the samples of chunk c of out (batch, m)."""
    L = width(rows)
    for l in range(min(L, out.shape[0] - c * L)):
        for i in range(out.shape[1]):
            out[c * L + l, i] = rows[i, l]


@jit
def layer_part(course, desk, sheet, room, first, last, size, values, X, Y):
    """Outputs of the chunks first to last of so many samples, into Y."""
    mode = flush_denormals()
    S, w = room.S, desk.w
    given, out = placed(S, X, size, desk.X.shape[2]), placed(S, Y, size, sheet.n_outputs)
    read_weights(placed(S, values, 1, sheet.n_values)[0], sheet.reads, sheet.read_runs, course.ops.holes, w, 0, len(w))
    end = (course.forward.shape[0] - 1) % S.shape[0]
    for c in range(first, last):
        _states(course, desk, room, given, c, lanes_of(S, size, width(S), c))
        _unpack(S[end, S.shape[1] - sheet.n_outputs :], c, out)
    restore(mode)


@jit_inner
def _seed(codes, G, S, D, V, whole):
    """dE/dt of the outputs; dE/ds, and 0 of all other neurons, where `whole` neurons are still to be pulled."""
    first = V.shape[0] - G.shape[0]
    if whole:
        for j in range(first):
            store(V, j, zeros(V))
    for o in range(G.shape[0]):
        j = first + o
        store(V, j, load(G, o) if whole else mul(load(G, o), slope(codes[j], S, D, j)))


@jit_inline
def _count(ops, q, V, total):
    """Add the rows of list q up."""
    rows = ops.rows
    for r in range(ops.start[q], ops.start[q + 1]):
        j = rows[r]
        store(total, j, add(load(total, j), load(V, j)))


@jit_inner
def _back(course, desk, room, g, asked, lanes):
    """Pull dE/dy of a chunk back: g and `total` gather what its ticks give."""
    ops, back, hops_back, sweep, gradient = course.ops, course.back, course.hops_back, course.sweep, course.gradient
    w, codes, total, S, D, V, G, panel = desk.w, desk.codes, desk.total, room.S, room.D, room.V, room.G, room.panel
    turns, ticks, drive = S.shape[0], course.forward.shape[0] - 1, course.drive
    for j in range(total.shape[0]):
        store(total, j, zeros(total))
    for h in range(hops_back + 1):
        k = ticks - h
        at = k % turns
        new, old = (0, 0) if sweep else (k & 1, (k + 1) & 1)
        if h == 0:
            _seed(codes, G, S[at], D[at], V[new], sweep)
        if h > 0 or sweep:
            hop(ops, back[k], w, V[old], V[new], sweep, V[new], codes, S[at], D[at], lanes)
        if drive >= 0 or asked & INPUTS:
            _count(ops, gradient[k], V[new], total)
        if asked & WEIGHTS:
            correlate(ops, gradient[k], V[new], S[(k - 1) % turns], g, panel, lanes)
    if drive >= 0 and asked & WEIGHTS:
        correlate(ops, drive, total, S[0], g, panel, lanes)


@jit_inner
def _leave(sheet, values, total, rows):
    """dE/dx of a chunk: what the edges that leave each input give."""
    ptr, dst, number = sheet.ptr, sheet.dst, sheet.number
    for i in range(rows.shape[0]):
        t = zeros(rows)
        for p in range(ptr[i], ptr[i + 1]):
            t = axpy(t, values[number[p]], load(total, dst[p]))
        store(rows, i, t)


@jit
def layer_back_part(course, desk, sheet, room, first, last, size, asked, values, X, G, grad, dX):
    """Gradients of the chunks first to last: grad (n_values,) is set to those by the values, dX to those by inputs."""
    mode = flush_denormals()
    S, w, g, rows = room.S, desk.w, desk.g, desk.X[0, 0]
    L, n_values = width(S), sheet.n_values
    given, slopes = placed(S, X, size, rows.shape[0]), placed(S, G, size, sheet.n_outputs)
    weights, out = placed(S, values, 1, n_values)[0], placed(S, dX, size, rows.shape[0])
    total = placed(S, grad, 1, n_values if asked & WEIGHTS else 0)[0]
    straight = sheet.give_runs.shape[0] == 0
    if straight:
        g = total
    for p in range(g.shape[0]):
        g[p] = 0
    if not asked & KEPT:
        read_weights(weights, sheet.reads, sheet.read_runs, course.ops.holes, w, 0, len(w))
    for c in range(first, last):
        lanes = lanes_of(S, size, L, c)
        if not asked & KEPT:
            _states(course, desk, room, given, c, lanes)
        pack_chunk(slopes, c * L, min(L, size - c * L), room.G, False)
        _back(course, desk, room, g, asked, lanes)
        if asked & INPUTS:
            _leave(sheet, weights, desk.total, rows)
            _unpack(rows, c, out)
    if asked & WEIGHTS:
        holes = course.ops.holes
        for h in range(holes.shape[0]):
            if holes[h] < g.shape[0]:
                g[holes[h]] = 0
        if not straight:
            for e in range(n_values):
                total[e] = 0
            give(g, sheet.gives, sheet.give_runs, total)
    restore(mode)
