"""Sensitivity of outputs to inputs: the exact Jacobian, and the feature importances derived from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arrays import Array, FloatArray
from meshnn.engine.layer import Layer
from meshnn.errors import DataError
from meshnn.mesh import Mesh
from meshnn.training.samples import InMemorySamples, Samples


def input_jacobian(mesh: Mesh, X: ArrayLike) -> Array:
    """Return the derivative of every output with respect to every input, for inputs that are constant over the ticks.

    Parameters
    ----------
    mesh : Mesh
    X : array_like (batch, n_inputs)

    Returns
    -------
    ndarray (batch, n_outputs, n_inputs)

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.training.sensitivity import input_jacobian
    >>> m = Mesh(Topology.layered([2, 1]), weights=[3.0, -1.0, 0.5])
    >>> input_jacobian(m, [[1.0, 2.0]]).tolist()
    [[[3.0, -1.0]]]
    """
    rows = np.require(X, mesh.dtype, ["C_CONTIGUOUS", "ALIGNED"])
    if rows.ndim != 2:
        raise DataError(f"input_jacobian expects inputs of shape (batch, n_inputs), got {rows.shape}")
    layer, n_outputs, address = Layer(mesh._engines, mesh.ticks), mesh.topology.n_outputs, mesh.values.ctypes.data
    found = np.empty((n_outputs, *rows.shape), mesh.dtype)
    for k, slopes in enumerate(found):
        output = np.zeros((len(rows), n_outputs), mesh.dtype)
        output[:, k] = 1.0
        layer.back(address, rows.ctypes.data, output.ctypes.data, 0, slopes.ctypes.data, len(rows))
    return found.transpose(1, 0, 2)


def importances(mesh: Mesh, samples: Samples, axes: FloatArray | None = None, most: int = 1000) -> FloatArray | None:
    """Return the importance of each input: mean |d output / d input| times its standard deviation, normalised to sum 1.

    The mean is over all outputs and up to `most` evenly spaced samples, fewer for large networks. None is returned for
    sequences, for networks with millions of edges and if a value overflows. For classifiers the mean slope over the
    outputs is subtracted, since it changes no probability. With `axes` (n_features, n_inputs) the result is per feature
    of standard deviation 1, where the inputs are linear combinations of the features.
    """
    if not isinstance(samples, InMemorySamples):
        count = min(samples.count, 10_000)
        samples = samples.take(np.arange(count) * samples.count // count)
    t, n = mesh.topology, samples.count
    size = t.n_edges * t.n_outputs
    if len(samples.X) > 1 or size > 20_000_000:
        return None
    rows = min(most, n, max(32, int(5e7 // (size * mesh.ticks))))  # about 0.1 s of multiply-adds
    chosen = np.arange(rows) * n // rows
    slopes = input_jacobian(mesh, samples.X[0][chosen]).astype(np.float64)
    if samples.targets.loss.classifies:
        slopes -= slopes.mean(axis=1, keepdims=True)
    share = samples.targets.share[:, 0].astype(np.float64)
    mean = np.average(samples.X[0].astype(np.float64), axis=0, weights=share)
    spread = np.sqrt(np.average((samples.X[0] - mean) ** 2, axis=0, weights=share))
    if axes is not None:
        slopes, spread = slopes @ axes.T, np.ones(len(axes))
    found: FloatArray = np.average(np.abs(slopes).mean(axis=1), axis=0, weights=share[chosen]) * spread
    total = float(found.sum())
    if not np.isfinite(total):
        return None
    return found / total if total > 0 else found
