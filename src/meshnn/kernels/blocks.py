"""Column blocks: the influence of every edge, carried along with the states. Memory does not grow with time.

All in-edges of neuron j reach the same neurons, so they share the lists of their block. With s the state before tick k

    J_e[o] <- phi'(t_k)[o] * (sum over h of J_e[h] A[h, o])  +  phi'(t_k)[j] s[i] at o = j        for e = (i, j)

The rows of J_e are kept compactly, in the order of the list of the tick; two halves of the store take turns.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import add, axpy, dot, fma, load, mul, ones, store, width, zeros
from meshnn.kernels.correlate import correlate
from meshnn.kernels.flush import flush_denormals, restore
from meshnn.kernels.forward import clamp, unpacked
from meshnn.kernels.losses import loss_chunk
from meshnn.kernels.losses.diagonal import counted
from meshnn.kernels.pull import run_tick, slope
from meshnn.kernels.timed import add_readout, begin, loss_at, one_tick, read_loss

__all__ = ["blocks_gradient_part", "blocks_jacobian_part", "timed_blocks_part"]


@jit_inner
def _advance(block_ops, blocks, w, codes, k, before, after, D, store_):
    """Carry all blocks from tick k - 1 to tick k."""
    for b in range(blocks.neuron.shape[0]):
        q = blocks.chain[b, k]
        if q < 0:
            continue
        j = blocks.neuron[b]
        room = blocks.room[b]
        first = block_ops.start[q]
        last = block_ops.start[q + 1]
        for e in range(blocks.first[b], blocks.first[b + 1]):
            base = blocks.offset[b] + 2 * room * (e - blocks.first[b])
            old = base + room * ((k - 1) & 1)
            new = base + room * (k & 1)
            for r in range(first, last):
                o = block_ops.rows[r]
                f = zeros(store_)
                for p in range(block_ops.ptr[r], block_ops.ptr[r + 1]):
                    f = axpy(f, w[p], load(store_, old + block_ops.col[p]))
                if o == j and blocks.birth[e] < k:
                    f = axpy(f, store_.dtype.type(1), load(before, blocks.src[e]))
                store(store_, new + (r - first), mul(f, slope(codes[o], after, D, o)))


@jit_inner
def _run(course, net, batch, c, room, stop):
    """Ticks 1 to stop of states and blocks, in two alternating buffers."""
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    ops, forward, block_ops, blocks, store_ = course.ops, course.forward, course.block_ops, course.blocks, room.store
    of_blocks = w[ops.eid.shape[0] :]
    for k in range(1, stop + 1):
        before, after = S[(k - 1) & 1], S[k & 1]
        clamp(X, raw, k - 1, c, before)
        run_tick(ops, forward[k], w, before, U, False, after, D[k & 1], codes, width(S), False)
        _advance(block_ops, blocks, of_blocks, codes, k, before, after, D[k & 1], store_)


@jit
def blocks_gradient_part(course, net, batch, room, first, last, g):
    """Loss of the chunks first to last; g gets the gradient of the last tick, then that of the edges of the blocks."""
    mode = flush_denormals()
    w, codes, X, raw, S, D, U = unpacked(net, batch, room)
    ops, forward, block_ops, blocks = course.ops, course.forward, course.block_ops, course.blocks
    gradient_ops, gradient, panel = course.gradient_ops, course.gradient, room.panel
    V, G, scratch, store_ = room.V, room.G, room.scratch, room.store
    code, y, share = batch.loss, batch.y[0], batch.share[0]
    for p in range(g.shape[0]):
        g[p] = 0
    of_blocks = g[g.shape[0] - blocks.src.shape[0] :]
    ticks = forward.shape[0] - 1
    n_outputs = G.shape[0]
    first_output = S.shape[1] - n_outputs
    loss = 0.0
    new, old = ticks & 1, (ticks - 1) & 1
    for c in range(first, last):
        _run(course, net, batch, c, room, ticks - 1)
        clamp(X, raw, ticks - 1, c, S[old])
        run_tick(ops, forward[ticks], w, S[old], U, False, S[new], D[new], codes, width(S), False)
        loss += loss_chunk(code, S[new, first_output:], y[c], share[c], G, scratch)
        for o in range(n_outputs):
            j = first_output + o
            store(V[0], j, mul(load(G, o), slope(codes[j], S[new], D[new], j)))
        correlate(gradient_ops, gradient[ticks], V[0], S[old], g, panel, width(S))
        if ticks == 1:
            continue
        # the readout: dE/ds before the last tick, without phi', which the blocks carry already
        q = course.back[ticks - 1]
        for r in range(ops.start[q], ops.start[q + 1]):
            v = zeros(V[0])
            for p in range(ops.ptr[r], ops.ptr[r + 1]):
                v = axpy(v, w[p], load(V[0], ops.col[p]))
            store(V[1], ops.rows[r], v)
        for b in range(blocks.neuron.shape[0]):
            q = blocks.chain[b, ticks - 1]
            if q < 0:
                continue
            rows = blocks.room[b]
            top = block_ops.start[q]
            for e in range(blocks.first[b], blocks.first[b + 1]):
                at = blocks.offset[b] + 2 * rows * (e - blocks.first[b]) + rows * old
                v = zeros(V[0])
                for r in range(top, block_ops.start[q + 1]):
                    v = fma(v, load(store_, at + (r - top)), load(V[1], block_ops.rows[r]))
                of_blocks[e] += dot(v, ones(V[0]))
    for h in range(gradient_ops.holes.shape[0]):
        if gradient_ops.holes[h] < g.shape[0] - blocks.src.shape[0]:
            g[gradient_ops.holes[h]] = 0
    restore(mode)
    return loss


@jit
def blocks_jacobian_part(course, net, batch, room, first, last, J):
    """Derivatives of each output, into J (batch, n_outputs, n_gradient), which comes zeroed."""
    mode = flush_denormals()
    block_ops, blocks, S, store_ = course.block_ops, course.blocks, room.S, room.store
    L = width(S)
    first_output = S.shape[1] - J.shape[1]
    ticks = course.forward.shape[0] - 1
    for c in range(first, last):
        _run(course, net, batch, c, room, ticks)
        for b in range(blocks.neuron.shape[0]):
            q = blocks.chain[b, ticks]
            if q < 0:
                continue
            rows = blocks.room[b]
            top = block_ops.start[q]
            for e in range(blocks.first[b], blocks.first[b + 1]):
                at = blocks.offset[b] + 2 * rows * (e - blocks.first[b]) + rows * (ticks & 1)
                for r in range(top, block_ops.start[q + 1]):
                    o = block_ops.rows[r] - first_output
                    for l in range(min(L, J.shape[0] - c * L)):
                        J[c * L + l, o, blocks.eid[e]] += store_[at + (r - top), l]
    restore(mode)


@jit_inner
def _contract(block_ops, blocks, k, G, first_output, store_, of_blocks):
    """Add what a look after tick k gives to the gradient of the edges of the blocks: G is dE/ds of the outputs."""
    for b in range(blocks.neuron.shape[0]):
        q = blocks.chain[b, k]
        if q < 0:
            continue
        room, top, end = blocks.room[b], np.int64(block_ops.start[q]), np.int64(block_ops.start[q + 1])
        low = end  # rows come in order, outputs last
        while low > top and block_ops.rows[low - 1] >= first_output:
            low -= 1
        if low == end:
            continue
        for e in range(blocks.first[b], blocks.first[b + 1]):
            at = blocks.offset[b] + 2 * room * (e - blocks.first[b]) + room * (k & 1)
            v = zeros(G)
            for r in range(low, end):
                looked = load(G, np.int64(block_ops.rows[r]) - first_output)
                v = add(v, counted(looked, mul(looked, load(store_, at + (r - top)))))
            of_blocks[e] += dot(v, ones(G))


@jit
def timed_blocks_part(course, net, batch, room, first, last, g):
    """The same for a loss at ticks or of a readout: blocks are contracted wherever outputs are looked at."""
    mode = flush_denormals()
    w, codes, S, D, U = net.w, net.codes, room.S, room.D, room.U
    block_ops, blocks, store_, ticks = course.block_ops, course.blocks, room.store, batch.ticks
    G, Y, looked, scratch = room.G, room.P, room.V[0], room.scratch
    for p in range(g.shape[0]):
        g[p] = 0
    of_blocks = g[g.shape[0] - blocks.src.shape[0] :]
    weights = w[course.ops.eid.shape[0] :]
    outputs, reads = G.shape[0], batch.readout.shape[0] > 0
    first_output = S.shape[1] - outputs
    loss = 0.0
    for c in range(first, last):
        if reads:  # what is read is known after the last tick: states run ahead once
            first_stop = begin(batch, c, S)
            for o in range(outputs):
                store(Y, o, zeros(Y))
            for k in range(1, ticks + 1):
                one_tick(course, net, batch, c, k, S, D, U, width(S), first_stop)
                add_readout(batch, c, k, S[k & 1], Y)
            loss += read_loss(batch, c, Y, G, scratch)
        first_stop = begin(batch, c, S)
        for k in range(1, ticks + 1):
            one_tick(course, net, batch, c, k, S, D, U, width(S), first_stop)
            _advance(block_ops, blocks, weights, codes, k, S[(k - 1) & 1], S[k & 1], D[k & 1], store_)
            if reads:
                row = load(batch.readout[k - 1, c], 0)
                for o in range(outputs):
                    store(looked, o, mul(row, load(G, o)))
                _contract(block_ops, blocks, k, looked, first_output, store_, of_blocks)
            else:
                loss += loss_at(batch, c, k, S[k & 1, first_output:], G, scratch)
                _contract(block_ops, blocks, k, G, first_output, store_, of_blocks)
    restore(mode)
    return loss
