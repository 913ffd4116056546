"""Levenberg-Marquardt on the forward Jacobian.

With the loss E(w), its gradient g and the Gauss-Newton matrix M = sum of J' H J, each iteration solves

    (M + mu S) step = -g        S = diag(M), kept away from 0

and computes rho, the decrease of the loss divided by the decrease that the quadratic model predicts. A step that does
not decrease the loss is rejected, and mu grows by an increasing factor until a step is accepted. Then mu is multiplied
by max(1/3, 1 - (2 rho - 1)^3) (Nielsen, 1999): 1/3 if the model was accurate, 1 if it predicted twice the decrease.

With l2="auto" the penalties are estimated during training from the evidence of the samples (`evidence.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from meshnn.arrays import FloatArray
from meshnn.engine import BUCKETS, Curvature
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.plan import METHODS
from meshnn.storage import Tree
from meshnn.training.evidence import Evidence
from meshnn.training.samples import Samples
from meshnn.training.solvers.base import Change, Progress, Solver, SolverRun, carried, penalised_parameters, sizes_of
from meshnn.training.state import Count, FromZero, Interval, Numbers, Positive, Real, from_tree, to_tree

if TYPE_CHECKING:
    from meshnn.training.settings import Settings


@dataclass
class _DampingMemory:
    """The part of the state that a warm start continues from."""

    before: Count = 0  # iterations of earlier fits
    damping: Positive = 1e-2
    growth: Annotated[float, Interval(2, np.inf, "[)")] = 2.0  # factor of the damping after a rejected step
    first_error: Real = float("nan")  # the loss without penalty at the initial weights
    least: FromZero = 1e-8  # lower bound of the penalties from the evidence
    last: tuple[Real, Real, Real, Real, Real] | None = None  # of `Progress`
    penalties: Numbers | None = None


@dataclass
class _DampingState(_DampingMemory):
    """The complete state; everything else is computed from the weights."""

    epoch: Count = 0
    error: Real = float("nan")  # the loss without penalty
    stuck: str = ""  # the reason why no step is possible, if any
    final: bool = False  # whether that holds for every l2


@dataclass
class LM(Solver):
    """`solver="lm"`, Levenberg-Marquardt: second-order steps on all samples, for small nets.

    Examples
    --------
    >>> from meshnn.training import LM
    >>> LM()
    LM()
    """

    name = "lm"
    needs_float64 = True
    minimises_l1 = False
    last_is_best = True
    warm_starts_with_memory = True
    memory_type = _DampingMemory

    def suits(
        self, settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False
    ) -> tuple[bool, str]:
        """Return whether an iteration fits the budget, and the reason."""
        if settings.l1 > 0:
            return False, "lm does not support l1 > 0"
        method = METHODS.get(settings.gradient)
        if method is not None and not method.compiled:
            return False, f'lm needs the Jacobian in chunks, which gradient="{method.name}" cannot compute'
        if noisy and n_live > n_samples:
            return False, f"lm not tried: more weights ({n_live}) than samples ({n_samples})"
        work = n_live**2 * (float(n_samples) * columns + n_live / 3)
        budget = 2e8 if noisy else 4e8  # multiply-adds; about 20 ms on one core
        each = f" x {columns} per sample" if columns > 1 else ""
        cost = f"edges² x (samples + edges / 3) = {n_live}² x ({n_samples}{each} + {n_live} / 3) = {work:.2g}"
        enough = work <= budget
        least = "at most" if enough else "more than"
        return enough, f"an iteration of lm takes {cost} multiply-adds, {least} {budget:.0e}"

    def start(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> LevenbergMarquardt:
        """Begin to train a mesh on a data set."""
        return LevenbergMarquardt(mesh, samples, settings)


class LevenbergMarquardt(SolverRun):
    """The iterations of one restart on one data set."""

    penalties: FloatArray

    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings) -> None:
        self.mesh, self.samples, self.settings = mesh, samples, settings
        self.auto = isinstance(settings.l2, str)
        self._prepare()
        self.penalties = (1e-4 if isinstance(settings.l2, str) else settings.l2) * self.penalised
        self.epochs = settings.epochs_of(samples.count, by_steps=False)
        self._state = _DampingState()

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The number of iterations so far."""
        return self._state.epoch

    @property
    def error(self) -> float:
        """The loss without penalty."""
        return self._state.error

    def _prepare(self) -> None:
        """Compute the attributes that depend on the graph."""
        mesh = self.mesh
        self.live, self.count = mesh.live_parameters(), mesh.n_parameters
        needed = 8.0 * len(self.live) ** 2 * (BUCKETS + 3)
        check_fits(needed, f'solver="lm" with {len(self.live)} live parameters', 'use solver="adam"')
        self.penalised = penalised_parameters(mesh)[self.live].astype(np.float64)
        self.evidence = Evidence(mesh, self.samples, self.live, self.penalised)

    def rewire(self, change: Change) -> None:
        """Continue after the graph has changed; remaining parameters keep their penalty, new ones get the mean."""
        before, least, mean = np.zeros(self.count), self.evidence.least, self.l2
        before[self.live] = self.penalties
        self._prepare()
        self.evidence.least = least
        kept = carried(change.parameters, before)[self.live]
        self.penalties = np.where(kept > 0, kept, mean) * self.penalised
        self._reset_damping()
        self._state.final = False
        self._state.error = self._evaluate()[0]

    def _reset_damping(self) -> None:
        self._state.stuck, self._state.damping, self._state.growth = "", 1e-2, 2.0

    @property
    def l2(self) -> float:  # type: ignore[override]
        """The penalty, or the mean of the penalties from the evidence."""
        return self.evidence.mean(self.penalties) if self.auto else float(self.settings.l2)

    def _evaluate(self) -> tuple[float, float]:
        """Return the loss without penalty and the fraction of correct samples."""
        return self.samples.evaluate(self.mesh, self.settings.n_jobs)

    def _penalty(self) -> float:
        return 0.5 * float(self.penalties @ self.mesh.parameters[self.live] ** 2)

    def advance(self, most: int) -> Progress:
        """Run one iteration: a step that decreases the loss, if there is one."""
        state, due = self._state, self._estimate_due()
        last = None if state.last is None else Progress(*state.last)
        if last is not None and state.stuck and (state.final or not due):
            state.epoch += 1
            return last._replace(fell=0.0, finished=state.stuck if state.final else "")
        # one BLAS thread, because the order of sums depends on their number; overflow is checked below
        with _blas().limit(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
            made = self._iterate(due, last)
        state.epoch += 1
        state.last = (made.loss, made.correct, made.gradient_norm, made.rate, made.fell or 0.0)
        return made._replace(finished=state.stuck if state.final else "")

    def _estimate_due(self) -> bool:
        """Return whether l2 is estimated in this iteration: in every third one.

        In classification the first estimate waits until the loss is halved or hardly decreases: at the initial weights
        the evidence would choose penalties that keep the net from learning.
        """
        state = self._state
        done = state.before + state.epoch
        if not self.auto or done == 0 or done % 3:
            return False
        if not self.samples.loss.likelihood or state.last is None:
            return True
        return state.error <= 0.5 * state.first_error or state.last[4] <= 0.003 * state.last[0]

    def _iterate(self, due: bool, last: Progress | None) -> Progress:
        state = self._state
        model = self.samples.curvature(self.mesh, self.settings.gradient, self.live, self.settings.n_jobs)
        weights = self.mesh.parameters[self.live].astype(np.float64)
        if np.isnan(state.error):
            state.error = state.first_error = self._evaluate()[0]
            if not np.isfinite(state.error):
                raise MeshError(
                    f"the loss is {state.error} at the initial weights; scale the features or use bounded activations"
                )
        if due and self._estimate(model.matrix, weights) and last is not None:
            return last._replace(fell=0.0)
        before = state.error + self._penalty()
        grad = model.grad + self.penalties * weights
        model.matrix[np.diag_indices_from(model.matrix)] += self.penalties
        norm = float(np.linalg.norm(grad))
        if not (np.isfinite(norm) and np.isfinite(model.matrix).all()):
            state.stuck, state.final = "the Jacobian overflowed", True
        elif norm == 0.0:
            state.stuck, state.final = "the gradient is zero", True
        if state.stuck:
            return Progress(before, model.correct, norm, state.damping, 0.0)
        return self._step(model, weights, grad, before, norm)

    def _estimate(self, matrix: FloatArray, weights: FloatArray) -> bool:
        """Estimate the penalties; return whether the run ends: they no longer change, and no step is possible."""
        state = self._state
        found = self.evidence.penalties(matrix, weights, self.penalties, state.error)
        if state.stuck:
            state.final = bool((np.abs(found - self.penalties) <= 1e-9 * self.penalties).all())
            if state.final and state.last is not None:
                return True
            self._reset_damping()
        self.penalties = found
        return False

    def _step(self, model: Curvature, weights: FloatArray, grad: FloatArray, before: float, norm: float) -> Progress:
        """Increase the damping until a step decreases the loss."""
        state, matrix, rounding = self._state, model.matrix, 4 * float(np.finfo(np.float64).eps)
        diagonal = np.diag(matrix).copy()
        # a lower bound, so that edges with almost no effect get steps of bounded length
        scale = np.maximum(diagonal, 1e-6 * max(diagonal.max(), np.finfo(np.float64).tiny))
        while state.damping <= 1e16:
            step = _solve(matrix, state.damping * scale, grad)
            if step is not None:
                self.mesh.parameters[self.live] = weights + step
                error, correct = self._evaluate()
                loss = error + self._penalty()
                predicted = 0.5 * float(state.damping * step @ (scale * step) - grad @ step)
                gain = (before - loss) / predicted if predicted > 0 else -1.0
                # differences of losses below rounding error are unreliable, but the gradient is exact: one last step
                last = 0 < predicted <= rounding * before and loss <= before * (1 + rounding)
                if last:
                    self._end_steps()
                elif np.isfinite(loss) and gain > 1e-4:
                    state.damping = max(state.damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), 1e-9)
                    state.growth = 2.0
                if last or (np.isfinite(loss) and gain > 1e-4):
                    state.error = error
                    return Progress(loss, correct, norm, state.damping, before - loss)
            state.damping *= state.growth
            state.growth *= 2.0
        self.mesh.parameters[self.live] = weights
        self._end_steps()
        return Progress(before, model.correct, norm, state.damping, 0.0)

    def _end_steps(self) -> None:
        self._state.stuck, self._state.final = "no step decreases the loss further", not self.auto

    def _now(self) -> _DampingState:
        return replace(self._state, least=self.evidence.least, penalties=self.penalties)

    def _resume(self, state: _DampingState) -> None:
        self._state, self.evidence.least = state, state.least
        if state.penalties is not None:
            self.penalties = state.penalties

    def memory(self) -> Tree:
        """Return the state that a warm start continues from."""
        found = self._now()
        found.before, found.penalties = found.before + found.epoch, self.penalties.copy() if self.auto else None
        if found.stuck:
            found.damping, found.growth = 1e-2, 2.0
        return {name: value for name, value in to_tree(found).items() if name in _DampingMemory.__dataclass_fields__}

    def recall(self, tree: Tree) -> None:
        """Begin with the memory of an earlier run; the first iteration reports a loss that is not finite."""
        found, error = from_tree(_DampingMemory, tree, sizes_of(self.mesh)), self._evaluate()[0]
        if not self.auto:  # l2 is a number in this fit
            found.penalties = None
        self._resume(_DampingState(**vars(found), error=error if np.isfinite(error) else float("nan")))

    def state(self) -> Tree:
        """Return the state with which `restore` continues bit-identically."""
        found: Tree = to_tree(self._now())
        return found

    def restore(self, tree: Tree) -> None:
        """Continue from a state; raise MeshError if it is invalid, because files are not trusted."""
        self._resume(from_tree(_DampingState, tree, sizes_of(self.mesh), "solver"))
        if self.epoch > self.epochs:
            raise MeshError(f"solver.epoch must be at most {self.epochs}, got {self.epoch}")


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _solve(matrix: FloatArray, shift: FloatArray, grad: FloatArray) -> Any:
    """Return -(matrix + diag(shift))^-1 grad by Cholesky; None if the matrix is nearly singular."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        factor = cho_factor(shifted.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    step = -cho_solve(factor, grad, check_finite=False)
    return step if np.isfinite(step).all() else None
