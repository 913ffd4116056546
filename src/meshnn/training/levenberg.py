"""Levenberg-Marquardt on the forward Jacobian.

With the loss E(w), its gradient g and the Gauss-Newton matrix M = sum of J' H J, each iteration solves

    (M + mu S) step = -g        S = diag(M), kept away from 0

and compares what the step gained with what the quadratic model promised, rho. A step that loses is not taken: mu grows
ever faster until one gains. After a gain mu shrinks by max(1/3, 1 - (2 rho - 1)^3) (Nielsen, 1999): much if the model
was right, not at all if it promised twice too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn import engine
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.training.first_order import penalised_edges
from meshnn.training.settings import Settings
from meshnn.training.solver import Progress, Samples, State

__all__ = ["LevenbergMarquardt"]

FIRST_DAMPING = 1e-2
LEAST_DAMPING, MOST_DAMPING = 1e-12, 1e16
#: The smallest entry of S over the largest: an edge that hardly counts still gets a step of bounded length.
FLOOR = 1e-6
#: Gain over promise below which a step is refused.
LEAST_GAIN = 1e-4


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """BLAS sums in another order with another number of threads; we split the work ourselves."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


class LevenbergMarquardt:
    """`solver="lm"`."""

    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings) -> None:
        self.mesh, self.samples, self.settings = mesh, samples, settings
        self.live = np.flatnonzero(~mesh.dead_edges())
        needed = 8.0 * len(self.live) ** 2 * (engine.threads.PARTS + 3)
        check_fits(needed, f'solver="lm" with {len(self.live)} live edges', 'use solver="adam"')
        self.program = mesh.jacobian_program(samples.count, settings.gradient)
        self.forward = mesh.forward_program()
        self.decay = settings.l2 * penalised_edges(mesh)[self.live]
        self.epoch = 0
        self.damping, self.growth = FIRST_DAMPING, 2.0
        self.loss = float("nan")
        self.stuck = ""
        self.last: Progress | None = None

    def _evaluate(self) -> tuple[float, float]:
        loss, hits = engine.evaluate(
            self.forward, self.mesh.weights, self.samples.X, self.samples.targets, self.settings.n_threads
        )
        if self.settings.l2 > 0:
            loss += 0.5 * float(self.decay @ self.mesh.weights[self.live] ** 2)
        return loss, hits

    def advance(self, most: int) -> Progress:
        """One iteration: a step that lowers the loss, or the finding that there is none."""
        if self.stuck:
            assert self.last is not None
            self.epoch += 1
            return self.last._replace(finished=self.stuck)
        with _one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # what overflows is looked at below
            self.last = self._iterate()
        self.epoch += 1
        return self.last._replace(finished=self.stuck)

    def _iterate(self) -> Progress:
        model = engine.curvature(
            self.program, self.mesh.weights, self.samples.X, self.samples.targets, self.live, self.settings.n_threads
        )
        start = self.mesh.weights[self.live].astype(np.float64)
        if np.isnan(self.loss):
            self.loss = self._evaluate()[0]
            if not np.isfinite(self.loss):
                raise MeshError(
                    f"the loss is {self.loss} at the first weights; scale the features or use bounded activations"
                )
        grad = model.grad + self.decay * start
        matrix = model.matrix
        matrix[np.diag_indices_from(matrix)] += self.decay
        norm = float(np.linalg.norm(grad))
        if not (np.isfinite(norm) and np.isfinite(matrix).all()):
            self.stuck = "the Jacobian overflowed"
            return Progress(self.loss, model.hits, norm, self.damping)
        if norm == 0.0:
            self.stuck = "the gradient is zero"
            return Progress(self.loss, model.hits, norm, self.damping)
        diagonal = np.diag(matrix).copy()
        scale = np.maximum(diagonal, FLOOR * max(diagonal.max(), np.finfo(np.float64).tiny))
        while self.damping <= MOST_DAMPING:
            step = _solve(matrix, self.damping * scale, grad)
            if step is not None:
                self.mesh.weights[self.live] = start + step
                loss, hits = self._evaluate()
                promise = 0.5 * float(self.damping * step @ (scale * step) - grad @ step)
                gain = (self.loss - loss) / promise if promise > 0 else -1.0
                if np.isfinite(loss) and gain > LEAST_GAIN:
                    self.loss = loss
                    self.damping = max(self.damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), LEAST_DAMPING)
                    self.growth = 2.0
                    return Progress(loss, hits, norm, self.damping)
            self.damping *= self.growth
            self.growth *= 2.0
        self.mesh.weights[self.live] = start
        self.stuck = "no step lowers the loss any more"
        return Progress(self.loss, model.hits, norm, self.damping)

    def state(self) -> State:
        """Epoch, damping and loss; the rest follows from the weights."""
        last = None if self.last is None else list(self.last)
        values = {
            "epoch": self.epoch,
            "damping": self.damping,
            "growth": self.growth,
            "loss": None if np.isnan(self.loss) else self.loss,
            "stuck": self.stuck,
            "last": last,
        }
        return State(values, {})

    def restore(self, state: State) -> None:
        """Go on from there."""
        values = state.values
        self.epoch, self.damping, self.growth = values["epoch"], values["damping"], values["growth"]
        self.loss = float("nan") if values["loss"] is None else values["loss"]
        self.stuck = values["stuck"]
        self.last = None if values["last"] is None else Progress(*values["last"])


def _solve(matrix: NDArray[np.float64], shift: NDArray[np.float64], grad: NDArray[np.float64]) -> Any:
    """-(matrix + diag(shift))^-1 grad by Cholesky; None if the matrix is too near to singular for it."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        factor = cho_factor(shifted.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    step = -cho_solve(factor, grad, check_finite=False)
    return step if np.isfinite(step).all() else None
