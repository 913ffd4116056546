"""Regularisation strengths estimated from the samples: the meaning of `l2="auto"` for Levenberg-Marquardt.

The evidence (MacKay, 1992; with Gauss-Newton: Foresee and Hagan, 1997) balances the quality of a fit against the volume
of weights that produce it. With the Gauss-Newton matrix M and penalties a on its diagonal,

    gamma = k - a tr_kind((M + a)^-1)

of the k weights of one kind of edges are determined by the samples rather than by the penalty. For n samples (their
total weight) the penalty that agrees with gamma is

    cross_entropy   gamma / (n |w|^2)                   squared_error   2 gamma E / (|w|^2 (n outputs - gamma))

Every kind of edges (from inputs or hidden neurons, to hidden neurons or outputs) has its own penalty. On data with a
linear relation, edges of hidden neurons are thus penalised more than direct edges from inputs to outputs. The common
penalty of all kinds acts as a prior worth 10 determined weights, which decides for kinds with little data.

With more weights than samples the second equation has a second solution: no noise, and every sample overfitted. To
avoid it, gamma is limited to a fraction of the number of target values. Direct edges from inputs to outputs are not
counted if there are fewer of them than samples, because they cannot overfit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.training.samples import Samples


class Evidence:
    """Estimates the penalties of the live parameters of a mesh.

    A parameter that several edges share has the kind of its first edge. `penalised` (n_live,) is 1 for parameters that
    have a penalty, else 0.
    """

    prior = 10.0  # weight of the common penalty in each kind, in determined weights
    crowded = 0.15  # maximum number of determined weights per target value (squared_error)

    def __init__(self, mesh: Mesh, samples: Samples, live: IntArray, penalised: FloatArray) -> None:
        t = mesh.topology
        borders = [t.n_clamped, t.n_neurons - t.n_outputs]  # of inputs, hidden neurons, outputs
        edge = mesh.ties.first[live]
        kind = 3 * np.digitize(t.src[edge], borders) + np.digitize(t.dst[edge], borders)
        kind[penalised == 0] = -1
        found = np.unique(kind[kind >= 0])
        self.kinds = [np.flatnonzero(kind == k) for k in found]
        self.penalised = penalised
        self.likelihood = samples.loss.likelihood
        self.count = samples.total_weight if self.likelihood else samples.total_weight * t.n_outputs
        self.least = 1e-8
        # direct edges from inputs (0) to outputs (2) cannot overfit if there are fewer than samples
        self.limited = [k != 2 or len(of) > self.count for k, of in zip(found, self.kinds, strict=True)]

    def penalties(self, matrix: FloatArray, weights: FloatArray, now: FloatArray, error: float) -> FloatArray:
        """Return the penalties that maximise the evidence at weights with this loss, or `now` if there are none."""
        most = 10.0
        diagonal = self._inverse_diagonal(matrix, now)
        size = float(self.penalised @ weights**2)
        if diagonal is None or not size > 0:
            return now
        determined = [len(kind) - float(now[kind] @ diagonal[kind]) for kind in self.kinds]
        total = sum(determined)
        factor = self.count
        if not self.likelihood:
            factor = max(self.count - total, 1.0) / max(2 * error, np.finfo(np.float64).tiny)
            limited = sum(known for known, counts in zip(determined, self.limited, strict=True) if counts)
            if limited > self.crowded * self.count:
                self.least = min(2 * self.mean(now), most)  # never lowered again, to avoid oscillation
        common = total / (factor * size)
        if not (np.isfinite(common) and common > 0):
            return now
        found = now.copy()
        for kind, known in zip(self.kinds, determined, strict=True):
            penalty = (known + self.prior) / (factor * float(weights[kind] @ weights[kind]) + self.prior / common)
            found[kind] = np.clip(penalty, self.least, most)
        return found

    def mean(self, penalties: FloatArray) -> float:
        """Return the geometric mean of the penalties, 0 if there are none."""
        having = penalties[self.penalised > 0]
        return float(np.exp(np.log(having).mean())) if len(having) and (having > 0).all() else 0.0

    def _inverse_diagonal(self, matrix: FloatArray, now: FloatArray) -> Any:
        """Return the diagonal of (matrix + penalties)^-1, or None if the matrix is singular."""
        from scipy.linalg import LinAlgError, cho_factor
        from scipy.linalg.lapack import dpotri

        if not self.kinds:
            return None
        shifted = matrix.copy()
        # Bias weights have no penalty, but with few samples the matrix is singular without one, and rounding would
        # decide how many weights are determined.
        shifted[np.diag_indices_from(shifted)] += np.where(self.penalised > 0, now, now[self.penalised > 0].mean())
        try:
            factor, _ = cho_factor(shifted.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        inverse, failed = dpotri(factor, lower=1, overwrite_c=1)
        return None if failed else inverse.diagonal()
