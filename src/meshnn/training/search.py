"""`search`: penalties and solvers tried on samples held out, the meaning of `l2="auto"`.

A net of some hundred edges learns a few hundred samples in milliseconds, so there is no need to estimate how well it
would do on samples it has not seen: it is tried. First-order steps are taken with a few penalties, each from the same
first weights (a net that a strong penalty has made linear stays so), and judged by the mean loss of samples held out:
five folds of few samples, three of some more, a quarter of many, once. The first three penalties span the range; then
it is narrowed down around the best, and a penalty that is clearly behind is not tried on all folds.

Levenberg-Marquardt with penalties from the evidence (`evidence.py`) finds better weights where there is little noise
and overfits where there is much. Where it is affordable it is tried too, on the same samples.

With more than 5,000 samples a part of them decides. A penalty must hold against the noise of the gradient, which falls
with their number, so the penalty found is multiplied by the share of the samples it was found on.
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

#: Penalties that may be tried.
GRID = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


@dataclass
class SearchLimits:
    """Sizes of the search."""

    first: tuple[float, ...] = (0.1, 0.01, 1e-3)  # penalties that are tried first
    rounds: int = 4  # of trying the neighbours of the best penalty
    trials: int = 6  # the usual number
    folds: tuple[tuple[int, int], ...] = ((5, 500), (3, 1_500))  # and up to how many samples
    held_out: float = 0.25  # share that is held out once of more samples
    rare: int = 20  # fewest samples of a class to hold out, else there are folds
    distinct: int = 20  # fewest different samples among which copies are looked for
    rows: int = 5_000  # samples that decide, at most
    fewest: int = 8  # samples of which some are held out
    steps: int = 1_500  # of a trial ...
    work: float = 1.2e10  # ... fewer if the search would take more multiply-adds, some 2 s ...
    least_steps: int = 300  # ... but at least these
    strong: float = 0.3  # penalties from here on settle sooner ...
    settled: float = 0.4  # ... after this share of the steps
    behind: float = 1.2  # times the loss of the best is clearly behind
    usual: float = 5.0  # prior: penalty times samples, within a power of ten
    clearly: float = 0.5  # factor by which the evidence must lower the loss where first-order steps are the default ...
    rather: float = 0.9  # ... and where they are the alternative, since steps with a penalty err less
    # trials of lm: most iterations, those without a fall until it ends, and the relative fall that counts
    short: tuple[int, int, float] = (75, 10, 1e-3)  # where lm is the default
    long: tuple[int, int, float] = (200, 30, 1e-5)  # where it would have to be much better
    look: int = 10  # iterations of lm between two evaluations of the held-out samples
    many: int = 64  # samples from which on lm is tried on one fold only


LIMITS = SearchLimits()


@dataclass(frozen=True)
class SearchResult:
    """The solver and penalty to use, and a message about what was tried."""

    solver: Solver
    l2: float | str
    message: str


def search(
    mesh: Mesh, samples: Samples, settings: Settings, choice: Choice, seed: int, validation: Samples | None = None
) -> SearchResult | None:
    """Find the penalty, and the better of a solver and its alternative; the mesh keeps its weights.

    With too few samples to hold any out it is the usual penalty, and None for a solver that finds its own.
    """
    before = mesh.values.copy()
    near = _in_memory(samples, seed)
    folds = _folds(near, seed) if validation is None else [(_some(near, seed), validation)]
    if not folds:
        if not isinstance(choice.solver, FirstOrder):
            return None
        l2 = LIMITS.usual / max(samples.count, 1)
        return SearchResult(choice.solver, l2, f"l2 {l2:.2g}, as usual: there are too few samples to hold any out")
    decisive = folds[0][0].count + (folds[0][1].count if validation is None else 0)
    try:
        return _Search(mesh, settings, folds, decisive, decisive / samples.count, seed).run(choice)
    finally:
        mesh.values[:] = before


def _in_memory(samples: Samples, seed: int) -> InMemorySamples:
    """All samples, or of those that are not in memory as many as are to decide."""
    if isinstance(samples, InMemorySamples):
        return samples
    rng, count = np.random.default_rng([seed, 4]), min(samples.count, LIMITS.rows)
    return samples.subset(np.sort(rng.choice(samples.count, count, replace=False, shuffle=False)))


def _folds(samples: InMemorySamples, seed: int) -> list[tuple[InMemorySamples, Samples]]:
    """Pairs of samples to learn from and samples held out; classes are stratified, and copies stay together."""
    rng = np.random.default_rng([seed, 1])
    rows = rng.permutation(samples.count)[: LIMITS.rows]
    if len(rows) < LIMITS.fewest:
        return []
    count = next((folds for folds, most in LIMITS.folds if len(rows) <= most), 0)
    loss, values = samples.targets.loss, samples.targets.values
    if loss.classifies and not loss.several and values.ndim == 2:  # else a sample has a label for every tick
        labels = values[rows, 0]
        if LIMITS.held_out * np.unique(labels, return_counts=True)[1].min() < LIMITS.rare:
            count = max(count, LIMITS.folds[-1][0])  # a few samples of a class decide nothing
        rows = rows[np.argsort(labels, kind="stable")]
    group = _copies(samples.X[:, rows])
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    deal = (np.argsort(np.argsort(first)) % (count or round(1 / LIMITS.held_out)))[place]
    found = [(np.sort(rows[deal != k]), np.sort(rows[deal == k])) for k in range(count or 1)]
    return [(samples.subset(a), samples.subset(b)) for a, b in found]


def _copies(X: Array) -> Array:
    """The group of each sample: copies of one sample share a group, or a net would know what is held out.

    Where there are few different samples, or inputs have few values, samples may be alike without being copies: then
    each has a group of its own.
    """
    flat = np.ascontiguousarray(X.transpose(1, 0, 2).reshape(X.shape[1], -1))
    _, group = np.unique(flat.view(f"V{flat.itemsize * flat.shape[1]}").ravel(), return_inverse=True)
    distinct = int(group.max()) + 1
    if distinct == len(group) or distinct < LIMITS.distinct:
        return np.arange(len(group))
    if not any(len(np.unique(column)) > distinct / 2 for column in flat.T):
        return np.arange(len(group))
    return np.asarray(group)


def _some(samples: InMemorySamples, seed: int) -> InMemorySamples:
    """As many samples as are to decide."""
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
        """Try penalties with a first-order solver, then the second-order one, if there is one."""
        default, alternative = choice.solver, choice.alternative
        given = [solver for solver in (default, alternative) if solver is not None]
        steps = next((solver for solver in given if isinstance(solver, FirstOrder)), None) or Adam()
        second = next((solver for solver in given if not isinstance(solver, FirstOrder)), None)
        best = self._penalty(steps)
        l2, message = best * self.share, f"l2 {best * self.share:.2g} (held-out loss {self._losses_around(best)})"
        if second is None or (self._late() and default is steps):
            return SearchResult(steps, l2, message)
        folds = len(self.folds) if self.folds[0][0].count <= LIMITS.many else 1
        beat = float(np.mean(self.tried[best][:folds]))
        loss = self._evidence(second, folds, beat, LIMITS.long if default is steps else LIMITS.short)
        where = "" if folds == len(self.folds) else f", {beat:.3g} on the first fold"
        message = f"{message}{where}, {second.name} with penalties from the evidence {loss:.3g}"
        if loss < beat * (LIMITS.clearly if default is steps else 1.0 if alternative is None else LIMITS.rather):
            return SearchResult(second, "auto", message)
        return SearchResult(second if default is second and alternative is None else steps, l2, message)

    def _penalty(self, solver: FirstOrder) -> float:
        """The penalty of the grid with the lowest loss of held-out samples."""
        for l2 in LIMITS.first:
            self._try(solver, l2)
        for _ in range(LIMITS.rounds):
            if self._late():
                break
            k, known = GRID.index(self._best()), len(self.tried)
            for l2 in GRID[max(k - 1, 0) : k + 2]:
                self._try(solver, l2)
            if len(self.tried) == known:
                break
        return self._best()

    def _losses_around(self, l2: float) -> str:
        """Losses of the penalties around the best, in words."""
        k = GRID.index(l2)
        shown = [other for other in GRID[max(k - 1, 0) : k + 2] if other in self.tried]
        return ", ".join(f"{other * self.share:.2g}: {np.mean(self.tried[other]):.3g}" for other in shown)

    def _best(self) -> float:
        """The likeliest penalty, given the losses and the prior; the strongest of several."""
        means = {l2: float(np.mean(losses)) for l2, losses in self.tried.items() if len(losses) == len(self.folds)}
        if not math.isfinite(min(means.values())):
            return max(means)
        # a loss that is no likelihood is measured in units of its noise
        unit = (1.0 if self.likelihood else 2.0 * min(means.values())) / self.count
        return min(means, key=lambda l2: means[l2] + 0.5 * unit * math.log10(l2 * self.count / LIMITS.usual) ** 2)

    def _late(self) -> bool:
        """Whether half of `max_seconds` is used up."""
        return self.until is not None and time.perf_counter() > self.until

    def _try(self, solver: FirstOrder, l2: float) -> None:
        """Try a penalty on all folds, or on as many as show that it is clearly behind."""
        if l2 in self.tried or (self.tried and self._late()):
            return
        losses: list[float] = []
        best = self.tried[self._best()] if self.tried else None
        for k in range(len(self.folds)):
            losses.append(self._trial(solver, l2, k))
            if best is not None and k >= 1 and sum(losses) > LIMITS.behind * sum(best[: k + 1]):
                break
        self.tried[l2] = losses

    def _trial(self, solver: FirstOrder, l2: float, fold: int) -> float:
        """The loss of held-out samples after steps with a penalty; infinite if they diverge."""
        learned, held_out = self.folds[fold]
        self.mesh.values[:] = self.first
        rng = np.random.default_rng([self.seed, 2, fold])
        try:
            epochs = self.epochs if l2 < LIMITS.strong else max(1, round(LIMITS.settled * self.epochs))
            run = FirstOrderRun(solver, self.mesh, learned, replace(self.settings, l2=l2, max_epochs=epochs), rng)
            run.every = run.most  # no rows are needed
            while run.epoch < run.epochs:
                run.advance(run.epochs - run.epoch)
        except MeshError:
            return math.inf
        return self._loss(held_out)

    def _evidence(self, solver: Solver, folds: int, beat: float, most: tuple[int, int, float]) -> float:
        """The loss of held-out samples of a solver that finds penalties itself; above `beat` if it is hopeless."""
        total = 0.0
        for k in range(folds):
            total += self._alone(solver, k, beat, most)
            if total > LIMITS.behind * beat * folds:  # losses are never negative
                break
        return total / folds

    def _alone(self, solver: Solver, fold: int, beat: float, most: tuple[int, int, float]) -> float:
        learned, held_out = self.folds[fold]
        iterations, patience, least = most
        self.mesh.values[:] = self.first
        settings = replace(self.settings, l2="auto", max_epochs=iterations)
        run = solver.start(self.mesh, learned, settings, np.random.default_rng([self.seed, 3, fold]))
        before, idle = math.inf, 0
        while run.epoch < run.epochs:
            progress = run.advance(1)
            idle = 0 if progress.fell is None or progress.fell > least * progress.loss else idle + 1
            if progress.finished or idle >= patience or self._late():
                break
            if run.epoch % LIMITS.look == 0:
                now = self._loss(held_out)
                if now > LIMITS.behind * beat and now >= before:
                    return now
                before = now
        return self._loss(held_out)

    def _loss(self, part: Samples) -> float:
        found, _ = part.evaluate(self.mesh, self.settings.n_jobs)
        return found if math.isfinite(found) else math.inf
