"""The paper's Algorithm 1, corrected: the full tensor P[i, j, o] = ds[o] / dA[i, j] of single samples, in NumPy.

    P_k = phi'(t_k) (.) (P_{k-1} A + S~_{k-1})   on the neurons that are not clamped,   P_k = 0 on the clamped ones

`P_k = 0` is the correction: the paper overwrites the states of the inputs at every tick but keeps their derivatives.
The computation takes ticks * n^4 time and n^3 numbers per sample, so it is only a reference for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import FloatArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh

__all__ = ["tensor_gradient", "tensor_jacobian"]


def tensor_jacobian(mesh: Mesh, x: Any) -> tuple[FloatArray, FloatArray]:
    """Return the outputs `(n_outputs,)` of one sample and their derivatives `(n, n, n_outputs)` by the whole matrix A.

    Parameters
    ----------
    mesh : Mesh
        With activations identity, relu or tanh.
    x : array_like (n_inputs,)

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.paper.tensor import tensor_jacobian
    >>> m = Mesh(Topology(1, 0, 1, [(0, 1), (1, 1)], bias=False), 2, "identity", weights=[2.0, 0.5])
    >>> y, P = tensor_jacobian(m, [3.0])  # y = a x + b (a x)
    >>> y.tolist(), P[0, 1].tolist(), P[1, 1].tolist()
    ([9.0], [4.5], [6.0])
    """
    graph = mesh.topology
    if unknown := set(mesh.activations) - {"identity", "relu", "tanh"}:
        raise MeshError(f"activations must be identity, relu or tanh, got {sorted(unknown)}")
    relu, tanh = (np.array([name == kind for name in mesh.activations]) for kind in ("relu", "tanh"))
    n, first = graph.n_neurons, graph.n_clamped
    A = np.zeros((n, n))
    A[graph.src, graph.dst] = mesh.weights
    s, P, neuron = np.zeros(n), np.zeros((n, n, n)), np.arange(n)
    clamped = np.ones(first)
    clamped[: graph.n_inputs] = np.asarray(x, np.float64)
    for _ in range(mesh.ticks):
        s[:first] = clamped
        t, slope = (s @ A)[first:], np.zeros(n)
        P = (P.reshape(n * n, n) @ A).reshape(n, n, n)
        P[:, neuron, neuron] += s[:, None]
        s = np.zeros(n)
        s[first:] = np.select([relu, tanh], [np.maximum(t, 0.0), np.tanh(t)], t)
        slope[first:] = np.select([relu, tanh], [t > 0, 1.0 - np.tanh(t) ** 2], 1.0)
        P *= slope  # 0 on the clamped neurons: the correction
    return s[n - graph.n_outputs :], P[:, :, n - graph.n_outputs :]


def tensor_gradient(mesh: Mesh, X: Any, y: Any) -> tuple[float, FloatArray]:
    """Return the mean cross-entropy of samples (batch, n_inputs) with labels y, and its gradient `(n_edges,)`."""
    t, loss, grad = mesh.topology, 0.0, np.zeros(mesh.topology.n_edges)
    for x, label in zip(np.asarray(X), np.asarray(y), strict=True):
        outputs, P = tensor_jacobian(mesh, x)
        p = np.exp(outputs - outputs.max())
        p /= p.sum()
        loss -= float(np.log(p[label]))
        p[label] -= 1.0
        grad += P[t.src, t.dst] @ p
    return loss / len(X), grad / len(X)
