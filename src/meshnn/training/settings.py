"""`Settings`: how to train, checked once and frozen; `EarlyStopping`: when to stop on held-out samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from meshnn.arguments import known
from meshnn.engine.threads import thread_count
from meshnn.errors import MeshError
from meshnn.plan import METHODS
from meshnn.training.solvers import SOLVERS, Solver, candidates
from meshnn.training.state import FromZero, Interval, Options, Positive, PositiveInt, check_fields


@dataclass
class EarlyStopping(Options):
    """Hold samples out, keep the weights that do best on them, and stop when these do no better.

    Parameters
    ----------
    validation_fraction : float or None
        Share of the samples that is held out. None: nothing is held out, and the training loss decides, unless
        samples are passed to `fit` as `X_val, y_val`.
    patience : int
        Epochs without improvement after which training stops.
    scoring : str or callable, optional
        A score as in scikit-learn that judges the held-out samples instead of the loss.

    Examples
    --------
    >>> from meshnn.training import EarlyStopping
    >>> EarlyStopping(patience=5)
    EarlyStopping(validation_fraction=0.1, patience=5, scoring=None)
    """

    validation_fraction: Annotated[float, Interval(0, 1, "()")] | None = 0.1
    patience: PositiveInt = 20
    scoring: Any = None


@dataclass(frozen=True)
class Settings:
    """How to train. Every value is checked when it is made.

    Parameters
    ----------
    solver : "auto", "adam", "sgd", "lm", a Solver or a list of Solvers
        `Adam(...)`, `SGD(...)` and `LM()` hold the options of solvers; a name stands for the default options. Of
        several, as in "auto", the first that suits is taken.
    batch_size : "auto", int or None
        None is the whole set. "auto" is 32 up to 2,500 samples, 64 up to 50,000, else 256. `lm` always takes the
        whole set.
    max_epochs : int or "auto"
        Passes over the samples; iterations of `lm`. "auto" is 300 iterations, or as many epochs as make 4,000 steps;
        15 for large sets, fewer where that would be more than 20,000 steps.
    l1, l2 : float, float or "auto"
        The mean loss grows by `l1 * sum |w| + l2 / 2 * sum w^2`, bias edges left out. `lm` knows no l1. With
        l2="auto" penalties are tried on samples held out (see `search.py`); `lm` also takes what the evidence of the
        samples says, where that does better. "evidence" is that alone.
    gradient : "auto", "forward", "factored", "influence" or "adjoint"
    patience, tol : int, float
        Stop when the loss (of the held-out samples if there are any) has not fallen by `tol` within `patience`
        epochs; tol=0 never stops. A rate that follows a schedule is brought down first, over a fifth of the epochs
        so far (at least 5).
    n_restarts : int
        Starts from other random weights; the one with the lowest loss is kept.
    n_jobs : int, optional
        By default as many as pay; -1 is all cores, -2 all but one.
    max_seconds : float, optional
        Stop after the row in which these seconds of training are used up, all restarts together.
    """

    solver: Any = "auto"
    batch_size: PositiveInt | Literal["auto"] | None = "auto"
    max_epochs: PositiveInt | Literal["auto"] = "auto"
    l1: FromZero = 0.0
    l2: FromZero | Literal["auto", "evidence"] = "auto"
    gradient: str = "auto"
    patience: PositiveInt = 20
    tol: FromZero = 1e-4
    n_restarts: PositiveInt = 1
    n_jobs: int | None = None
    max_seconds: Positive | None = None

    def __post_init__(self) -> None:
        threads = thread_count("n_jobs", self.n_jobs)
        self.__dict__.update(check_fields(self), n_jobs=threads)
        known("gradient", self.gradient, ("auto", "forward", *METHODS))
        if self.l2 == "evidence" and self.asked != "lm":
            raise MeshError(f'l2="evidence" is for solver="lm", got solver={self.asked!r}; use l2="auto"')
        if self.l1 > 0 and not any(solver.minimises_l1 for solver in self.candidates):
            able = " or ".join(f'"{kind.name}"' for kind in SOLVERS if kind.minimises_l1)
            raise MeshError(f'solver="{self.asked}" cannot minimise l1; use solver={able}, or l2 instead')

    @cached_property
    def candidates(self) -> tuple[Solver, ...]:
        """The solvers from which one is chosen."""
        return candidates(self.solver)

    @property
    def asked(self) -> str:
        """The name of the solver asked for; "auto" if there are several."""
        return self.candidates[0].name if len(self.candidates) == 1 else "auto"

    def batch_of(self, n_samples: int) -> int:
        """Samples in a batch."""
        if self.batch_size is None:
            return n_samples
        if isinstance(self.batch_size, str):
            # small ones find better weights, large ones are faster
            return min(32 if n_samples <= 2_500 else 64 if n_samples <= 50_000 else 256, n_samples)
        return min(self.batch_size, n_samples)

    def epochs_of(self, n_samples: int, by_steps: bool) -> int:
        """Epochs of a solver that takes several steps each, or iterations of one that does not."""
        if not isinstance(self.max_epochs, str):
            return self.max_epochs
        if not by_steps:
            return 300
        steps = -(-max(n_samples, 1) // max(self.batch_of(n_samples), 1))  # per epoch
        return max(-(-4_000 // steps), min(15, 20_000 // steps), 2)

    @property
    def fixed_l2(self) -> float:
        """The l2 of solvers that cannot find it themselves, nor can samples be held out to find it."""
        return 1e-4 if isinstance(self.l2, str) else self.l2
