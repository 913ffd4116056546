"""`Settings`: validated, immutable training options; `EarlyStopping`: options of the hold-out set."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """Keep the weights that are best on a hold-out set, and stop when they no longer improve.

    Parameters
    ----------
    validation_fraction : float or None
        Fraction of the samples that is held out, default 0.1. With None no samples are held out; training then uses
        `X_val, y_val` passed to `fit`, or else the training loss.
    patience : int
        Number of epochs without improvement after which training stops, default 20. Increase it for noisy losses. With
        max_epochs="auto", adam and sgd wait at least a quarter of the epochs.
    scoring : str or callable, optional
        A scikit-learn scorer that replaces the loss on the hold-out set.

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
    """Options of a training run; all values are validated on construction.

    Parameters
    ----------
    solver : "auto", "adam", "sgd", "lm", a Solver or a list of Solvers
        `Adam(...)`, `SGD(...)` and `LM()` hold the options of a solver; a name selects its default options. From a
        list, and with "auto" (default), the first suitable solver is used.
    batch_size : "auto", int or None
        Samples per batch. "auto" (default) is 32 up to 2,500 samples, 64 up to 50,000, else 256; None is the whole
        data set. `lm` always uses the whole data set.
    max_epochs : int or "auto"
        Maximum number of passes over the samples, or of iterations of `lm`. "auto" (default) is 300 iterations, or the
        number of epochs that gives 4,000 steps but at least 15 epochs; fewer if those exceed 20,000 steps.
    l1, l2 : float, float or "auto" or "evidence"
        Regularisation strengths: `l1 * sum |w| + l2 / 2 * sum w^2` is added to the mean loss, without bias edges.
        Defaults 0.0 and "auto". `lm` does not support l1. With l2="auto" several strengths are compared on hold-out
        samples, for `lm` also those estimated by the evidence. "evidence" (`lm` only) uses the
        estimate without the comparison.
    gradient : "auto", "forward", "factored", "influence" or "adjoint"
        Method of gradient computation, default "auto". All methods are exact and differ in time and memory.
    patience, tol : int, float
        Stop when the loss (of the hold-out set if there is one) has not fallen by `tol` within `patience` epochs.
        Defaults 20 and 1e-4; tol=0 disables stopping. With max_epochs="auto", adam and sgd wait at least a quarter of
        the epochs. A learning rate with a schedule is first reduced to 0 over a fifth of the epochs so far, at least
        over 5.
    n_restarts : int
        Number of starts from different random weights, default 1; the start with the lowest loss is kept.
    n_jobs : int, optional
        Number of threads. By default as many as speed up the computation; -1 is all cores, -2 all but one.
    max_seconds : float, optional
        Stop after the row at which the training time of all restarts reaches this limit. No limit by default.
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
            raise MeshError(f'l2="evidence" requires solver="lm", got solver={self.asked!r}; use l2="auto"')
        if self.l1 > 0 and not any(solver.minimises_l1 for solver in self.candidates):
            able = " or ".join(f'"{kind.name}"' for kind in SOLVERS if kind.minimises_l1)
            raise MeshError(f'solver="{self.asked}" cannot minimise l1; use solver={able}, or l2 instead')

    @cached_property
    def candidates(self) -> tuple[Solver, ...]:
        """The candidate solvers."""
        return candidates(self.solver)

    @property
    def asked(self) -> str:
        """The name of the requested solver, "auto" if there are several."""
        return self.candidates[0].name if len(self.candidates) == 1 else "auto"

    def batch_of(self, n_samples: int) -> int:
        """Return the number of samples per batch."""
        if self.batch_size is None:
            return n_samples
        if isinstance(self.batch_size, str):
            # small batches find better weights, large batches are faster
            return min(32 if n_samples <= 2_500 else 64 if n_samples <= 50_000 else 256, n_samples)
        return min(self.batch_size, n_samples)

    def epochs_of(self, n_samples: int, by_steps: bool) -> int:
        """Return the maximum number of epochs, or of iterations for a solver that takes one step per pass."""
        if not isinstance(self.max_epochs, str):
            return self.max_epochs
        if not by_steps:
            return 300
        steps = -(-max(n_samples, 1) // max(self.batch_of(n_samples), 1))  # per epoch
        return max(-(-4_000 // steps), min(15, 20_000 // steps), 2)

    def shared(self, n_members: int) -> Settings:
        """Return the settings of one of the members of an ensemble, which share the time."""
        return self if self.max_seconds is None else replace(self, max_seconds=self.max_seconds / n_members)

    @property
    def fixed_l2(self) -> float:
        """The l2 of runs that can neither estimate nor search it."""
        return 1e-4 if isinstance(self.l2, str) else self.l2
