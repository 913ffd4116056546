"""Predictive uncertainty of a network: the Laplace approximation at the fitted weights.

With M = mean of J'J over n samples (their total weight) and penalties a on its diagonal, the posterior of the weights
is approximated by a normal distribution around the fitted weights with the covariance s² (M + a)^-1 / n, where the
Gauss-Newton matrix replaces the Hessian. An output o then has the variance

    s_o² (1 + J_o (M + a)^-1 J_o' / n)            s_o² = n mean squared error / (n - gamma_o)

the sum of the noise and of the uncertainty of the weights. gamma_o = mean over samples of J_o (M + a)^-1 J_o' is the
number of weights that the samples determine for output o. Without hidden neurons this is Bayesian linear regression.

In large networks only the weights into the outputs are treated as uncertain, as in a linear regression; all others are
treated as known. This needs one matrix per output, over the weights of its incoming edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshnn.arguments import switch
from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import FileError, Tree
from meshnn.training.samples import InMemorySamples, Samples

#: Maximum number of live parameters for the full approximation: the triangle takes 4 MB in a file.
LIMIT = 1000
#: Maximum number of multiply-adds for the matrices, about 0.5 s.
WORK = 4e9
#: The outputs that share a matrix, and the parameters of the matrix.
Group = tuple[slice, IntArray]


def affordable(mesh: Mesh, samples: Samples) -> str:
    """Return the reason if the approximation is not available, else an empty string."""
    loss = samples.loss
    if loss.name != "squared_error":
        return f'loss="{loss.name}" has no constant noise variance; fit with loss="squared_error"'
    if samples.timed:
        return "the outputs of several ticks are combined; fit with a loss at the last tick only"
    if not samples.in_memory:
        return "the samples are not in memory; fit a subset that fits in memory"
    return ""


@dataclass(frozen=True)
class Laplace:
    """The uncertainty of the outputs of a mesh due to noise and to its weights."""

    roots: list[FloatArray]  # lower triangles R, R'R = (M + a)^-1 / n, of all weights or per output
    noise: FloatArray  # (n_outputs,) variances
    last_layer: bool = False  # whether only the weights into outputs are uncertain

    @classmethod
    def of(cls, mesh: Mesh, samples: InMemorySamples, penalties: FloatArray, second_order: bool = True) -> Laplace:
        """Compute the approximation at the weights of a mesh, with one penalty per live parameter.

        All weights are included if their matrix is small, and if computing it is cheap or comparable with an iteration
        of the solver (`second_order`). Otherwise only the weights into outputs are, with as many samples as are cheap.
        """
        from threadpoolctl import threadpool_limits

        live = len(mesh.live_parameters())
        work = float(live) ** 2 * samples.count * mesh.topology.n_outputs
        last_layer = live > LIMIT or not (second_order or work <= WORK)
        with threadpool_limits(1, "blas"):  # the number of threads would change the order of sums
            return cls._of(mesh, samples, penalties, last_layer)

    @classmethod
    def _of(cls, mesh: Mesh, samples: InMemorySamples, penalties: FloatArray, last_layer: bool) -> Laplace:
        groups = _groups(mesh, last_layer)
        if sum(len(own) ** 2 for _, own in groups) > LIMIT**2:
            edges = sum(len(own) for _, own in groups)
            raise MeshError(f"the outputs have {edges} incoming edges, too many; use fewer inputs or outputs")
        penalty = np.zeros(mesh.n_parameters)
        penalty[mesh.live_parameters()] = penalties
        n, work = samples.total_weight, float(samples.count) * sum(len(own) ** 2 for _, own in groups)
        if last_layer and work > WORK:
            count = max(int(samples.count * WORK / work), 1)
            samples = samples.subset(np.arange(count) * samples.count // count)
        share = samples.targets.share.astype(np.float64)
        share /= share.sum()
        totals = [np.zeros((len(own), len(own))) for _, own in groups]
        for rows, J in _jacobians(mesh, samples.X, groups):
            for total, each in zip(totals, J, strict=True):
                flat = (each * np.sqrt(share[rows])[:, :, None]).reshape(-1, each.shape[2])
                total += flat.T @ flat
        roots = [inverse_root(total, penalty[own]) for total, (_, own) in zip(totals, groups, strict=True)]
        if last_layer:  # for a single output gamma is the trace of (M + a)^-1 M
            known = np.array([np.sum((root.T @ root) * total) for root, total in zip(roots, totals, strict=True)])
        else:  # in general it is the mean of |R J'|², which is accurate for nearly singular matrices too
            known = np.zeros(mesh.topology.n_outputs)
            for rows, J in _jacobians(mesh, samples.X, groups):
                known += share[rows, 0] @ _spread(roots, J)
        errors = mesh.forward(samples.inputs).astype(np.float64) - samples.targets.values
        noise = n * (share[:, 0] @ errors**2) / np.maximum(n - known, 1.0)
        return cls([root / np.sqrt(n) for root in roots], noise, last_layer)

    def towards(self, error: float) -> Laplace:
        """Return the approximation with the geometric mean of the noise and a larger held-out error.

        The noise of training samples is too small, because hidden neurons fit a part of it and their weights are not
        counted. The mean squared error of held-out samples (summed over the outputs) is too large, because it is that
        of nets trained on fewer samples. NaN changes nothing.
        """
        ratio = error / float(self.noise.sum())
        return replace(self, noise=self.noise * ratio**0.5) if ratio > 1 else self

    def variance(self, mesh: Mesh, X: Array) -> FloatArray:
        """Return the predictive variances (batch, n_outputs), including the noise."""
        from threadpoolctl import threadpool_limits

        inputs = np.asarray(X, mesh.dtype)[None]
        found = np.empty((inputs.shape[1], mesh.topology.n_outputs))
        with threadpool_limits(1, "blas"):
            for rows, J in _jacobians(mesh, inputs, _groups(mesh, self.last_layer)):
                found[rows] = 1.0 + _spread(self.roots, J)
        return found * self.noise

    def to_tree(self) -> Tree:
        """Return plain values and arrays; the triangles are stored in float64, since rounding changes variances."""
        roots = [root[np.tril_indices(len(root))] for root in self.roots]
        return {"roots": roots, "noise": self.noise, "last_layer": self.last_layer}

    @classmethod
    def from_tree(cls, tree: Tree, mesh: Mesh) -> Laplace:
        """Return an approximation from a tree of `to_tree`; the tree is not trusted and is validated."""
        last_layer = switch("last_layer", tree["last_layer"])
        sizes = [len(own) for _, own in _groups(mesh, last_layer)]
        if sum(size**2 for size in sizes) > LIMIT**2:
            raise FileError(f"it has variances of {sum(sizes)} weights, more than the limit of {LIMIT}")
        roots = []
        for numbers, size in zip(tree["roots"], sizes, strict=True):
            roots.append(np.zeros((size, size)))
            roots[-1][np.tril_indices(size)] = _finite(numbers, size * (size + 1) // 2)
        return cls(roots, _finite(tree["noise"], mesh.topology.n_outputs, 0.0), last_layer)


def _finite(numbers: Any, count: int, least: float = -np.inf) -> FloatArray:
    """Return an array from a file after checking its shape, type and range."""
    right = numbers.shape == (count,) and numbers.dtype == np.float64 and np.isfinite(numbers).all()
    if not right or not (numbers >= least).all():
        raise FileError(f"its variances must be {count} finite numbers of at least {least:g}")
    return np.asarray(numbers)


def _groups(mesh: Mesh, last_layer: bool) -> list[Group]:
    t, live = mesh.topology, mesh.live_parameters()
    if not last_layer:
        return [(slice(None), live)]
    first = t.n_neurons - t.n_outputs
    return [(slice(k, k + 1), np.intersect1d(mesh.tied[t.dst == first + k], live)) for k in range(t.n_outputs)]


def _jacobians(mesh: Mesh, X: Array, groups: list[Group]) -> Iterator[tuple[slice, list[FloatArray]]]:
    """Yield blocks of rows with the Jacobian (rows, outputs, parameters) of each group."""
    t, count = mesh.topology, X.shape[1]
    size = max(1, 4_000_000 // max(t.n_edges * t.n_outputs, 1))  # at most 4e6 entries per block
    for k in range(0, count, size):
        rows = slice(k, min(k + size, count))
        J = mesh.jacobian(X[0, rows] if len(X) == 1 else X[:, rows])
        yield rows, [J[:, outputs, own].astype(np.float64) for outputs, own in groups]


def _spread(roots: list[FloatArray], J: list[FloatArray]) -> FloatArray:
    """Return |R J'|² per sample and output."""
    return np.concatenate([((each @ root.T) ** 2).sum(axis=2) for each, root in zip(J, roots, strict=True)], axis=1)


def inverse_root(matrix: FloatArray, penalties: FloatArray) -> FloatArray:
    """Return R, a lower triangle, with R'R = (matrix + penalties)^-1."""
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    penalised = penalties > 0
    # The matrix is singular if a weight without a penalty has no effect on any sample, such as the bias of a neuron
    # that never fires. Such weights get the mean of the other penalties in the second attempt.
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
    raise MeshError("the samples do not determine the weights; fit with l2 above 0 or with fewer weights")
