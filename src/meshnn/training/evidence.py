"""Penalties from the samples: what `l2="auto"` means to Levenberg-Marquardt.

The evidence (MacKay, 1992; with Gauss-Newton: Foresee and Hagan, 1997) weighs a fit against the volume of weights that
give it. With the Gauss-Newton matrix M and penalties a on its diagonal, of the k weights of a kind of edges

    gamma = k - a tr_kind((M + a)^-1)

are determined by the samples rather than by the penalty. For n samples (their weights count) the one penalty that is as
large as gamma says is

    cross_entropy   gamma / (n |w|^2)                   squared_error   2 gamma E / (|w|^2 (n outputs - gamma))

Every kind of edges (from inputs or hidden neurons, to hidden neurons or outputs) has a penalty of its own, so that data
that ask for a linear map get one: what goes through hidden neurons is then penalised more than what goes past them. A
kind of which the samples say little follows the others: the common penalty counts as much as 10 determined weights.

With more weights than samples the second equation has another solution, no noise at all and every sample overfitted.
It is avoided by never letting gamma pass a share of the numbers to be learned. Edges straight from inputs to outputs,
if there are fewer of them than samples, are not counted: they cannot overfit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arrays import FloatArray, IntArray
from meshnn.mesh import Mesh
from meshnn.training.samples import Samples


class Evidence:
    """Finds the penalties of the live parameters of a mesh; one that edges share is of the kind of the first of them.

    `penalised` (n_live,) is 1 for parameters that have a penalty, else 0.
    """

    prior = 10.0  # determined weights that the common penalty counts as, for each kind
    crowded = 0.15  # most weights that the samples may determine, over the numbers to be learned (squared_error)

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
        # straight from inputs (0) to outputs (2): fewer than samples cannot overfit them
        self.bent = [k != 2 or len(of) > self.count for k, of in zip(found, self.kinds, strict=True)]

    def penalties(self, matrix: FloatArray, weights: FloatArray, now: FloatArray, error: float) -> FloatArray:
        """Return the penalties that the samples ask for at weights with this loss, else those of `now`."""
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
            bent = sum(known for known, counts in zip(determined, self.bent, strict=True) if counts)
            if bent > self.crowded * self.count:
                self.least = min(2 * self.mean(now), most)  # and never back, or it would oscillate
        common = total / (factor * size)
        if not (np.isfinite(common) and common > 0):
            return now
        found = now.copy()
        for kind, known in zip(self.kinds, determined, strict=True):
            penalty = (known + self.prior) / (factor * float(weights[kind] @ weights[kind]) + self.prior / common)
            found[kind] = np.clip(penalty, self.least, most)
        return found

    def mean(self, penalties: FloatArray) -> float:
        """Return the geometric mean over the parameters that have a penalty."""
        having = penalties[self.penalised > 0]
        return float(np.exp(np.log(having).mean())) if len(having) and (having > 0).all() else 0.0

    def _inverse_diagonal(self, matrix: FloatArray, now: FloatArray) -> Any:
        """Return that of (matrix + penalties)^-1; None if there is none."""
        from scipy.linalg import LinAlgError, cho_factor
        from scipy.linalg.lapack import dpotri

        if not self.kinds:
            return None
        shifted = matrix.copy()
        # Bias weights have no penalty, but what they explain is not known any better: without one they would claim
        # everything where samples are few, and rounding would decide how much.
        shifted[np.diag_indices_from(shifted)] += np.where(self.penalised > 0, now, now[self.penalised > 0].mean())
        try:
            factor, _ = cho_factor(shifted.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        inverse, failed = dpotri(factor, lower=1, overwrite_c=1)
        return None if failed else inverse.diagonal()
