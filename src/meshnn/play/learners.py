"""Training of a net: `lm` and `adam` on all samples repeatedly, `stream` on one sample after the other."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from meshnn.errors import MeshError
from meshnn.losses import loss_named
from meshnn.mesh import Mesh
from meshnn.play.data import PlayData, drift
from meshnn.play.limits import LIMITS
from meshnn.streaming.growth import Growth
from meshnn.training.api import as_samples
from meshnn.training.settings import Settings
from meshnn.training.solvers import LM, Adam, Change
from meshnn.training.solvers.first_order import FirstOrderRun
from meshnn.training.solvers.lm import LevenbergMarquardt

__all__ = ["SOLVERS", "BatchLearner", "LearnResult", "StreamLearner", "check_work", "new_learner"]

SOLVERS = ("lm", "adam", "stream", "stream-adam")


class LearnResult(NamedTuple):
    """The result of some epochs, or of some samples of a stream."""

    loss: float  # without regularisation, so that nets and solvers can be compared
    accuracy: float  # on the training samples; NaN in a regression
    note: str = ""
    finished: bool = False


def check_work(mesh: Mesh, data: PlayData, solver: str) -> None:
    """Raise an error if an iteration of lm would take seconds."""
    live, count = len(mesh.live_parameters()), len(data.y)
    work = live**2 * (float(count) * loss_named(data.loss).columns(data.n_outputs) + live / 3)
    if solver == LM.name and work > LIMITS.lm_work:
        raise MeshError(
            f"an iteration of lm with {live:,} edges and {count:,} samples takes {work:.1g} multiply-adds, expected at "
            f"most {LIMITS.lm_work:.1g}; use adam, or prune the net"
        )


class BatchLearner:
    """`lm` or `adam` on all samples."""

    unit = "epoch"
    units = 1  # epochs in the next slice

    def __init__(self, mesh: Mesh, data: PlayData, solver: str, rate: float, done: int) -> None:
        check_work(mesh, data, solver)
        self.mesh, self.samples = mesh, as_samples(mesh, data.X, data.y, data.loss)
        chosen = LM() if solver == "lm" else Adam(learning_rate=rate, schedule="constant")
        l2: Any = "evidence" if solver == "lm" else 1e-4
        self.settings = Settings(solver=chosen, max_epochs=10**9, tol=0.0, n_jobs=1, l2=l2)
        self.solver: Any = chosen.start(mesh, self.samples, self.settings, np.random.default_rng([data.seed, 3]))
        self.before = done

    @property
    def done(self) -> int:
        """The number of epochs so far."""
        return int(self.before + self.solver.epoch)

    def advance(self, most: int) -> LearnResult:
        """Train for at most `most` epochs, or for one iteration of lm."""
        made = self.solver.advance(most)
        note = made.note or (f"lm has converged: {made.finished}" if made.finished else "")
        accuracy = self.samples.accuracy(made.correct) if self.samples.loss.classifies else math.nan
        if isinstance(self.solver, LevenbergMarquardt):
            loss = self.solver.error
        else:
            loss = max(made.loss - float(self.solver.optimizer.penalty(self.mesh.parameters)), 0.0)
        return LearnResult(loss, accuracy, note, bool(made.finished))

    def rewire(self, growth: Growth, change: Change) -> None:
        """Continue after an edit; remaining edges keep their moments or penalties."""
        self.solver.rewire(change)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of adam and discard reductions after divergence."""
        if isinstance(self.solver, FirstOrderRun):
            self.solver.set_rate(rate)


class StreamLearner:
    """Predicts, then learns, each sample of a stream; samples of a table are repeated in random order."""

    unit = "sample"
    units = 1  # samples in the next slice

    def __init__(self, mesh: Mesh, data: PlayData, solver: str, rate: float, done: int) -> None:
        self.mesh, self.data, self.rate, self.done = mesh, data, rate, done
        self.filters = solver == "stream"
        self.order = np.empty(0, np.int64)
        self.rng = np.random.default_rng([data.seed, 4, done])
        self.losses, self.correct = np.empty(0), np.empty(0)
        self.stream = self._new()

    def _new(self) -> Any:
        if self.filters:
            return self.mesh.stream(self.data.loss, "ekf", memory="none")
        return self.mesh.stream(self.data.loss, "adam", memory="none", rate=self.rate)

    def advance(self, most: int) -> LearnResult:
        """Learn `most` samples."""
        X, y = self._next(most)
        out = np.asarray(self.stream.run(X, y), np.float64)
        if not np.isfinite(self.mesh.weights).all():
            raise MeshError("the weights are not finite; lower the rate, or draw new weights")
        if self.data.task == "classify":
            top = out.max(axis=1, keepdims=True)
            losses = np.log(np.exp(out - top).sum(axis=1)) + top[:, 0] - out[np.arange(len(y)), y]
            self.correct = np.append(self.correct, out.argmax(axis=1) == y)[-LIMITS.window :]
        else:
            losses = 0.5 * ((out - y) ** 2).sum(axis=1)
        self.losses = np.append(self.losses, losses)[-LIMITS.window :]
        self.done += most
        return LearnResult(float(self.losses.mean()), float(self.correct.mean()) if len(self.correct) else math.nan)

    def _next(self, count: int) -> tuple[Any, Any]:
        if self.data.streams:
            X, y = drift(count, self.done, self.data.seed)
            return self.data.scaling.inputs(X), y
        while len(self.order) < count:
            self.order = np.append(self.order, self.rng.permutation(len(self.data.y)))
        rows, self.order = self.order[:count], self.order[count:]
        return self.data.X[rows], self.data.y[rows]

    def rewire(self, growth: Growth, change: Change) -> None:
        """Continue after an edit; states, influences and covariances are kept unless the ticks have changed."""
        if self.stream.ticks_per_sample != self.mesh.ticks:
            self.stream = self._new()
            return
        self.stream.grow(growth, self.mesh.values, self.mesh.codes, self.mesh.ties, change.parameters)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of adam and reset its moments."""
        self.rate = rate
        if not self.filters:
            self.stream = self._new()


def new_learner(mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> BatchLearner | StreamLearner:
    """Return the learner of a solver, after `done` epochs or samples."""
    kind = StreamLearner if solver.startswith("stream") else BatchLearner
    return kind(mesh, data, solver, rate, done)
