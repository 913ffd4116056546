"""How sure a net is of its outputs: Laplace's approximation at the fitted weights.

With M = mean of J'J over n samples (their weights count) and penalties a on its diagonal, the weights that agree with
the samples and the penalties are spread around the fitted ones with the covariance s² (M + a)^-1 / n, to second order
and with the Gauss-Newton matrix for the Hessian. An output o then has the variance

    s_o² (1 + J_o (M + a)^-1 J_o' / n)            s_o² = n mean squared error / (n - gamma_o)

noise and what the weights leave open, where gamma_o = mean over samples of J_o (M + a)^-1 J_o' is the number of weights
that the samples determine, as far as output o is concerned. Without hidden neurons this is Bayesian linear regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.training.samples import InMemorySamples, Samples

__all__ = ["LIMIT", "Laplace", "affordable", "blocks", "finite", "inverse_root", "triangle"]

#: Live parameters up to which there is one: a file holds half as many squared in float32, 2 MB.
LIMIT = 1000
#: Multiply-adds that it may take unless the fit itself took many times as much, some 0.5 s.
BUDGET = 4e9
#: Numbers in a block of a Jacobian.
BLOCK = 4_000_000


def affordable(mesh: Mesh, samples: Samples) -> str:
    """Return why there can be no approximation, if there can be none."""
    loss = samples.loss
    if loss.name != "squared_error":
        return f'loss="{loss.name}" has no noise of one size; fit with loss="squared_error"'
    if samples.timed:
        return "outputs are read after several ticks; fit with a loss at the last tick only"
    if not samples.in_memory:
        return "the samples are not in memory, and every one of them would have to be seen again; fit a part of them"
    return ""


@dataclass(frozen=True)
class Laplace:
    """What is known of the weights of a mesh, as far as its outputs are concerned."""

    live: IntArray  # parameters in question
    root: FloatArray  # (n_live, n_live) lower triangle R with R'R = (M + a)^-1 / n
    noise: FloatArray  # (n_outputs,) variances

    @classmethod
    def fits(cls, mesh: Mesh, samples: Samples, second_order: bool) -> bool:
        """Return whether its file stays small, and its work small compared with that of the fit."""
        live = len(mesh.live_parameters())
        work = float(live) ** 2 * samples.count * mesh.topology.n_outputs
        return live <= LIMIT and (second_order or work <= BUDGET)

    @classmethod
    def of(cls, mesh: Mesh, samples: InMemorySamples, penalties: FloatArray) -> Laplace:
        """At the weights of a mesh, with a penalty for each live parameter."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):  # or the number of threads would change sums
            return cls._of(mesh, samples, penalties)

    @classmethod
    def _of(cls, mesh: Mesh, samples: InMemorySamples, penalties: FloatArray) -> Laplace:
        live, share, n = mesh.live_parameters(), samples.targets.share.astype(np.float64), samples.total_weight
        matrix = np.zeros((len(live), len(live)))
        for rows in blocks(mesh, samples.count):
            J = _jacobian(mesh, samples.X[:, rows], live) * np.sqrt(share[rows])[:, :, None]
            J = J.reshape(-1, len(live))
            matrix += J.T @ J
        root = inverse_root(matrix, penalties)
        known = np.zeros(mesh.topology.n_outputs)
        for rows in blocks(mesh, samples.count):
            known += share[rows, 0] @ _spread(root, _jacobian(mesh, samples.X[:, rows], live))
        X = samples.X[0] if len(samples.X) == 1 else samples.X
        errors = mesh.forward(X).astype(np.float64) - samples.targets.values
        noise = n * (share[:, 0] @ errors**2) / np.maximum(n - known, 1.0)
        return cls(live, root / np.sqrt(n), noise)

    def variance(self, mesh: Mesh, X: Array) -> FloatArray:
        """Of the outputs, noise included, `(batch, n_outputs)`."""
        from threadpoolctl import threadpool_limits

        inputs = np.asarray(X, mesh.dtype)[None]
        found = np.empty((inputs.shape[1], mesh.topology.n_outputs))
        with threadpool_limits(1, "blas"):
            for rows in blocks(mesh, len(found)):
                found[rows] = 1.0 + _spread(self.root, _jacobian(mesh, inputs[:, rows], self.live))
        return found * self.noise

    def to_tree(self) -> Tree:
        """Return plain values and arrays: the triangle row by row, in full, since rounding changes variances."""
        return {"root": self.root[np.tril_indices(len(self.root))], "noise": self.noise}

    @classmethod
    def from_tree(cls, tree: Tree, mesh: Mesh) -> Laplace:
        """Read a tree that may come from anywhere."""
        live = mesh.live_parameters()
        if len(live) > LIMIT:
            raise FileError(f"it has variances of {len(live)} weights, at most {LIMIT} are expected")
        return cls(live, triangle(tree["root"], len(live)), finite(tree["noise"], mesh.topology.n_outputs, 0.0))


def triangle(numbers: Any, size: int) -> FloatArray:
    """Return a lower triangle from its numbers, row by row."""
    found = np.zeros((size, size))
    found[np.tril_indices(size)] = finite(numbers, size * (size + 1) // 2)
    return found


def finite(numbers: Any, count: int, least: float = -np.inf) -> FloatArray:
    """Check numbers of a file."""
    right = numbers.shape == (count,) and numbers.dtype == np.float64 and np.isfinite(numbers).all()
    if not right or not (numbers >= least).all():
        raise FileError(f"its variances are not {count} finite numbers of at least {least:g}")
    return np.asarray(numbers)


def blocks(mesh: Mesh, count: int) -> list[slice]:
    """Split rows into blocks whose Jacobians fit in memory."""
    size = max(1, BLOCK // max(mesh.topology.n_edges * mesh.topology.n_outputs, 1))
    return [slice(k, min(k + size, count)) for k in range(0, count, size)]


def _jacobian(mesh: Mesh, X: Array, live: IntArray) -> FloatArray:
    J = mesh.jacobian(X[0] if len(X) == 1 else X)
    return J[:, :, live].astype(np.float64)


def _spread(root: FloatArray, J: FloatArray) -> FloatArray:
    """|R J'|² of each sample and output."""
    found: FloatArray = ((J @ root.T) ** 2).sum(axis=2)
    return found


def inverse_root(matrix: FloatArray, penalties: FloatArray) -> FloatArray:
    """Return R, a lower triangle, with R'R = (matrix + penalties)^-1."""
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    penalised = penalties > 0
    # A weight that no sample speaks of (the bias of a neuron that never fires) and no penalty holds is not known at
    # all. The others' penalty tells what is usual.
    for shift in (penalties, np.where(penalised, penalties, penalties[penalised].mean() if penalised.any() else 0.0)):
        shifted = matrix.copy()
        shifted[np.diag_indices_from(shifted)] += shift
        try:
            lower = cholesky(shifted, lower=True, check_finite=False)
        except LinAlgError:
            continue
        root: FloatArray = solve_triangular(lower, np.eye(len(lower)), lower=True, check_finite=False)
        if np.isfinite(root).all():
            return root
    raise MeshError("neither samples nor penalties determine the weights: fit with an l2 above 0, or fewer weights")
