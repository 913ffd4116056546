"""The solvers there are, and which one is taken: decided once, for the net and its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshnn.arguments import known
from meshnn.errors import MeshError
from meshnn.losses import Loss
from meshnn.training.first_order import Adam, Sgd
from meshnn.training.levenberg import LevenbergMarquardt
from meshnn.training.solver import Solver

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["SOLVERS", "Choice", "check_solver", "choose_solver", "is_noisy", "solver_named", "streaming_solver"]

#: `auto` takes the first one that suits.
SOLVERS: tuple[type[Solver], ...] = (LevenbergMarquardt, Adam, Sgd)


@dataclass(frozen=True)
class Choice:
    """A solver and why it was taken; another one that might do better on the samples, which is to be tried."""

    kind: type[Solver]
    reason: str
    rival: type[Solver] | None = None

    @property
    def solver(self) -> str:
        """Its name."""
        return self.kind.name

    @property
    def wants_float64(self) -> bool:
        """Whether one of them needs it."""
        return any(kind is not None and kind.wants_float64 for kind in (self.kind, self.rival))


def solver_named(name: str) -> type[Solver]:
    """The solver of a name."""
    known("solver", name, [kind.name for kind in SOLVERS])
    return next(kind for kind in SOLVERS if kind.name == name)


def check_solver(name: str, l1: float) -> None:
    """Refuse a solver that does not exist or cannot do what it is asked for."""
    known("solver", name, ["auto", *(kind.name for kind in SOLVERS)])
    if l1 > 0 and name != "auto" and not solver_named(name).minimises_l1:
        others = " or ".join(f'"{kind.name}"' for kind in SOLVERS if kind.minimises_l1)
        raise MeshError(f'solver="{name}" cannot minimise l1; use solver={others}, or l2 instead')


def is_noisy(loss: Loss, structure: Any) -> bool:
    """Whether targets are taken for noisy: classes are, but a graph that changes has other means against noise."""
    return loss.classifies and not structure


def choose_solver(settings: Settings, n_live: int, n_samples: int, columns: int, noisy: bool = False) -> Choice:
    """The solver to run, for so many live edges, samples and columns a sample (see `Loss.columns`).

    Classes are `noisy`: labels say less than values, and what fits them best is rarely what predicts them best. Steps
    with a penalty that was tried on samples held out then come first, see benchmarks/tables.py.
    """
    if settings.solver != "auto":
        return Choice(solver_named(settings.solver), "as asked for")
    reasons: list[str] = []
    for kind in SOLVERS:
        suits, reason = kind.suits(settings, n_live, n_samples, columns, noisy)
        if not suits:
            reasons.append(reason)
            continue
        other = next(other for other in SOLVERS if other is not kind)
        tried = settings.l2 == "auto" and not reasons  # as penalties are, and so is which solver does better
        if noisy and not reasons:
            also = f"; {kind.name} is tried, too" if tried else ""
            return Choice(other, f"classes are learned by steps{also}", kind if tried else None)
        return Choice(kind, reason or "; ".join(reasons), other if tried else None)
    raise AssertionError("some solver suits everybody")


def streaming_solver(name: str) -> type[Solver]:
    """The solver that goes on with samples as they come: the one named, or the first that can."""
    return next(kind for kind in SOLVERS if kind.streams and name in ("auto", kind.name))
