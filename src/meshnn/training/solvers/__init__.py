"""The solvers, and the selection of one for a net and its training set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.losses import Loss
from meshnn.training.solvers.base import Change, Progress, Solver, SolverRun
from meshnn.training.solvers.first_order import SGD, Adam, FirstOrder
from meshnn.training.solvers.lm import LM

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["LM", "SGD", "SOLVERS", "Adam", "Change", "Choice", "FirstOrder", "Progress", "Solver", "SolverRun",
           "candidates", "choose_solver", "is_noisy", "solver_named"]  # fmt: skip

#: In order of preference: "auto" selects the first suitable one.
SOLVERS: tuple[type[Solver], ...] = (LM, Adam, SGD)


@dataclass(frozen=True)
class Choice:
    """The selected solver with the reason, and an alternative to try on the samples, if any."""

    solver: Solver
    reason: str
    alternative: Solver | None = None

    @property
    def needs_float64(self) -> bool:
        """Whether the solver or the alternative needs float64."""
        return any(solver is not None and solver.needs_float64 for solver in (self.solver, self.alternative))


def solver_named(name: str) -> Solver:
    """Return a solver with its default options."""
    known("solver", name, [kind.name for kind in SOLVERS])
    return candidates(name)[0]


def candidates(solver: Any) -> tuple[Solver, ...]:
    """Return the candidates for a value of `solver=`: an object, a name, or a list of objects."""
    if isinstance(solver, str):
        known("solver", solver, ["auto", *(kind.name for kind in SOLVERS)])
        return tuple(kind() for kind in SOLVERS if solver in ("auto", kind.name))
    found = tuple(solver) if isinstance(solver, Sequence) else (solver,)
    if not found or not all(isinstance(each, Solver) for each in found):
        raise MeshError(f"solver must be a name, an object such as Adam(learning_rate=0.01) or a list, got {solver!r}")
    return found


def is_noisy(loss: Loss, structure: Any) -> bool:
    """Return whether targets are assumed to be noisy: in classification, unless the graph changes."""
    return loss.classifies and not structure


def choose_solver(settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False) -> Choice:
    """Return the solver for these numbers of live edges, samples and columns per sample (see `Loss.columns`).

    Class labels are `noisy`: they contain less information than values, and the best fit overfits. Then a solver whose
    regularisation strength comes from a hold-out set is preferred, see benchmarks/tables.py.
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
        tried = settings.l2 == "auto" and not reasons  # the search for l2 also compares solvers
        if noisy and not reasons:
            also = f"; {solver.name} is tried, too" if tried else ""
            return Choice(other, f"classes are learned by steps{also}", solver if tried else None)
        return Choice(solver, reason or "; ".join(reasons), other if tried else None)
    raise MeshError(f"none of the solvers suits: {'; '.join(reasons)}")
