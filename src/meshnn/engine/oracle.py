"""The paper's algorithm, corrected, over a batch: the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.engine.batch import Targets, slabs
from meshnn.topology import Topology

__all__ = ["tensor_gradient", "tensor_jacobian"]

Array = NDArray[Any]


def _tensor_samples(
    topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array
) -> Iterator[tuple[int, Array, Array]]:
    """`(sample, outputs, tensor of their derivatives (n, n, n_outputs))` by the paper's algorithm."""
    from meshnn.kernels._row import lanes
    from meshnn.kernels.activations import activate_all
    from meshnn.kernels.tensor import tensor_jacobian as run

    n, dtype, L = topology.n_neurons, weights.dtype, lanes(weights.dtype)
    A = np.zeros((n, n), dtype)
    A[topology.src, topology.dst] = weights

    def phi(t: Array) -> tuple[Array, Array]:
        s, slope = np.repeat(t[:, None], L, axis=1), np.empty((n, L), dtype)
        activate_all(codes, s, slope)
        return s[:, 0].copy(), slope[:, 0].copy()

    clamped = np.ones((ticks, topology.n_clamped), dtype)
    for slab in slabs(X, None, dtype, size=L):
        slab.pack(0, 1)
        for b in range(slab.size):
            clamped[:, : topology.n_inputs] = slab.X[:, 0, :, b]
            y, P = run(A, clamped, ticks, topology.n_clamped, topology.n_outputs, phi)
            yield slab.begin + b, y, P


def tensor_jacobian(topology: Topology, ticks: int, codes: NDArray[np.int64], weights: Array, X: Array) -> Array:
    """`jacobian` by the paper's algorithm."""
    J = np.empty((X.shape[1], topology.n_outputs, topology.n_edges), weights.dtype)
    for b, _, P in _tensor_samples(topology, ticks, codes, weights, X):
        J[b] = P[topology.src, topology.dst].T
    return J


def tensor_gradient(
    topology: Topology,
    ticks: int,
    codes: NDArray[np.int64],
    weights: Array,
    X: Array,
    targets: Targets,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> tuple[float, NDArray[np.float64]]:
    """`gradient` by the paper's algorithm, for the edges of the graph or any other pairs of neurons."""
    from meshnn.kernels._row import lanes
    from meshnn.kernels.losses import loss_chunk

    L = lanes(weights.dtype)
    src, dst = (topology.src, topology.dst) if pairs is None else pairs
    total = np.zeros(len(src))
    loss = 0.0
    scratch = np.zeros((2, L), weights.dtype)
    G = np.empty((topology.n_outputs, L), weights.dtype)
    share = np.zeros((1, L), weights.dtype)
    for b, y, P in _tensor_samples(topology, ticks, codes, weights, X):
        share[0, 0] = targets.share[b, 0]
        rows = np.repeat(y[:, None], L, axis=1), np.repeat(targets.values[b][:, None], L, axis=1)
        loss += loss_chunk(targets.loss_code, *rows, share, G, scratch)
        total += P[src, dst] @ G[:, 0]
    return loss, total
