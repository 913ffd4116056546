"""The paper's Algorithm 1, corrected: the full tensor P[i, j, o] = ds[o] / dA[i, j], one sample at a time.

    P_k = phi'(t_k) (.) (P_{k-1} A + S~_{k-1})   on the neurons that are not clamped,   P_k = 0 on the clamped ones

The second half is the correction: the paper overwrites the states of the inputs at every tick but keeps their
derivatives. It costs ticks * n^4 and n^3 numbers a sample: an oracle and a lesson, never the product. In NumPy, but
called like the other kernels.
"""

from __future__ import annotations

import numpy as np

from meshnn.kernels._jit import jit
from meshnn.kernels._row import lanes
from meshnn.kernels.activations import activate_all
from meshnn.kernels.losses import loss_chunk

__all__ = ["tensor_gradient_part", "tensor_jacobian_part"]


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


def tensor_jacobian_part(course, net, batch, room, first, last, J):
    """Derivatives of each output, into J (batch, n_outputs, n_gradient), which comes zeroed."""
    for sample, _, P in _samples(course, net, batch, first, last):
        np.add.at(J[sample].T, course.number, P[course.to_src, course.to_dst])


def _samples(course, net, batch, first, last):
    """`(sample, outputs, tensor of their derivatives (n, n, n_outputs))`, one after the other."""
    L, size = lanes(net.w.dtype), batch.raw.shape[1]
    A = np.zeros((course.n, course.n), net.w.dtype)
    A[course.src, course.dst] = net.w

    def phi(t):
        s, slope = np.repeat(t[:, None], L, axis=1), np.empty((course.n, L), A.dtype)
        activate_all(net.codes, s, slope)
        return s[:, 0].copy(), slope[:, 0].copy()

    x = np.ones((course.ticks, course.n_clamped), A.dtype)
    for sample in range(first * L, min(last * L, size)):
        x[:, : course.n_inputs] = batch.raw[:, sample]
        yield sample, *tensor_jacobian(A, x, course.ticks, course.n_clamped, course.n_outputs, phi)


def tensor_jacobian(A, x, ticks, n_clamped, n_outputs, phi):
    """Outputs (n_outputs,) and their derivatives (n, n, n_outputs) for one sample.

    A is dense (n, n); x is (ticks, n_clamped), one row a tick; phi maps t (n,) to (phi(t), phi'(t)).
    """
    n = A.shape[0]
    s = np.zeros(n, A.dtype)
    P = np.zeros((n, n, n), A.dtype)
    neuron = np.arange(n)
    for k in range(ticks):
        s[:n_clamped] = x[k]
        t = s @ A
        P = (P.reshape(n * n, n) @ A).reshape(n, n, n)
        P[:, neuron, neuron] += s[:, None]
        s, slope = phi(t)
        P *= slope
        P[:, :, :n_clamped] = 0  # the correction: clamped states do not depend on A
    return s[n - n_outputs :], P[:, :, n - n_outputs :]
