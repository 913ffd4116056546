"""Samples, wherever they are: what a solver asks of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import whole_number
from meshnn.arrays import Array
from meshnn.engine import Curvature, Engine, Optimizer, Steps
from meshnn.losses import Loss, Targets
from meshnn.mesh import Mesh

__all__ = ["Dataset", "Epoch", "InMemoryDataset", "StepsOf"]

#: Samples that tell about the loss of many.
GLANCE = 2**14


class Epoch(NamedTuple):
    """An epoch of samples that are far away, which comes in pieces; one that has begun goes on after `piece`."""

    piece: int = 0
    sums: tuple[float, float, float] = (
        0.0,
        0.0,
        0.0,
    )  # so far: loss, share of correct samples, last gradient norm

    def plus(self, record: Array, share: float) -> Epoch:
        """After another piece with such a record, which is such a share of the samples."""
        loss, correct, _ = self.sums
        sums = (loss + share * float(record[0]), correct + share * float(record[1]), float(record[2]))
        return Epoch(self.piece + 1, sums)


class StepsOf(ABC):
    """Steps on samples that are far away: what `Steps` is to those in memory."""

    engine: Engine
    batches: int  # an epoch
    n: int

    @abstractmethod
    def rewire(self, engine: Engine) -> None:
        """Go on with another graph of the same inputs and outputs."""

    def order(self, rng: np.random.Generator, epochs: int) -> NDArray[np.int64]:
        """A seed for each epoch, drawn from a random stream: the order of the samples follows from it."""
        return rng.integers(2**62, size=(epochs, 1))

    def checked(self, order: Any) -> NDArray[np.int64]:
        """The seed of one epoch, if it can be one: it may come from a file."""
        return np.array([whole_number("order", int(np.asarray(order).ravel()[0]), least=0, most=2**62)])

    @abstractmethod
    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        told: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Take the steps of one epoch, or of the rest of one that has begun, in place.

        `told` is called after every piece with where it stands and how many samples are done. It ends early after a
        loss that is not finite.
        """


class Dataset(ABC):
    """Samples that may be in memory, on a disk or on other machines.

    Solvers see them through these methods only, so that where they are is nobody else's business.
    """

    #: Whether they are at hand; else a row of the history is one epoch, in which there are pulses.
    in_memory: ClassVar[bool] = True
    loss: Loss
    mass: float  # sum of the sample weights; the number of samples if there are none

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of samples."""

    @property
    def timed(self) -> bool:
        """Whether other ticks than the last are looked at."""
        return False

    def columns(self, n_outputs: int) -> int:
        """Columns of a square root of the curvature that a sample fills, on average."""
        return self.loss.columns(n_outputs)

    def accuracy(self, correct: float) -> float:
        """The share of samples that were met, from a sum of rounded ones."""
        return min(correct, 1.0) if math.isfinite(correct) else correct

    @abstractmethod
    def steps(self, mesh: Mesh, method: str, size: int, n_threads: int | None) -> Any:
        """`Steps`, or `StepsOf`, in batches of this size."""

    @abstractmethod
    def evaluate(self, mesh: Mesh, n_threads: int | None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""

    def glance(self, mesh: Mesh, n_threads: int | None) -> float:
        """About the loss, quickly: of samples that are far away, from some, evenly spaced."""
        if self.in_memory:
            return self.evaluate(mesh, n_threads)[0]
        few = min(self.count, GLANCE)
        found = self.take(np.arange(few) * self.count // few)
        loss, _ = found.evaluate(mesh, n_threads)
        return loss * self.mass / max(found.mass, np.finfo(float).tiny)

    @abstractmethod
    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_threads: int | None) -> Curvature:
        """Loss, gradient and Gauss-Newton matrix by the parameters `live`."""

    @abstractmethod
    def take(self, rows: Any) -> InMemoryDataset:
        """Some of them in memory, by their numbers; shares as they are among all."""

    @property
    def near(self) -> InMemoryDataset | None:
        """All of them, if they are in memory."""
        return None


@dataclass(frozen=True)
class InMemoryDataset(Dataset):
    """Samples in memory: inputs `(1 or ticks, n, n_inputs)` and what the outputs should be."""

    X: Array
    targets: Targets
    mass: float

    @property
    def loss(self) -> Loss:  # type: ignore[override]
        """What they are judged by."""
        return self.targets.loss

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.X.shape[1])

    @property
    def timed(self) -> bool:
        """Whether other ticks than the last are looked at."""
        return self.targets.timed

    def columns(self, n_outputs: int) -> int:
        """Columns of a square root of the curvature that a sample fills, on average: so many for every look at it."""
        each = self.loss.columns(n_outputs)
        if self.targets.at is None:
            return each
        return max(round(each * float(self.targets.looks.sum()) / self.count), 1)

    @cached_property
    def _alike(self) -> bool:
        share = self.targets.share
        if self.targets.at is not None:  # looks are counted, not samples
            return False
        return bool((share == share[0]).all())

    def accuracy(self, correct: float) -> float:
        """The share of samples that were met, from a sum of rounded ones; a whole number of them if all are alike."""
        if not math.isfinite(correct):
            return correct
        return min(round(correct * self.count) / self.count if self._alike else correct, 1.0)

    def steps(self, mesh: Mesh, method: str, size: int, n_threads: int | None) -> Steps:
        """In batches of this size."""
        return Steps(mesh.engine("epochs", method, size), self.X, self.targets, size, n_threads)

    def evaluate(self, mesh: Mesh, n_threads: int | None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""
        return mesh.engine().evaluate(mesh.values, self.X, self.targets, n_threads)

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_threads: int | None) -> Curvature:
        """Loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        engine = mesh.engine("curvature", method, self.count)
        return engine.curvature(mesh.values, self.X, self.targets, live, n_threads)

    def take(self, rows: Any) -> InMemoryDataset:
        """Some of them, by their numbers."""
        targets = self.targets.of(rows)
        return InMemoryDataset(self.X[:, rows], targets, self.mass * float(targets.share.sum(dtype="float64")))

    @property
    def near(self) -> InMemoryDataset:
        """All of them."""
        return self
