"""`Rotation`: tables with more columns than rows, learned in the space that the rows span.

Whatever part of the weights from the inputs is orthogonal to all rows changes no output on them, and a penalty makes it
0. So nothing is lost by turning the inputs onto the principal axes of the rows, of which there are fewer than rows, and
a net learns those in seconds. Afterwards the weights are turned back: the net is one of all columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.mesh import Mesh
from meshnn.topology import Topology

__all__ = ["Rotation"]

#: A variance along an axis, over the largest, that is rounding.
NOTHING = 1e-12


@dataclass(frozen=True)
class Rotation:
    """Inputs times `axes` are what the net learns from."""

    axes: FloatArray  # (n_inputs, rank), divided by the spread of the rows along an axis, on average

    @classmethod
    def of(cls, X: Array) -> Rotation:
        """From inputs of mean 0, more than there are rows."""
        X = np.asarray(X, np.float64)
        variances, turned = np.linalg.eigh(X @ X.T)
        kept = variances > NOTHING * variances[-1]
        if not kept.any():
            kept[-1] = True
        spread = np.sqrt(np.maximum(variances[kept], np.finfo(np.float64).tiny))
        axes = X.T @ (turned[:, kept] / spread)
        return cls(axes / max(np.sqrt(np.mean(spread**2) / len(X)), np.finfo(np.float64).tiny))

    @property
    def rank(self) -> int:
        """Axes."""
        return self.axes.shape[1]

    def inputs(self, X: Array) -> Array:
        """Along the axes."""
        return np.asarray(X @ self.axes)

    def undone(self, mesh: Mesh) -> Mesh:
        """The net of all inputs that gives what this one gives of turned ones."""
        t, (n, rank) = mesh.topology, self.axes.shape
        fed = np.unique(t.dst[t.src < rank])
        turned = np.zeros((rank, t.n_neurons))
        inner = np.zeros((t.n_neurons, t.n_neurons))
        first = t.src < rank
        turned[t.src[first], t.dst[first]] = mesh.weights[first]
        inner[t.src[~first], t.dst[~first]] = mesh.weights[~first]
        shift = n - rank
        pairs = np.stack(np.meshgrid(np.arange(n), fed + shift, indexing="ij"), axis=-1).reshape(-1, 2)
        others = np.stack((t.src[~first], t.dst[~first]), axis=1) + shift
        graph = Topology(n, t.n_hidden, t.n_outputs, np.concatenate((pairs, others)), bias=t.bias)
        known = self.axes @ turned
        straight = graph.src < n
        weights = np.empty(graph.n_edges)
        weights[straight] = known[graph.src[straight], graph.dst[straight] - shift]
        weights[~straight] = inner[graph.src[~straight] - shift, graph.dst[~straight] - shift]
        *hidden, output = mesh.activations[: t.n_hidden + 1]
        return Mesh(graph, mesh.ticks, hidden, output, weights=weights, dtype=str(mesh.dtype))
