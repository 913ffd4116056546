"""Laplace's approximation of the last layer, for nets that are too large for that of all weights.

The weights into an output are taken as those of a linear regression, all others as known. With z_o the derivatives of
output o by the weights of its own edges (of a feed-forward net what they read, times the slope of the activation),

    variance_o(x) = s_o² (1 + z_o(x)' (mean z_o z_o' + a)^-1 z_o(x) / n)

where the mean is over the training samples, a are the penalties, and the noise s_o² is as in `laplace.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.laplace import LIMIT, blocks, finite, inverse_root, triangle
from meshnn.training.samples import InMemorySamples

__all__ = ["LastLayerLaplace"]


@dataclass(frozen=True)
class LastLayerLaplace:
    """The uncertainty of the weights into each output."""

    roots: list[FloatArray]  # per output the lower triangle R with R'R = (mean z z' + a)^-1 / n
    noise: FloatArray  # (n_outputs,) variances

    @classmethod
    def of(cls, mesh: Mesh, samples: InMemorySamples, penalties: FloatArray) -> LastLayerLaplace:
        """Learn at the weights of a mesh, with a penalty for each live parameter."""
        weights = _weights(mesh)
        if sum(len(own) ** 2 for own in weights) > LIMIT**2:
            raise MeshError(f"the outputs have {sum(map(len, weights))} edges, too many; take fewer inputs or outputs")
        penalty = np.zeros(mesh.n_parameters)
        penalty[mesh.live_parameters()] = penalties
        share, n = samples.targets.share[:, 0].astype(np.float64), samples.total_weight
        X = samples.X[0] if len(samples.X) == 1 else samples.X
        moments = [np.zeros((len(own), len(own))) for own in weights]
        for rows in blocks(mesh, samples.count):
            for total, z in zip(moments, _derivatives(mesh, weights, samples.X[:, rows]), strict=True):
                total += (z * share[rows, None]).T @ z
        roots = [inverse_root(total, penalty[own]) for total, own in zip(moments, weights, strict=True)]
        # gamma of `laplace.py`: the mean of z' (M + a)^-1 z is the trace of (M + a)^-1 M
        known = np.array([np.sum((root.T @ root) * total) for root, total in zip(roots, moments, strict=True)])
        errors = mesh.forward(X).astype(np.float64) - samples.targets.values
        noise = n * (share @ errors**2) / np.maximum(n - known, 1.0)
        return cls([root / np.sqrt(n) for root in roots], noise)

    def variance(self, mesh: Mesh, X: Array) -> FloatArray:
        """Return the variances of targets around the outputs (batch, n_outputs), noise included."""
        found, inputs, weights = np.empty((len(X), len(self.roots))), np.asarray(X, mesh.dtype)[None], _weights(mesh)
        for rows in blocks(mesh, len(X)):
            for k, z in enumerate(_derivatives(mesh, weights, inputs[:, rows])):
                found[rows, k] = 1.0 + ((z @ self.roots[k].T) ** 2).sum(axis=1)
        return found * self.noise

    def to_tree(self) -> Tree:
        """Return plain values and arrays: the triangles row by row."""
        return {"roots": [root[np.tril_indices(len(root))] for root in self.roots], "noise": self.noise}

    @classmethod
    def from_tree(cls, tree: Tree, mesh: Mesh) -> LastLayerLaplace:
        """Read a tree that may come from anywhere."""
        roots = [triangle(root, len(own)) for root, own in zip(tree["roots"], _weights(mesh), strict=True)]
        return cls(roots, finite(tree["noise"], len(roots), 0.0))


def _weights(mesh: Mesh) -> list[IntArray]:
    """Return the parameters of the edges into each output that are learned and can have an influence."""
    t, live = mesh.topology, mesh.live_parameters()
    outputs = range(t.n_neurons - t.n_outputs, t.n_neurons)
    return [np.intersect1d(mesh.tied[t.dst == output], live) for output in outputs]


def _derivatives(mesh: Mesh, weights: list[IntArray], X: Array) -> Iterator[FloatArray]:
    """Yield the derivatives of each output by its own weights (batch, n_weights)."""
    J = mesh.jacobian(X[0] if len(X) == 1 else X)
    return (J[:, k, own].astype(np.float64) for k, own in enumerate(weights))
