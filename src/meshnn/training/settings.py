"""`Settings`: how to train, checked once and frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from meshnn.arguments import as_list, known, real_number, switch, whole_number
from meshnn.errors import MeshError
from meshnn.methods import METHODS
from meshnn.training.solvers import Choice, check_solver, choose_solver

__all__ = ["SCHEDULES", "Choice", "Settings", "choose_solver"]

SCHEDULES = ("cosine", "linear", "constant")
GRADIENTS = ("auto", "forward", *(name for name, method in METHODS.items() if method.automatic))
#: A batch that `auto` does not split, and the size it splits larger sets into.
FULL_UP_TO, MINI = 256, 64
#: What l2="auto" is without the curvature to find it from.
PLAIN_L2 = 1e-4


@dataclass(frozen=True)
class Settings:
    """How to train. Every value is checked when it is made.

    Parameters
    ----------
    solver : "auto", "adam", "sgd" or "lm"
    learning_rate : float
        Of `adam` and `sgd`, at the start.
    schedule : "cosine", "linear" or "constant"
        How the rate falls to 0 over `max_epochs`, or does not.
    batch_size : "auto", int or None
        None is the whole set. "auto" is the whole set up to 256 samples, else 64. `lm` always takes the whole set.
    max_epochs : int
        Passes over the samples; iterations of `lm`.
    l1, l2 : float, float or "auto"
        The mean loss grows by `l1 * sum |w| + l2 / 2 * sum w^2`, bias edges left out. `lm` knows no l1. With
        l2="auto", `lm` finds it from the evidence of the samples, the others take 1e-4.
    gradient : "auto", "forward", "factored", "blocks" or "adjoint"
    patience, tol : int, float
        Stop when the loss (of the held-out samples if there are any) has not fallen by `tol` within `patience`
        epochs; tol=0 never stops.
    n_restarts : int
        Starts from other random weights; the one with the lowest loss is kept.
    """

    solver: str = "auto"
    learning_rate: float = 0.01
    schedule: str = "cosine"
    batch_size: int | str | None = "auto"
    max_epochs: int = 300
    l1: float = 0.0
    l2: float | str = "auto"
    gradient: str = "auto"
    patience: int = 20
    tol: float = 1e-4
    n_restarts: int = 1
    momentum: float = 0.9
    nesterov: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    n_threads: int | None = None

    def __post_init__(self) -> None:
        known("schedule", self.schedule, SCHEDULES)
        known("gradient", self.gradient, GRADIENTS)
        self._set("learning_rate", "a positive number", lambda v: 0 < v < math.inf)
        if isinstance(self.l2, str) and self.l2 != "auto":
            raise MeshError(f'l2 must be "auto" or a number of at least 0, got {self.l2!r}')
        for name in ("l1", "tol") if self.l2 == "auto" else ("l1", "l2", "tol"):
            self._set(name, "a number of at least 0", lambda v: 0 <= v < math.inf)
        self._set("momentum", "a number from 0 to below 1", lambda v: 0 <= v < 1)
        self._set("epsilon", "a number of at least 0", lambda v: 0 <= v < math.inf)
        for name in ("max_epochs", "patience", "n_restarts"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        object.__setattr__(self, "nesterov", switch("nesterov", self.nesterov))
        betas = as_list("betas", self.betas)
        if len(betas) != 2:
            raise MeshError(f"betas must be two numbers, got {len(betas)}")
        checked = [
            real_number(f"betas[{k}]", b, "a number from 0 to below 1", lambda v: 0 <= v < 1)
            for k, b in enumerate(betas)
        ]
        object.__setattr__(self, "betas", tuple(checked))
        if self.n_threads is not None:
            object.__setattr__(self, "n_threads", whole_number("n_threads", self.n_threads))
        if isinstance(self.batch_size, str):
            if self.batch_size != "auto":
                raise MeshError(f'batch_size must be "auto", a whole number or None, got {self.batch_size!r}')
        elif self.batch_size is not None:
            object.__setattr__(self, "batch_size", whole_number("batch_size", self.batch_size))
        check_solver(self.solver, self.l1)

    def _set(self, name: str, what: str, test: Any) -> None:
        object.__setattr__(self, name, real_number(name, getattr(self, name), what, test))

    def batch_of(self, n_samples: int) -> int:
        """Samples in a batch."""
        if self.batch_size is None:
            return n_samples
        if isinstance(self.batch_size, str):
            return n_samples if n_samples <= FULL_UP_TO else MINI
        return min(self.batch_size, n_samples)

    @property
    def fixed_l2(self) -> float:
        """The l2 of solvers that cannot find it themselves."""
        return PLAIN_L2 if isinstance(self.l2, str) else self.l2

    def share_of_rate(self, progress: float) -> float:
        """What the schedule leaves of the rate after a share of all steps."""
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        return 1.0 - progress if self.schedule == "linear" else 1.0
