"""The paper's Algorithm 1, corrected: the full tensor P[i, j, o] = ds[o] / dA[i, j], one sample at a time.

    P_k = phi'(t_k) (.) (P_{k-1} A + S~_{k-1})   on the neurons that are not clamped,   P_k = 0 on the clamped ones

The second half is the correction: the paper overwrites the states of the inputs at every tick but keeps their
derivatives. It costs ticks * n^4 and n^3 numbers a sample: an oracle and a lesson, never the product.
"""

from __future__ import annotations

import numpy as np

__all__ = ["tensor_jacobian"]


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
