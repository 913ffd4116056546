"""How a net learns on the bench: `lm` and `adam` over all samples again and again, `stream` one after the other."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.play.data import PlayData, drift
from meshnn.streaming.growth import Growth
from meshnn.training.api import as_samples
from meshnn.training.settings import Settings
from meshnn.training.solvers import LM, Adam, Change
from meshnn.training.solvers.first_order import FirstOrderRun
from meshnn.training.solvers.lm import LevenbergMarquardt

__all__ = ["SOLVERS", "Batches", "Learner", "OneByOne", "Told", "new_learner"]

SOLVERS = ("lm", "adam", "stream", "stream-adam")
#: Multiply-adds of an iteration of lm, beyond which a page would stand still for seconds.
MOST_WORK = 4e9
#: Samples of a stream that its rates are means of.
WINDOW = 300
ENDLESS = 10**9


class Told(NamedTuple):
    """What some epochs, or samples of a stream, have brought."""

    loss: float  # without penalties, so that nets and solvers can be compared
    rate: float  # of correct among what was learned; NaN if nothing can be hit
    note: str = ""
    finished: bool = False


class Learner:
    """Moves the weights of a mesh."""

    done: int  # epochs, or samples of a stream
    unit: str

    def advance(self, most: int) -> Told:
        """Go on, by at most so many units."""
        raise NotImplementedError

    def rewire(self, growth: Growth, change: Change) -> None:
        """Go on after the graph, the ticks or activations have changed."""
        raise NotImplementedError

    def set_rate(self, rate: float) -> None:
        """Take another learning rate, where there is one."""


class Batches(Learner):
    """`lm` or `adam`."""

    unit = "epoch"

    def __init__(self, mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> None:
        self.mesh, self.samples = mesh, as_samples(mesh, data.X, data.y, data.loss)
        chosen = LM() if solver == "lm" else Adam(learning_rate=rate, schedule="constant")
        l2 = "evidence" if solver == "lm" else 1e-4
        self.settings = Settings(solver=chosen, max_epochs=ENDLESS, tol=0.0, n_jobs=1, l2=l2)
        self._check_work()
        self.solver = chosen.start(mesh, self.samples, self.settings, np.random.default_rng([data.seed, 3]))
        self.before = done

    def _check_work(self) -> None:
        mesh, samples = self.mesh, self.samples
        live, columns = len(mesh.live_parameters()), samples.columns(mesh.topology.n_outputs)
        work = live**2 * (float(samples.count) * columns + live / 3)
        if self.settings.asked == LM.name and work > MOST_WORK:
            raise MeshError(
                f"an iteration of lm with {live:,} edges and {samples.count:,} samples takes {work:.1g} multiply-adds, "
                "too many to watch; take adam, or prune the net"
            )

    @property
    def done(self) -> int:  # type: ignore[override]
        """Epochs so far."""
        return self.before + self.solver.epoch

    def advance(self, most: int) -> Told:
        """Some epochs; one iteration of lm."""
        made = self.solver.advance(most)
        note = made.note or (f"lm has come to its end: {made.finished}" if made.finished else "")
        rate = self.samples.accuracy(made.correct) if self.samples.loss.classifies else math.nan
        return Told(self._error(made.loss), rate, note, bool(made.finished))

    def _error(self, loss: float) -> float:
        """The loss without its penalty."""
        if isinstance(self.solver, LevenbergMarquardt):
            return self.solver.error
        solver: Any = self.solver
        return max(loss - float(solver.optimizer.penalty(self.mesh.parameters)), 0.0)

    def rewire(self, growth: Growth, change: Change) -> None:
        """What stays keeps its moments, or its penalty."""
        self._check_work()
        self.solver.rewire(change)

    def set_rate(self, rate: float) -> None:
        """Of adam; what earlier divergence has left of the rate is forgotten."""
        if isinstance(self.solver, FirstOrderRun):
            self.solver.set_rate(rate)


class OneByOne(Learner):
    """A stream, test then train: each sample is predicted, then learned; samples of a table come again, shuffled."""

    unit = "sample"

    def __init__(self, mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> None:
        self.mesh, self.data, self.done = mesh, data, done
        self.rate = rate
        self.filters = solver == "stream"
        self.order = np.empty(0, np.int64)
        self.rng = np.random.default_rng([data.seed, 4, done])
        self.losses, self.correct = np.empty(0), np.empty(0)
        self.stream = self._new()

    def _new(self) -> Any:
        if self.filters:
            return self.mesh.stream(self.data.loss, "ekf", memory="none")
        return self.mesh.stream(self.data.loss, "adam", memory="none", rate=self.rate)

    def advance(self, most: int) -> Told:
        """Some samples."""
        X, y = self._next(most)
        out = np.asarray(self.stream.run(X, y), np.float64)
        if not np.isfinite(self.mesh.weights).all():
            raise MeshError("the weights are not finite any more; lower the rate, or draw new weights")
        if self.data.task == "classify":
            top = out.max(axis=1, keepdims=True)
            losses = np.log(np.exp(out - top).sum(axis=1)) + top[:, 0] - out[np.arange(len(y)), y]
            self.correct = np.append(self.correct, out.argmax(axis=1) == y)[-WINDOW:]
        else:
            losses = 0.5 * ((out - y) ** 2).sum(axis=1)
        self.losses = np.append(self.losses, losses)[-WINDOW:]
        self.done += most
        return Told(float(self.losses.mean()), float(self.correct.mean()) if len(self.correct) else math.nan)

    def _next(self, count: int) -> tuple[Any, Any]:
        if self.data.streams:
            X, y = drift(count, self.done, self.data.seed)
            return self.data.scaling.inputs(X), y
        while len(self.order) < count:
            self.order = np.append(self.order, self.rng.permutation(len(self.data.y)))
        rows, self.order = self.order[:count], self.order[count:]
        return self.data.X[rows], self.data.y[rows]

    def rewire(self, growth: Growth, change: Change) -> None:
        """States, influences and what the filter knows move along; other ticks make another stream."""
        if self.stream.ticks_per_sample != self.mesh.ticks:
            self.stream = self._new()
            return
        self.stream.grow(growth, self.mesh.values, self.mesh.codes, self.mesh.ties, change.parameters)

    def set_rate(self, rate: float) -> None:
        """Of adam: its moments begin anew."""
        self.rate = rate
        if not self.filters:
            self.stream = self._new()


def new_learner(mesh: Mesh, data: PlayData, solver: str, rate: float, done: int = 0) -> Learner:
    """The learner of a name."""
    kind = OneByOne if solver.startswith("stream") else Batches
    return kind(mesh, data, solver, rate, done)
