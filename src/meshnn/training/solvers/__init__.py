"""The solvers there are, and which one is taken: decided once, for the net and its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.losses import Loss
from meshnn.training.solvers.adam import Adam
from meshnn.training.solvers.base import Change, Progress, Solver, SolverRun
from meshnn.training.solvers.first_order import FirstOrder
from meshnn.training.solvers.lm import LM
from meshnn.training.solvers.sgd import SGD

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["LM", "SGD", "SOLVERS", "Adam", "Change", "Choice", "FirstOrder", "Progress", "Solver", "SolverRun",
           "candidates", "choose_solver", "is_noisy", "solver_named"]  # fmt: skip

#: "auto" takes the first one that suits.
SOLVERS: tuple[type[Solver], ...] = (LM, Adam, SGD)


@dataclass(frozen=True)
class Choice:
    """A solver and why it was taken; an alternative to be tried, if another might do better on the samples."""

    solver: Solver
    reason: str
    alternative: Solver | None = None

    @property
    def wants_float64(self) -> bool:
        """Whether one of them needs it."""
        return any(solver is not None and solver.wants_float64 for solver in (self.solver, self.alternative))


def solver_named(name: str) -> Solver:
    """A solver with its default options."""
    known("solver", name, [kind.name for kind in SOLVERS])
    return next(kind() for kind in SOLVERS if kind.name == name)


def candidates(solver: Any) -> tuple[Solver, ...]:
    """What a user may pass as `solver`: an object, a short form, or several of which the first that suits is taken."""
    if isinstance(solver, Solver):
        return (solver,)
    if isinstance(solver, Sequence) and not isinstance(solver, str):
        if solver and all(isinstance(each, Solver) for each in solver):
            return tuple(solver)
        raise MeshError(f"solver must be a Solver, a name or a list of Solvers, got {solver!r}")
    if not isinstance(solver, str):
        given = f"the class {solver.__name__}" if isinstance(solver, type) else repr(solver)
        raise MeshError(f"solver must be a name or an object such as Adam(learning_rate=0.01), got {given}")
    known("solver", solver, ["auto", *(kind.name for kind in SOLVERS)])
    return tuple(kind() for kind in SOLVERS if solver in ("auto", kind.name))


def is_noisy(loss: Loss, structure: Any) -> bool:
    """Whether targets are assumed to be noisy: classes are, but a graph that changes has other means against noise."""
    return loss.classifies and not structure


def choose_solver(settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False) -> Choice:
    """The solver to run, for this many live edges, samples and columns per sample (see `Loss.columns`).

    Classes are `noisy`: labels say less than values, and the best fit of them is rarely the best prediction. Steps
    with a penalty that was tried on samples held out then come first, see benchmarks/tables.py.
    """
    if len(settings.candidates) == 1:
        return Choice(settings.candidates[0], "as asked for")
    reasons: list[str] = []
    for solver in settings.candidates:
        suits, reason = solver.suits(settings, n_live, n_samples, columns, noisy)
        if not suits:
            reasons.append(reason)
            continue
        other = next(other for other in settings.candidates if other is not solver)
        tried = settings.l2 == "auto" and not reasons  # as penalties are
        if noisy and not reasons:
            also = f"; {solver.name} is tried, too" if tried else ""
            return Choice(other, f"classes are learned by steps{also}", solver if tried else None)
        return Choice(solver, reason or "; ".join(reasons), other if tried else None)
    raise MeshError(f"none of the solvers suits: {'; '.join(reasons)}")
