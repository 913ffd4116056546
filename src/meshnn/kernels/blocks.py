"""Column blocks: the influence of every edge, carried along with the states. Memory does not grow with time.

All in-edges of neuron j reach the same neurons, so they share the lists of their block. With s the state before tick k

    J_e[o] <- phi'(t_k)[o] * (sum over h of J_e[h] A[h, o])  +  phi'(t_k)[j] s[i] at o = j        for e = (i, j)

The rows of J_e are kept compactly, in the order of the list of the tick; two halves of the store take turns.
"""

from __future__ import annotations

from meshnn.kernels._jit import jit, jit_inner
from meshnn.kernels._row import axpy, dot, load, mul, store, zeros
from meshnn.kernels.forward import clamp, run_tick
from meshnn.kernels.gradient import correlate
from meshnn.kernels.losses import loss_chunk

__all__ = ["blocks_gradient_part", "blocks_jacobian_part"]


@jit_inner
def _advance(block_ops, blocks, w, k, before, D, store_):
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
                store(store_, new + (r - first), mul(f, load(D, o)))


@jit_inner
def _run(ops, forward, w, codes, block_ops, blocks, bw, X, begin, end, n_inputs, n_clamped, S, D, store_, stop):
    """Ticks 1 to stop of states and blocks, in two alternating buffers."""
    for k in range(1, stop + 1):
        before, after = S[(k - 1) & 1], S[k & 1]
        clamp(X, k - 1, begin, end, n_inputs, n_clamped, before)
        run_tick(ops, forward[k], w, before, after, D[k & 1], codes)
        _advance(block_ops, blocks, bw, k, before, D[k & 1], store_)


@jit
def blocks_gradient_part(
    ops, forward, back, gradient_ops, gradient, block_ops, blocks, w, bw, codes,
    X, labels, targets, share, loss_code, begin, end, n_inputs, n_clamped, S, D, V, G, scratch, store_, g, ge,
):  # fmt: skip
    """Loss of the samples begin to end; g gets the gradient of the last tick, ge that of the edges of the blocks."""
    for p in range(g.shape[0]):
        g[p] = 0
    for e in range(ge.shape[0]):
        ge[e] = 0
    L = S.shape[2]
    ticks = forward.shape[0] - 1
    n_outputs = G.shape[0]
    first_output = S.shape[1] - n_outputs
    loss = 0.0
    last, before_last = ticks & 1, (ticks - 1) & 1
    for b in range(begin, end, L):
        end_chunk = min(b + L, end)
        _run(
            ops, forward, w, codes, block_ops, blocks, bw, X, b, end_chunk, n_inputs, n_clamped, S, D, store_, ticks - 1
        )  # fmt: skip
        clamp(X, ticks - 1, b, end_chunk, n_inputs, n_clamped, S[before_last])
        run_tick(ops, forward[ticks], w, S[before_last], S[last], D[last], codes)
        loss += loss_chunk(
            loss_code, S[last], first_output, labels, targets, share, b, end_chunk, G, scratch[0], scratch[1]
        )
        for o in range(n_outputs):
            j = first_output + o
            store(V[0], j, mul(load(G, o), load(D[last], j)))
        correlate(gradient_ops, gradient[ticks], V[0], S[before_last], g)
        if ticks > 1:
            # the readout: dE/ds before the last tick, without phi', which the blocks carry already
            q = back[ticks - 1]
            for r in range(ops.start[q], ops.start[q + 1]):
                v = zeros(V[0])
                for p in range(ops.ptr[r], ops.ptr[r + 1]):
                    v = axpy(v, w[p], load(V[0], ops.col[p]))
                store(V[1], ops.rows[r], v)
            for c in range(blocks.neuron.shape[0]):
                q = blocks.chain[c, ticks - 1]
                if q < 0:
                    continue
                room = blocks.room[c]
                first = block_ops.start[q]
                for e in range(blocks.first[c], blocks.first[c + 1]):
                    at = blocks.offset[c] + 2 * room * (e - blocks.first[c]) + room * before_last
                    for r in range(first, block_ops.start[q + 1]):
                        ge[e] += dot(load(store_, at + (r - first)), load(V[1], block_ops.rows[r]))
    return loss


@jit
def blocks_jacobian_part(
    ops, forward, block_ops, blocks, w, bw, codes,
    X, begin, end, n_inputs, n_clamped, S, D, store_, J,
):  # fmt: skip
    """Derivatives of each output by each edge, into J (batch, n_outputs, n_edges), which comes zeroed."""
    L = S.shape[2]
    n_outputs = J.shape[1]
    first_output = S.shape[1] - n_outputs
    ticks = forward.shape[0] - 1
    for b in range(begin, end, L):
        end_chunk = min(b + L, end)
        _run(ops, forward, w, codes, block_ops, blocks, bw, X, b, end_chunk, n_inputs, n_clamped, S, D, store_, ticks)
        for c in range(blocks.neuron.shape[0]):
            q = blocks.chain[c, ticks]
            if q < 0:
                continue
            room = blocks.room[c]
            first = block_ops.start[q]
            for e in range(blocks.first[c], blocks.first[c + 1]):
                at = blocks.offset[c] + 2 * room * (e - blocks.first[c]) + room * (ticks & 1)
                for r in range(first, block_ops.start[q + 1]):
                    o = block_ops.rows[r] - first_output
                    for l in range(end_chunk - b):
                        J[b + l, o, blocks.eid[e]] = store_[at + (r - first), l]
