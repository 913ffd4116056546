"""Levenberg-Marquardt on the forward Jacobian.

With the loss E(w), its gradient g and the Gauss-Newton matrix M = sum of J' H J, each iteration solves

    (M + mu S) step = -g        S = diag(M), kept away from 0

and compares what the step gained with what the quadratic model promised, rho. A step that loses is not taken: mu grows
ever faster until one gains. After a gain mu shrinks by max(1/3, 1 - (2 rho - 1)^3) (Nielsen, 1999): much if the model
was right, not at all if it promised twice too much.

With l2="auto" the penalties are found on the way, from the evidence of the samples (`evidence.py`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import POSITIVE, real_number, switch, whole_number
from meshnn.engine import BUCKETS
from meshnn.errors import MeshError
from meshnn.memory import check_fits
from meshnn.mesh import Mesh
from meshnn.plan import METHODS
from meshnn.storage import Tree
from meshnn.training.evidence import Evidence
from meshnn.training.first_order import carried, penalised_parameters
from meshnn.training.samples import Samples
from meshnn.training.solver import Change, Progress, Solver, any_number

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["LM_BUDGET", "LevenbergMarquardt"]

#: `auto` takes it up to so many multiply-adds an iteration, some 20 ms on one core; and tries it for noisy targets.
LM_BUDGET, TRIAL_BUDGET = 400_000_000, 200_000_000
FIRST_DAMPING = 1e-2
LEAST_DAMPING, MOST_DAMPING = 1e-9, 1e16
#: The smallest entry of S over the largest: an edge that hardly counts still gets a step of bounded length.
FLOOR = 1e-6
#: l2="auto": where it starts and how often it is looked at.
FIRST_L2, EVERY = 1e-4, 3
#: Fall of the loss in an iteration, over the loss, below which l2 is looked at.
SLOW = 0.003
#: A change of l2, over l2, that no longer counts.
SETTLED = 1e-9
#: Gain over promise below which a step is refused.
LEAST_GAIN = 1e-4
#: What rounding makes of a loss, over the loss.
ROUNDING = 4 * float(np.finfo(np.float64).eps)
#: Numbers that a warm start takes over, besides penalties and the last step.
_OUTLIVING = ("before", "damping", "growth", "first_error", "least")
NO_STEP = "no step lowers the loss any more"


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class LevenbergMarquardt(Solver):
    """`solver="lm"`."""

    name = "lm"
    wants_float64 = True
    minimises_l1 = False
    last_is_best = True  # what is minimised changes with l2
    warms = True

    @classmethod
    def suits(
        cls, settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False
    ) -> tuple[bool, str]:
        """If an iteration fits the budget."""
        if settings.l1 > 0:
            return False, "l1 is asked for, which lm cannot minimise"
        method = METHODS.get(settings.gradient)
        if method is not None and not method.curvature:
            return False, f'lm builds its matrix from a Jacobian chunk by chunk, which "{method.name}" does not give'
        if noisy and n_live > n_samples:
            return False, f"{n_live} edges would learn {n_samples} noisy samples by heart"
        work, budget = n_live**2 * (float(n_samples) * columns + n_live / 3), TRIAL_BUDGET if noisy else LM_BUDGET
        each = f" x {columns} a sample" if columns > 1 else ""
        text = f"edges² x (samples + edges / 3) = {n_live}² x ({n_samples}{each} + {n_live} / 3) = {work:.2g}"
        if work <= budget:
            return True, f"{text} multiply-adds an iteration fit the budget of {budget:.0e}"
        return False, f"{text} multiply-adds an iteration of lm exceed the budget of {budget:.0e}"

    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> None:
        self.mesh, self.samples, self.settings = mesh, samples, settings
        self.auto = isinstance(settings.l2, str)
        self._prepare()
        self.penalties = (FIRST_L2 if isinstance(settings.l2, str) else settings.l2) * self.penalised
        self.epoch, self.epochs = 0, settings.epochs_of(samples.count, by_steps=False)
        self.before = 0  # iterations of fits that it goes on from
        self.damping, self.growth = FIRST_DAMPING, 2.0
        self.error = self.first_error = float("nan")  # the loss without its penalty, now and at the first weights
        self.stuck, self.final = "", False  # why there is no step, and whether another l2 might change that
        self.last: Progress | None = None

    def _prepare(self) -> None:
        """All that follows from the graph."""
        mesh, samples = self.mesh, self.samples
        self.live = mesh.live_parameters()
        self.count = mesh.n_parameters
        needed = 8.0 * len(self.live) ** 2 * (BUCKETS + 3)
        check_fits(needed, f'solver="lm" with {len(self.live)} live parameters', 'use solver="adam"')
        self.penalised = penalised_parameters(mesh)[self.live].astype(np.float64)
        self.evidence = Evidence(mesh, samples, self.live, self.penalised)

    def rewire(self, change: Change) -> None:
        """Go on after the graph has changed: what stayed keeps its penalty, new parameters get the mean of all."""
        before, least, mean = np.zeros(self.count), self.evidence.least, self.l2
        before[self.live] = self.penalties
        self._prepare()
        self.evidence.least = least
        kept = carried(change.parameters, before)[self.live]
        self.penalties = np.where(kept > 0, kept, mean) * self.penalised
        self.damping, self.growth, self.stuck, self.final = FIRST_DAMPING, 2.0, "", False
        self.error = self._evaluate()[0]

    @property
    def l2(self) -> float:
        """The penalty, or the mean of those found."""
        return self.evidence.mean(self.penalties) if self.auto else float(self.settings.l2)

    def _evaluate(self) -> tuple[float, float]:
        """Loss without penalty, and correct."""
        return self.samples.evaluate(self.mesh, self.settings.n_threads)

    def _penalty(self) -> float:
        return 0.5 * float(self.penalties @ self.mesh.parameters[self.live] ** 2)

    def advance(self, most: int) -> Progress:
        """One iteration: a step that lowers the loss, or the finding that there is none."""
        look = self._time_to_look()
        if self.stuck and (self.final or not look):
            assert self.last is not None
            self.epoch += 1
            return self.last._replace(fell=0.0, finished=self.stuck if self.final else "")
        # BLAS sums in another order with more threads (we split the work ourselves); what overflows is looked at below
        with _blas().limit(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
            self.last = self._iterate(look)
        self.epoch += 1
        return self.last._replace(finished=self.stuck if self.final else "")

    def _time_to_look(self) -> bool:
        """Whether l2 is looked at now.

        In classification not before half the loss is explained, unless it hardly falls: the evidence of a net that
        explains nothing yet asks for a penalty that keeps it so.
        """
        done = self.before + self.epoch
        if not self.auto or done < EVERY or done % EVERY:
            return False
        if not self.samples.loss.likelihood or self.last is None or self.last.fell is None:
            return True
        return self.error <= 0.5 * self.first_error or self.last.fell <= SLOW * self.last.loss

    def _iterate(self, look: bool) -> Progress:
        model = self.samples.curvature(self.mesh, self.settings.gradient, self.live, self.settings.n_threads)
        start = self.mesh.parameters[self.live].astype(np.float64)
        if np.isnan(self.error):
            self.error = self.first_error = self._evaluate()[0]
            if not np.isfinite(self.error):
                raise MeshError(
                    f"the loss is {self.error} at the first weights; scale the features or use bounded activations"
                )
        matrix = model.matrix
        if look:
            found = self.evidence.penalties(matrix, start, self.penalties, self.error)
            if self.stuck:
                self.final = bool((np.abs(found - self.penalties) <= SETTLED * self.penalties).all())
                if self.final and self.last is not None:
                    return self.last._replace(fell=0.0)
                self.stuck, self.damping, self.growth = "", FIRST_DAMPING, 2.0
            self.penalties = found
        before = self.error + self._penalty()
        grad = model.grad + self.penalties * start
        matrix[np.diag_indices_from(matrix)] += self.penalties
        norm = float(np.linalg.norm(grad))
        if not (np.isfinite(norm) and np.isfinite(matrix).all()):
            self.stuck, self.final = "the Jacobian overflowed", True
            return Progress(before, model.correct, norm, self.damping, 0.0)
        if norm == 0.0:
            self.stuck, self.final = "the gradient is zero", True
            return Progress(before, model.correct, norm, self.damping, 0.0)
        diagonal = np.diag(matrix).copy()
        scale = np.maximum(diagonal, FLOOR * max(diagonal.max(), np.finfo(np.float64).tiny))
        while self.damping <= MOST_DAMPING:
            step = _solve(matrix, self.damping * scale, grad)
            if step is not None:
                self.mesh.parameters[self.live] = start + step
                error, correct = self._evaluate()
                loss = error + self._penalty()
                promise = 0.5 * float(self.damping * step @ (scale * step) - grad @ step)
                gain = (before - loss) / promise if promise > 0 else -1.0
                if 0 < promise <= ROUNDING * before and loss <= before * (1 + ROUNDING):
                    # a difference of losses tells nothing any more, but the gradient does: one last step
                    self.error = error
                    self.stuck, self.final = NO_STEP, not self.auto
                    return Progress(loss, correct, norm, self.damping, before - loss)
                if np.isfinite(loss) and gain > LEAST_GAIN:
                    self.error = error
                    self.damping = max(self.damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), LEAST_DAMPING)
                    self.growth = 2.0
                    return Progress(loss, correct, norm, self.damping, before - loss)
            self.damping *= self.growth
            self.growth *= 2.0
        self.mesh.parameters[self.live] = start
        self.stuck, self.final = NO_STEP, not self.auto
        return Progress(before, model.correct, norm, self.damping, 0.0)

    def state(self, stream: bool = False) -> Tree:
        """Epoch, damping, loss and penalties; the rest follows from the weights. Of a warm start, what outlives it."""
        if stream:
            damping = {"damping": FIRST_DAMPING, "growth": 2.0} if self.stuck else {}
            now = self.state() | damping | {"before": self.before + self.epoch, "first_error": self.first_error}
            found = {name: now[name] for name in (*_OUTLIVING, "last")}
            return found | {"penalties": self.penalties.copy() if self.auto else None}
        return {
            "epoch": self.epoch,
            "before": self.before,
            "damping": self.damping,
            "growth": self.growth,
            "errors": [self.error, self.first_error],
            "least": self.evidence.least,
            "stuck": [self.stuck, self.final],
            "last": None if self.last is None else [*self.last[:4], self.last.fell or 0.0],
            "penalties": self.penalties,
        }

    def restore(self, state: Tree, stream: bool = False) -> None:
        """Go on from there."""
        if stream:  # the loss is that of these samples; one that is not finite is found to be so at the first step
            error = self._evaluate()[0]
            error = error if np.isfinite(error) else float("nan")
            fresh = {"epoch": 0, "stuck": ["", False], "errors": [error, state["first_error"]]}
            state = self.check_stream(state, self.mesh) | fresh
            if not (self.auto and state["penalties"] is not None):  # they were given, or are now
                state["penalties"] = self.penalties
        self.epoch = whole_number("epoch", state["epoch"], least=0, most=self.epochs)
        self.before = whole_number("before", state.get("before", 0), least=0, most=2**53)
        self.damping = real_number("damping", state["damping"], *POSITIVE)
        self.growth = real_number("growth", state["growth"], "a number of at least 2", lambda v: 2 <= v < np.inf)
        self.error, self.first_error = (any_number("error", v) for v in state["errors"])
        self.evidence.least = any_number("least", state["least"], least=0.0)
        stored = state["penalties"]
        self.penalties = _checked_penalties(stored, len(self.live))
        stuck, final = state["stuck"]
        self.stuck, self.final = str(stuck), switch("final", final)
        if state["last"] is not None:
            loss, correct, norm, rate, fell = (any_number("last", v) for v in state["last"])
            self.last = Progress(loss, correct, norm, rate, fell)

    @classmethod
    def check_stream(cls, state: Tree, mesh: Mesh) -> Tree:
        """What outlives a fit, if it can be that of such a mesh."""
        found: Tree = {name: any_number(name, state[name]) for name in _OUTLIVING}
        found["before"] = whole_number("before", state["before"], least=0, most=2**53)
        last, penalties = state["last"], state["penalties"]
        found["last"] = None if last is None else [any_number("last", last[k]) for k in range(5)]
        if penalties is not None:
            penalties = _checked_penalties(penalties, len(mesh.live_parameters()))
        return found | {"penalties": penalties}


def _checked_penalties(stored: Any, count: int) -> NDArray[np.float64]:
    right = stored.shape == (count,) and stored.dtype == np.float64
    if not right or not ((stored >= 0) & (stored < np.inf)).all():
        raise MeshError(f"the stored penalties are not {count} numbers of at least 0")
    found: NDArray[np.float64] = stored.copy()
    return found


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
