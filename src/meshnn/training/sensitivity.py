"""How outputs follow inputs: the exact derivative, and what it says about features.

An input speaks through its edges only. With d the derivative of the outputs by a constant added to the sum of a neuron
at every tick, which is that by the weight of its bias edge, the derivative by an input is the sum of w d over the edges
that leave it: the forward Jacobian has all it takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.errors import DataError
from meshnn.mesh import Mesh
from meshnn.topology import Topology
from meshnn.training.samples import InMemorySamples, Samples


def input_jacobian(mesh: Mesh, X: ArrayLike) -> Array:
    """Derivative of every output by every input, `(batch, n_outputs, n_inputs)`, of inputs held during all ticks.

    Examples
    --------
    >>> from meshnn import Mesh, Topology
    >>> from meshnn.training.sensitivity import input_jacobian
    >>> m = Mesh(Topology.layered([2, 1]), weights=[3.0, -1.0, 0.5])
    >>> input_jacobian(m, [[1.0, 2.0]]).tolist()
    [[[3.0, -1.0]]]
    """
    X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"input_jacobian takes inputs of shape (batch, n_inputs), got {X.shape}; pass one row a sample")
    t = mesh.topology
    edges = np.flatnonzero(t.src < t.n_inputs)
    fed, at = np.unique(t.dst[edges], return_inverse=True)
    probe, ways = _with_biases(mesh, fed)
    shares = np.zeros((len(fed), t.n_inputs), mesh.dtype)
    shares[at, t.src[edges]] = mesh.weights[edges]
    found = np.empty((len(X), t.n_outputs, t.n_inputs), mesh.dtype)
    size = max(1, 40_000_000 // max(probe.topology.n_edges * t.n_outputs, 1))  # numbers in a block
    for k in range(0, len(X), size):
        found[k : k + size] = probe.jacobian(X[k : k + size])[:, :, ways] @ shares
    return found


def _with_biases(mesh: Mesh, neurons: IntArray) -> tuple[Mesh, IntArray]:
    """The same net in which each of these neurons has a bias edge of its own, if of weight 0; and those edges."""
    t = mesh.topology
    if t.bias and mesh.ties.plain:
        bias = np.flatnonzero(t.src == t.n_inputs)
        if np.isin(neurons, t.dst[bias]).all():
            return mesh, bias[np.searchsorted(t.dst[bias], neurons)]  # edges are sorted by destination
    behind = 0 if t.bias else 1  # where the bias comes in, the others move up
    src, dst = t.src + behind * (t.src >= t.n_inputs), t.dst + behind
    ends = neurons + behind
    new = ends[~np.isin(ends, dst[src == t.n_inputs])]
    pairs = np.stack([np.append(src, np.full(len(new), t.n_inputs)), np.append(dst, new)], axis=1)
    weights = np.append(mesh.weights, np.zeros(len(new), mesh.dtype))
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    topology = Topology(t.n_inputs, t.n_hidden, t.n_outputs, pairs[order], bias=True)
    codes = np.concatenate([mesh.codes[: t.n_inputs], [mesh.codes[0]], mesh.codes[t.n_clamped :]])
    probe = Mesh(topology, mesh.ticks, weights=weights[order], dtype=mesh.dtype)
    probe.replace(topology, weights[order], codes)
    bias = np.flatnonzero(topology.src == t.n_inputs)
    return probe, bias[np.searchsorted(topology.dst[bias], ends)]


def importances(mesh: Mesh, samples: Samples, axes: FloatArray | None = None, most: int = 1000) -> FloatArray | None:
    """Return the share of each input in what moves the outputs: mean |d output / d input| times its spread.

    Over all outputs and up to `most` of the samples, evenly spaced, fewer of large nets; None for sequences, for nets
    of millions of edges and where it overflows. What all outputs of a classifier have in common changes no probability
    and is left out. With `axes` (n_features, n_inputs) it is that of features of spread 1, of which inputs are sums.
    """
    if not isinstance(samples, InMemorySamples):
        count = min(samples.count, 10_000)
        samples = samples.take(np.arange(count) * samples.count // count)
    t, n = mesh.topology, samples.count
    size = t.n_edges * t.n_outputs
    if len(samples.X) > 1 or size > 20_000_000:
        return None
    rows = min(most, n, max(32, int(5e7 // (size * mesh.ticks))))  # some 0.1 s of multiply-adds
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
