"""`search`: selection of the penalty and the solver on hold-out samples, the meaning of `l2="auto"`.

A small network is trained in milliseconds, so penalties are compared by cross-validation. Each penalty gets a number of
first-order steps from the same initial weights (weights are not reused, because a network that a strong penalty has
made linear stays linear) and is scored by the mean loss of the hold-out samples: 5 folds up to 500 samples, 3 folds up
to 1,500, and a single hold-out set of 25 % above. The first three penalties span the range; then the neighbours of the
best one are tried. A penalty that is clearly worse is not tried on all folds.

Levenberg-Marquardt with penalties from the evidence (`evidence.py`) finds better weights if there is little noise, and
overfits if there is much. If it fits the budget, it is tried on the same samples.

The search uses at most 5,000 samples. The noise of the gradient, which the penalty must balance, falls with the number
of samples, so the penalty found is multiplied by the fraction of the samples that was used.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.training.samples import InMemorySamples, Samples
from meshnn.training.solvers import Adam, Choice, FirstOrder, Solver
from meshnn.training.solvers.first_order import FirstOrderRun

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

#: Candidate penalties.
GRID = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


@dataclass
class SearchLimits:
    """Tunable numbers of the search."""

    first: tuple[float, ...] = (0.1, 0.01, 1e-3)  # penalties that are tried first
    rounds: int = 4  # maximum number of times that the neighbours of the best penalty are tried
    trials: int = 6  # typical number of penalties tried, for the estimate of the work
    folds: tuple[tuple[int, int], ...] = ((5, 500), (3, 1_500))  # number of folds, and the maximum number of samples
    held_out: float = 0.25  # fraction held out if there are more samples
    rare: int = 20  # minimum number of hold-out samples of the rarest class; folds are used below it
    distinct: int = 20  # minimum number of distinct samples for the detection of copies
    rows: int = 5_000  # maximum number of samples used by the search
    fewest: int = 8  # minimum number of samples for holding any out
    steps: int = 1_500  # steps per trial
    work: float = 1.2e10  # budget of the search in multiply-adds, about 2 s; the steps are reduced to meet it
    least_steps: int = 300  # minimum number of steps per trial
    strong: float = 0.3  # penalties from this value on converge sooner
    settled: float = 0.4  # fraction of the steps that strong penalties need
    behind: float = 1.2  # a loss above this multiple of the best loss is clearly worse
    usual: float = 5.0  # centre of the prior of penalty times samples; its standard deviation is a factor of 10
    clearly: float = 0.5  # lm must reduce the loss by this factor if first-order steps are the default
    rather: float = 0.9  # the same if first-order steps are the alternative; they overfit less
    # trials of lm: maximum iterations, patience, and the relative decrease that counts as progress
    short: tuple[int, int, float] = (75, 10, 1e-3)  # if lm is the default
    long: tuple[int, int, float] = (200, 30, 1e-5)  # if it has to be much better
    check_every: int = 10  # iterations of lm between two evaluations of the hold-out samples
    many: int = 64  # number of training samples above which lm is tried on one fold only


LIMITS = SearchLimits()


@dataclass(frozen=True)
class SearchResult:
    """The selected solver and penalty, a message about the trials, and the loss on held-out samples (NaN: unknown)."""

    solver: Solver
    l2: float | str
    message: str
    loss: float = math.nan


def search(
    mesh: Mesh, samples: Samples, settings: Settings, choice: Choice, seed: int, validation: Samples | None = None
) -> SearchResult | None:
    """Select the penalty and the better of a solver and its alternative; the weights of the mesh are restored.

    With too few samples for a hold-out set, return the default penalty, or None for a solver that estimates its own.
    """
    before = mesh.values.copy()
    loaded = _loaded(samples, seed)
    folds = _folds(loaded, seed) if validation is None else [(_subset(loaded, seed), validation)]
    if not folds:
        if not isinstance(choice.solver, FirstOrder):
            return None
        l2 = LIMITS.usual / max(samples.count, 1)
        return SearchResult(choice.solver, l2, f"l2 {l2:.2g} (default, too few samples for a hold-out set)")
    decisive = folds[0][0].count + (folds[0][1].count if validation is None else 0)
    try:
        return _Search(mesh, settings, folds, decisive, decisive / samples.count, seed).run(choice)
    finally:
        mesh.values[:] = before


def _loaded(samples: Samples, seed: int) -> InMemorySamples:
    """Return the samples, or a random subset in memory if they are not in memory."""
    if isinstance(samples, InMemorySamples):
        return samples
    rng, count = np.random.default_rng([seed, 4]), min(samples.count, LIMITS.rows)
    return samples.subset(np.sort(rng.choice(samples.count, count, replace=False, shuffle=False)))


def _folds(samples: InMemorySamples, seed: int) -> list[tuple[InMemorySamples, Samples]]:
    """Return pairs of training and hold-out samples; classes are stratified, and copies stay together."""
    rng = np.random.default_rng([seed, 1])
    rows = rng.permutation(samples.count)[: LIMITS.rows]
    if len(rows) < LIMITS.fewest:
        return []
    count = next((folds for folds, most in LIMITS.folds if len(rows) <= most), 0)
    loss, values = samples.targets.loss, samples.targets.values
    if loss.classifies and not loss.several and values.ndim == 2:  # one label per sample
        labels = values[rows, 0]
        if LIMITS.held_out * np.unique(labels, return_counts=True)[1].min() < LIMITS.rare:
            count = max(count, LIMITS.folds[-1][0])  # too few hold-out samples of the rarest class
        rows = rows[np.argsort(labels, kind="stable")]
    group = _copies(samples.X[:, rows])
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    fold_of = (np.argsort(np.argsort(first)) % (count or round(1 / LIMITS.held_out)))[place]
    found = [(np.sort(rows[fold_of != k]), np.sort(rows[fold_of == k])) for k in range(count or 1)]
    return [(samples.subset(a), samples.subset(b)) for a, b in found]


def _copies(X: Array) -> Array:
    """Return the group of each sample: copies share a group, since a copy in the training set would leak.

    If there are few distinct samples, or inputs have few distinct values, equal samples need not be copies; then each
    sample is a group.
    """
    flat = np.ascontiguousarray(X.transpose(1, 0, 2).reshape(X.shape[1], -1))
    _, group = np.unique(flat.view(f"V{flat.itemsize * flat.shape[1]}").ravel(), return_inverse=True)
    distinct = int(group.max()) + 1
    if distinct == len(group) or distinct < LIMITS.distinct:
        return np.arange(len(group))
    if not any(len(np.unique(column)) > distinct / 2 for column in flat.T):
        return np.arange(len(group))
    return np.asarray(group)


def _subset(samples: InMemorySamples, seed: int) -> InMemorySamples:
    """Return the samples, or a random subset if there are more than the search uses."""
    rows = np.random.default_rng([seed, 1]).permutation(samples.count)[: LIMITS.rows]
    return samples if len(rows) == samples.count else samples.subset(np.sort(rows))


class _Search:
    def __init__(
        self, mesh: Mesh, settings: Settings, folds: list[tuple[InMemorySamples, Samples]], count: int, share: float,
        seed: int,
    ) -> None:  # fmt: skip
        self.mesh, self.folds, self.seed = mesh, folds, seed
        self.first = mesh.values.copy()
        learned = folds[0][0]
        self.likelihood, self.count, self.share = learned.targets.loss.likelihood, count, share
        size = settings.batch_of(learned.count)
        work = mesh.engine("epochs", settings.gradient, size).work
        affordable = int(LIMITS.work / (len(folds) * LIMITS.trials * size * max(work, 1.0)))
        self.epochs = max(1, round(max(min(LIMITS.steps, affordable), LIMITS.least_steps) * size / learned.count))
        self.settings = replace(settings, tol=0.0, n_restarts=1)
        self.tried: dict[float, list[float]] = {}
        self.until = None if settings.max_seconds is None else time.perf_counter() + 0.5 * settings.max_seconds

    def run(self, choice: Choice) -> SearchResult:
        """Try penalties with a first-order solver, then the second-order solver if there is one."""
        default, alternative = choice.solver, choice.alternative
        given = [solver for solver in (default, alternative) if solver is not None]
        steps = next((solver for solver in given if isinstance(solver, FirstOrder)), None) or Adam()
        second = next((solver for solver in given if not isinstance(solver, FirstOrder)), None)
        best = self._penalty(steps)
        l2, message = best * self.share, f"l2 {best * self.share:.2g} (held-out loss {self._losses_text(best)})"
        reached = float(np.mean(self.tried[best]))
        if second is None or (self._out_of_time() and default is steps):
            return SearchResult(steps, l2, message, reached)
        folds = len(self.folds) if self.folds[0][0].count <= LIMITS.many else 1
        beat = float(np.mean(self.tried[best][:folds]))
        loss = self._evidence(second, folds, beat, LIMITS.long if default is steps else LIMITS.short)
        where = "" if folds == len(self.folds) else f", {beat:.3g} on the first fold"
        message = f"{message}{where}, {second.name} with penalties from the evidence {loss:.3g}"
        if loss < beat * (LIMITS.clearly if default is steps else 1.0 if alternative is None else LIMITS.rather):
            return SearchResult(second, "auto", message, reached * loss / beat)
        return SearchResult(second if default is second and alternative is None else steps, l2, message, reached)

    def _penalty(self, solver: FirstOrder) -> float:
        """Return the best penalty of the grid."""
        for l2 in LIMITS.first:
            self._try(solver, l2)
        for _ in range(LIMITS.rounds):
            if self._out_of_time():
                break
            k, known = GRID.index(self._best()), len(self.tried)
            for l2 in GRID[max(k - 1, 0) : k + 2]:
                self._try(solver, l2)
            if len(self.tried) == known:
                break
        return self._best()

    def _losses_text(self, l2: float) -> str:
        """Return a text with the hold-out losses of the best penalty and its neighbours."""
        k = GRID.index(l2)
        shown = [other for other in GRID[max(k - 1, 0) : k + 2] if other in self.tried]
        return ", ".join(f"{other * self.share:.2g}: {np.mean(self.tried[other]):.3g}" for other in shown)

    def _best(self) -> float:
        """Return the most probable penalty given losses and prior, or the strongest if all trials diverged."""
        means = {l2: float(np.mean(losses)) for l2, losses in self.tried.items() if len(losses) == len(self.folds)}
        if not math.isfinite(min(means.values())):
            return max(means)
        # a loss that is not a log-likelihood is scaled by its noise
        unit = (1.0 if self.likelihood else 2.0 * min(means.values())) / self.count
        return min(means, key=lambda l2: means[l2] + 0.5 * unit * math.log10(l2 * self.count / LIMITS.usual) ** 2)

    def _out_of_time(self) -> bool:
        """Return whether half of `max_seconds` is used up."""
        return self.until is not None and time.perf_counter() > self.until

    def _try(self, solver: FirstOrder, l2: float) -> None:
        """Try a penalty on all folds, or until it is clearly worse than the best."""
        if l2 in self.tried or (self.tried and self._out_of_time()):
            return
        losses: list[float] = []
        best = self.tried[self._best()] if self.tried else None
        for k in range(len(self.folds)):
            losses.append(self._trial(solver, l2, k))
            if best is not None and k >= 1 and sum(losses) > LIMITS.behind * sum(best[: k + 1]):
                break
        self.tried[l2] = losses

    def _trial(self, solver: FirstOrder, l2: float, fold: int) -> float:
        """Return the hold-out loss after training with a penalty; infinite if training diverges."""
        learned, held_out = self.folds[fold]
        self.mesh.values[:] = self.first
        rng = np.random.default_rng([self.seed, 2, fold])
        try:
            epochs = self.epochs if l2 < LIMITS.strong else max(1, round(LIMITS.settled * self.epochs))
            run = FirstOrderRun(solver, self.mesh, learned, replace(self.settings, l2=l2, max_epochs=epochs), rng)
            run.every = run.most  # as few rows as possible
            while run.epoch < run.epochs:
                run.advance(run.epochs - run.epoch)
        except MeshError:
            return math.inf
        return self._loss(held_out)

    def _evidence(self, solver: Solver, folds: int, beat: float, most: tuple[int, int, float]) -> float:
        """Return the mean hold-out loss of a solver that estimates penalties; stop early if it is far above `beat`."""
        total = 0.0
        for k in range(folds):
            total += self._evidence_trial(solver, k, beat, most)
            if total > LIMITS.behind * beat * folds:  # losses are never negative
                break
        return total / folds

    def _evidence_trial(self, solver: Solver, fold: int, beat: float, most: tuple[int, int, float]) -> float:
        """Return the hold-out loss of one fold; stop early if it is far above `beat` and rising."""
        learned, held_out = self.folds[fold]
        iterations, patience, least = most
        self.mesh.values[:] = self.first
        settings = replace(self.settings, l2="auto", max_epochs=iterations)
        run = solver.start(self.mesh, learned, settings, np.random.default_rng([self.seed, 3, fold]))
        before, idle = math.inf, 0
        while run.epoch < run.epochs:
            progress = run.advance(1)
            idle = 0 if progress.fell is None or progress.fell > least * progress.loss else idle + 1
            if progress.finished or idle >= patience or self._out_of_time():
                break
            if run.epoch % LIMITS.check_every == 0:
                now = self._loss(held_out)
                if now > LIMITS.behind * beat and now >= before:
                    return now
                before = now
        return self._loss(held_out)

    def _loss(self, part: Samples) -> float:
        found, _ = part.evaluate(self.mesh, self.settings.n_jobs)
        return found if math.isfinite(found) else math.inf
