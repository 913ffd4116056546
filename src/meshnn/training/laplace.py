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

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.training.samples import InMemorySamples, Samples

__all__ = ["LIMIT", "Laplace", "affordable"]

#: Live parameters up to which there is one: a file holds half as many squared in float32, 2 MB.
LIMIT = 1000
#: Multiply-adds that it may take unless the fit itself took many times as much, some 0.5 s.
BUDGET = 4e9
#: Numbers in a block of a Jacobian.
BLOCK = 4_000_000


def affordable(mesh: Mesh, samples: Samples, second_order: bool) -> str:
    """Why there is none, if there is none: it must stay small against the fit, and its file small."""
    loss, live = samples.loss, len(mesh.live_parameters())
    if loss.name != "squared_error":
        return f'loss="{loss.name}" has no noise of one size; fit with loss="squared_error"'
    if samples.timed:
        return "outputs are looked at after several ticks, which it does not know; fit with looks at the last tick only"
    if not samples.in_memory:
        return "the samples are not in memory, and every one of them would have to be seen again; fit a part of them"
    if live > LIMIT:
        return f"the net has {live} live parameters, more than {LIMIT}; take fewer hidden neurons or prune it"
    work = float(live) ** 2 * samples.count * mesh.topology.n_outputs
    if work > BUDGET and not second_order:
        return (
            f"edges² x samples = {work:.2g} multiply-adds exceed {BUDGET:.0e}, which is too much after a fit by first "
            'order; fit with solver="lm", fewer hidden neurons or fewer samples'
        )
    return ""


@dataclass(frozen=True)
class Laplace:
    """What is known of the weights of a mesh, as far as its outputs are concerned."""

    live: IntArray  # parameters in question
    root: FloatArray  # (n_live, n_live) lower triangle R with R'R = (M + a)^-1 / n
    noise: FloatArray  # (n_outputs,) variances

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
        for rows in _blocks(mesh, samples.count):
            J = _jacobian(mesh, samples.X[:, rows], live) * np.sqrt(share[rows])[:, :, None]
            J = J.reshape(-1, len(live))
            matrix += J.T @ J
        root = _inverse_root(matrix, penalties)
        known = np.zeros(mesh.topology.n_outputs)
        for rows in _blocks(mesh, samples.count):
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
            for rows in _blocks(mesh, len(found)):
                found[rows] = 1.0 + _spread(self.root, _jacobian(mesh, inputs[:, rows], self.live))
        return found * self.noise


def _blocks(mesh: Mesh, count: int) -> list[slice]:
    size = max(1, BLOCK // max(mesh.topology.n_edges * mesh.topology.n_outputs, 1))
    return [slice(k, min(k + size, count)) for k in range(0, count, size)]


def _jacobian(mesh: Mesh, X: Array, live: IntArray) -> FloatArray:
    J = mesh.jacobian(X[0] if len(X) == 1 else X)
    return J[:, :, live].astype(np.float64)


def _spread(root: FloatArray, J: FloatArray) -> FloatArray:
    """|R J'|² of each sample and output."""
    found: FloatArray = ((J @ root.T) ** 2).sum(axis=2)
    return found


def _inverse_root(matrix: FloatArray, penalties: FloatArray) -> FloatArray:
    """R, a lower triangle, with R'R = (matrix + penalties)^-1."""
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
