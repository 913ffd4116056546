"""`Settings`: how to train, checked once and frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import NoneType

from meshnn.arguments import BELOW_1, FROM_0, POSITIVE, as_list, known, real_number, switch, whole_number
from meshnn.engine.threads import thread_count
from meshnn.errors import MeshError
from meshnn.plan import METHODS
from meshnn.training.solvers import check_solver

__all__ = ["SCHEDULES", "Settings"]

SCHEDULES = ("cosine", "linear", "constant")
GRADIENTS = ("auto", "forward", *(name for name, method in METHODS.items() if method.automatic))
#: Sizes of batches that `auto` takes, and up to how many samples: small ones find better weights, large are faster.
BATCHES = ((32, 2_500), (64, 50_000), (256, math.inf))
#: Steps that first-order solvers take with max_epochs="auto", but so many epochs, unless that makes too many steps, and
#: at least two; iterations of lm.
STEPS, USUAL_EPOCHS, MOST_STEPS, FEWEST_EPOCHS, ITERATIONS = 4_000, 15, 20_000, 2, 300
#: What l2="auto" is where nothing can be held out to find it.
PLAIN_L2 = 1e-4
_NUMBERS = {"learning_rate": POSITIVE, "l1": FROM_0, "tol": FROM_0, "momentum": BELOW_1, "epsilon": FROM_0}
_COUNTS = ("patience", "n_restarts")


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
        None is the whole set. "auto" is 32 up to 2,500 samples, 64 up to 50,000, else 256. `lm` always takes the
        whole set.
    max_epochs : int or "auto"
        Passes over the samples; iterations of `lm`. "auto" is 300 iterations, or as many epochs as make 4,000 steps;
        of large sets 15, fewer where that would be more than 20,000 steps.
    l1, l2 : float, float or "auto"
        The mean loss grows by `l1 * sum |w| + l2 / 2 * sum w^2`, bias edges left out. `lm` knows no l1. With
        l2="auto" penalties are tried on samples held out (see `search.py`); `lm` also takes what the evidence of the
        samples says, where that does better. "evidence" is that alone.
    gradient : "auto", "forward", "factored", "influence" or "adjoint"
    patience, tol : int, float
        Stop when the loss (of the held-out samples if there are any) has not fallen by `tol` within `patience`
        epochs; tol=0 never stops. A rate that follows a schedule is brought down first, over a fifth of the epochs
        there were (at least 5).
    n_restarts : int
        Starts from other random weights; the one with the lowest loss is kept.
    n_threads : int, optional
        By default as many as pay; -1 is all cores, -2 all but one.
    max_seconds : float, optional
        Stop after the row in which so many seconds of training are used up, all restarts together.
    """

    solver: str = "auto"
    learning_rate: float = 0.007
    schedule: str = "cosine"
    batch_size: int | str | None = "auto"
    max_epochs: int | str = "auto"
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
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        known("schedule", self.schedule, SCHEDULES)
        known("gradient", self.gradient, GRADIENTS)
        numbers, counts, betas = dict(_NUMBERS), list(_COUNTS), as_list("betas", self.betas)
        if not isinstance(self.l2, str):
            numbers["l2"] = FROM_0
        elif self.l2 not in ("auto", "evidence"):
            raise MeshError(f'l2 must be "auto", "evidence" or a number of at least 0, got {self.l2!r}')
        elif self.l2 == "evidence" and self.solver != "lm":
            raise MeshError(f'l2="evidence" is for solver="lm", got solver={self.solver!r}; use l2="auto"')
        if not isinstance(self.max_epochs, str):
            counts.append("max_epochs")
        elif self.max_epochs != "auto":
            raise MeshError(f'max_epochs must be "auto" or a whole number of at least 1, got {self.max_epochs!r}')
        if self.max_seconds is not None:
            numbers["max_seconds"] = POSITIVE
        if not isinstance(self.batch_size, (str, NoneType)):
            counts.append("batch_size")
        elif self.batch_size not in ("auto", None):
            raise MeshError(f'batch_size must be "auto", a whole number or None, got {self.batch_size!r}')
        if len(betas) != 2:
            raise MeshError(f"betas must be two numbers, got {len(betas)}")
        self.__dict__.update(
            {name: real_number(name, getattr(self, name), *allowed) for name, allowed in numbers.items()},
            **{name: whole_number(name, getattr(self, name)) for name in counts},
            betas=tuple(real_number(f"betas[{k}]", b, *BELOW_1) for k, b in enumerate(betas)),
            nesterov=switch("nesterov", self.nesterov),
            n_threads=thread_count("n_threads", self.n_threads),
        )
        check_solver(self.solver, self.l1)

    def batch_of(self, n_samples: int) -> int:
        """Samples in a batch."""
        if self.batch_size is None:
            return n_samples
        if isinstance(self.batch_size, str):
            return min(next(size for size, most in BATCHES if n_samples <= most), n_samples)
        return min(self.batch_size, n_samples)

    def epochs_of(self, n_samples: int, by_steps: bool) -> int:
        """Epochs of a solver that takes several steps each, or iterations of one that does not."""
        if not isinstance(self.max_epochs, str):
            return self.max_epochs
        if not by_steps:
            return ITERATIONS
        steps = -(-max(n_samples, 1) // max(self.batch_of(n_samples), 1))  # an epoch
        return max(-(-STEPS // steps), min(USUAL_EPOCHS, MOST_STEPS // steps), FEWEST_EPOCHS)

    @property
    def fixed_l2(self) -> float:
        """The l2 of solvers that cannot find it themselves."""
        return PLAIN_L2 if isinstance(self.l2, str) else self.l2

    def share_of_rate(self, progress: float) -> float:
        """What the schedule leaves of the rate after a share of all steps."""
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        return 1.0 - progress if self.schedule == "linear" else 1.0
