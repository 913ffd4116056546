"""The paper's Algorithm 1, corrected: the full tensor P[i, j, o] = ds[o] / dA[i, j], one sample at a time.

    P_k = phi'(t_k) (.) (P_{k-1} A + S~_{k-1})   on the neurons that are not clamped,   P_k = 0 on the clamped ones

The second half is the correction: the paper overwrites the states of the inputs at every tick but keeps their
derivatives. It costs ticks * n^4 and n^3 numbers a sample: an oracle and a lesson, never the product. In NumPy, but
called like the other kernels.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from meshnn.kernels._jit import jit
from meshnn.kernels._row import lanes
from meshnn.kernels.activations import activate_all
from meshnn.kernels.losses import loss_chunk

__all__ = ["tensor_gradient_part", "tensor_jacobian_part", "timed_tensor_part"]


@jit
def _loss(code, Y, y, r, G, scratch):
    return loss_chunk(code, Y, y, r, G, scratch)


def tensor_gradient_part(course, net, batch, room, first, last, g):
    """Sum of losses of the chunks first to last; g becomes their gradient, edge by edge."""
    total = np.zeros(len(g))
    L, loss = lanes(net.w.dtype), 0.0
    for sample, y, P in _samples(course, net, batch, first, last):
        c, l = divmod(sample, L)
        share = np.zeros((1, L), net.w.dtype)
        share[0, 0] = batch.share[0, c, 0, l]
        outputs, wanted = (np.repeat(v[:, None], L, axis=1) for v in (y, batch.y[0, c, :, l]))
        loss += _loss(batch.loss, outputs, wanted, share, room.G, room.scratch)
        total += P[course.to_src, course.to_dst] @ room.G[:, 0]
    g[:] = total
    return loss


def timed_tensor_part(course, net, batch, room, first, last, g):
    """The same for a loss at ticks or of a readout."""
    total = np.zeros(len(g))
    L, loss = lanes(net.w.dtype), 0.0
    for sample in range(first * L, min(last * L, batch.size)):
        (c, l), outputs, influence = divmod(sample, L), [], []
        for y, P in islice(_ticks(course, net, batch, sample), int(batch.stop[0, c, 0, l])):
            outputs.append(y)
            influence.append(P[course.to_src, course.to_dst])
        if len(batch.readout):
            weight = batch.readout[:, c, 0, l]
            counting = np.flatnonzero(weight)
            looks = [(
                sum(weight[k] * outputs[k] for k in counting), sum(weight[k] * influence[k] for k in counting), 0, 0
            )]  # fmt: skip
        else:
            counting = np.flatnonzero(batch.share[:, c, 0, l])
            looks = [(outputs[k], influence[k], k, k if len(batch.y) > 1 else 0) for k in counting]
        for y, P, k, of in looks:
            share = np.zeros((1, L), net.w.dtype)
            share[0, 0] = batch.share[k, c, 0, l]
            read, wanted = (np.repeat(v[:, None], L, axis=1).astype(net.w.dtype) for v in (y, batch.y[of, c, :, l]))
            loss += _loss(batch.loss, read, wanted, share, room.G, room.scratch)
            total += P @ room.G[:, 0]
    g[:] = total
    return loss


def _ticks(course, net, batch, sample):
    """Outputs and the tensor of their derivatives after each tick."""
    A, phi, x = _dense(course, net)
    x[:, : course.n_inputs] = batch.raw[:, sample]
    s = batch.state[sample].copy() if len(batch.state) else np.zeros(course.n, A.dtype)
    return walk_of_tensor(A, x, course.n_clamped, course.n_outputs, phi, s)


def tensor_jacobian_part(course, net, batch, room, first, last, J):
    """Derivatives of each output, into J (batch, n_outputs, n_gradient), which comes zeroed."""
    for sample, _, P in _samples(course, net, batch, first, last):
        np.add.at(J[sample].T, course.number, P[course.to_src, course.to_dst])


def _samples(course, net, batch, first, last):
    """`(sample, outputs, tensor of their derivatives (n, n, n_outputs))`, one after the other."""
    L, size = lanes(net.w.dtype), batch.raw.shape[1]
    A, phi, x = _dense(course, net)
    for sample in range(first * L, min(last * L, size)):
        x[:, : course.n_inputs] = batch.raw[:, sample]
        yield sample, *tensor_jacobian(A, x, course.ticks, course.n_clamped, course.n_outputs, phi)


def _dense(course, net):
    """A, phi, and room for what the clamped neurons hold at every tick."""
    L, A = lanes(net.w.dtype), np.zeros((course.n, course.n), net.w.dtype)
    A[course.src, course.dst] = net.w

    def phi(t):
        s, slope = np.repeat(t[:, None], L, axis=1), np.empty((course.n, L), A.dtype)
        activate_all(net.codes, s, slope)
        return s[:, 0].copy(), slope[:, 0].copy()

    return A, phi, np.ones((course.ticks, course.n_clamped), A.dtype)


def tensor_jacobian(A, x, ticks, n_clamped, n_outputs, phi):
    """Outputs (n_outputs,) and their derivatives (n, n, n_outputs) for one sample.

    A is dense (n, n); x is (ticks, n_clamped), one row a tick; phi maps t (n,) to (phi(t), phi'(t)).
    """
    *_, last = walk_of_tensor(A, x[:ticks], n_clamped, n_outputs, phi, np.zeros(A.shape[0], A.dtype))
    return last


def walk_of_tensor(A, x, n_clamped, n_outputs, phi, s):
    """The same after every tick, from the states s on."""
    n = A.shape[0]
    P = np.zeros((n, n, n), A.dtype)
    neuron = np.arange(n)
    for clamped in x:
        s[:n_clamped] = clamped
        t = s @ A
        P = (P.reshape(n * n, n) @ A).reshape(n, n, n)
        P[:, neuron, neuron] += s[:, None]
        s, slope = phi(t)
        P *= slope
        P[:, :, :n_clamped] = 0  # the correction: clamped states do not depend on A
        yield s[n - n_outputs :], P[:, :, n - n_outputs :]
