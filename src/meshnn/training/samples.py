"""Preprocessed samples in memory, in a file or on workers: the interface between data and solvers.

`RowTransform` computes them from raw rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from meshnn.arguments import whole_number
from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.engine import Curvature, Engine, Optimizer, Steps
from meshnn.errors import DataError
from meshnn.losses import Loss, Targets, loss_named
from meshnn.mesh import Mesh
from meshnn.tables.sources import RowBlock


class Epoch(NamedTuple):
    """Progress within an epoch that is trained in pieces."""

    piece: int = 0  # number of pieces done
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)  # loss, fraction of correct samples, last gradient norm

    def plus(self, record: Any, share: float) -> Epoch:
        """Return the progress after one more piece, which contains this share of the samples."""
        loss, correct, _ = self.sums
        sums = (loss + share * float(record[0]), correct + share * float(record[1]), float(record[2]))
        return Epoch(self.piece + 1, sums)


class PiecewiseSteps(ABC):
    """Steps on samples that are not in memory; the counterpart of `Steps`."""

    engine: Engine
    batches: int  # per epoch
    n: int

    def rewire(self, engine: Engine) -> None:
        """Continue with another graph that has the same inputs and outputs."""
        self.engine = engine

    def order(self, rng: np.random.Generator, epochs: int) -> IntArray:
        """Draw one seed per epoch, which determines the order of its samples."""
        return rng.integers(2**62, size=(epochs, 1))

    def checked(self, order: Any) -> IntArray:
        """Return the validated seed of an epoch from a file."""
        return np.array([whole_number("order", int(np.asarray(order).ravel()[0]), least=0, most=2**62)])

    @abstractmethod
    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        report: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Take the steps of one epoch in place, starting at `begun`; stop if a loss is not finite.

        `report` is called after every piece with the progress and the number of samples processed.
        """


class Samples(ABC):
    """Inputs, targets and weights of a data set."""

    #: Whether the samples are in memory; if not, every history row is one epoch, and epochs are trained in pieces.
    in_memory: ClassVar[bool] = False
    loss: Loss
    total_weight: float  # sum of the sample weights; the number of samples if there are none
    count: int
    timed: bool = False  # whether the loss uses other ticks than the last
    equal_weights: bool = False  # whether all samples have the same weight, so that accuracies are multiples of 1/n

    def columns(self, n_outputs: int) -> int:
        """Return the mean number of columns per sample of a square root of the curvature."""
        return self.loss.columns(n_outputs)

    def accuracy(self, correct: float) -> float:
        """Return the fraction of correct samples, given with rounding errors."""
        if not math.isfinite(correct):
            return correct
        return min(round(correct * self.count) / self.count if self.equal_weights else correct, 1.0)

    @abstractmethod
    def steps(self, mesh: Mesh, method: str, size: int, n_jobs: int | None) -> Any:
        """Return `Steps` or `PiecewiseSteps` in batches of this size."""

    @abstractmethod
    def evaluate(self, mesh: Mesh, n_jobs: int | None) -> tuple[float, float]:
        """Return the loss and the fraction of correct samples."""

    def glance(self, mesh: Mesh, n_jobs: int | None) -> float:
        """Return the loss; of samples that are not in memory, estimate it from 16,384 evenly spaced ones."""
        if self.in_memory:
            return self.evaluate(mesh, n_jobs)[0]
        n = min(self.count, 2**14)
        found = self.take(np.arange(n) * self.count // n)
        loss, _ = found.evaluate(mesh, n_jobs)
        return loss * self.total_weight / max(found.total_weight, np.finfo(float).tiny)

    @abstractmethod
    def curvature(self, mesh: Mesh, method: str, live: IntArray, n_jobs: int | None) -> Curvature:
        """Return loss, gradient and Gauss-Newton matrix by the parameters `live`."""

    @abstractmethod
    def take(self, rows: Any) -> InMemorySamples:
        """Load the samples with these ascending numbers; their weights stay relative to all samples."""

    def subset(self, rows: Any) -> InMemorySamples:
        """Load the samples with these ascending numbers as an independent data set: relative weights sum to 1."""
        found = self.take(rows)
        share = float(found.targets.share.sum(dtype=np.float64))
        return replace(found, targets=found.targets.of(slice(None), 1.0 / share))


@dataclass(eq=False)
class InMemorySamples(Samples):
    """Samples in memory: inputs `(1 or ticks, n, n_inputs)` and targets."""

    X: Array
    targets: Targets
    total_weight: float
    in_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.loss, self.count, self.timed = self.targets.loss, int(self.X.shape[1]), self.targets.timed

    @property
    def inputs(self) -> Array:
        """Inputs for `Mesh` methods: `(n, n_inputs)` if they are constant over the ticks."""
        return self.X[0] if len(self.X) == 1 else self.X

    def columns(self, n_outputs: int) -> int:
        """Return the mean number of columns per sample of a square root of the curvature, over all loss ticks."""
        each = self.loss.columns(n_outputs)
        if self.targets.at is None:
            return each
        return max(round(each * float(self.targets.looks.sum()) / self.count), 1)

    @cached_property
    def equal_weights(self) -> bool:  # type: ignore[override]
        """Whether all samples have the same weight."""
        weight = self.targets.share
        return self.targets.at is None and bool((weight == weight[0]).all())

    def steps(self, mesh: Mesh, method: str, size: int, n_jobs: int | None) -> Steps:
        """Return steps in batches of this size."""
        return Steps(mesh.engine("epochs", method, size), self.X, self.targets, size, n_jobs)

    def evaluate(self, mesh: Mesh, n_jobs: int | None) -> tuple[float, float]:
        """Return the loss and the fraction of correct samples."""
        return mesh.engine().evaluate(mesh.values, self.X, self.targets, n_jobs)

    def curvature(self, mesh: Mesh, method: str, live: IntArray, n_jobs: int | None) -> Curvature:
        """Return loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        engine = mesh.engine("curvature", method, self.count)
        return engine.curvature(mesh.values, self.X, self.targets, live, n_jobs)

    def first_inputs(self, count: int, dtype: Any) -> InMemorySamples:
        """Return the samples with only the first inputs."""
        return replace(self, X=np.ascontiguousarray(self.X[:, :, :count], dtype))

    def take(self, rows: Any) -> InMemorySamples:
        """Select samples by their numbers."""
        targets = self.targets.of(rows)
        weight = self.total_weight * float(targets.share.sum(dtype="float64"))
        return InMemorySamples(self.X[:, rows], targets, weight)

    @classmethod
    def join(cls, parts: Sequence[InMemorySamples], total_weight: float) -> InMemorySamples:
        """Concatenate parts of a data set of this total weight; the loss must be at the last tick."""
        values = np.concatenate([part.targets.values for part in parts])
        share = np.concatenate([part.targets.share for part in parts])
        X, weight = np.concatenate([part.X for part in parts], axis=1), total_weight * float(share.sum(dtype="float64"))
        return cls(X, Targets(parts[0].loss, values, share), weight)


@dataclass(frozen=True)
class RowTransform:
    """Preprocessing of rows: scaling, class numbers and class weights. Cheap to send to workers."""

    loss_name: str
    dtype_name: str
    x_mean: FloatArray
    x_scale: FloatArray
    y_mean: FloatArray
    y_scale: FloatArray
    class_index: IntArray | None = None  # by label code, the position in the sorted classes
    class_weight: FloatArray | None = None  # by class number

    @property
    def loss(self) -> Loss:
        """The loss for which targets are prepared."""
        return loss_named(self.loss_name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the network."""
        return np.dtype(self.dtype_name)

    def inputs(self, X: Array) -> Array:
        """Return scaled features; computed in float32 if features and network are float32 and no value can overflow."""
        moderate = (np.abs(self.x_mean) < 1e30).all() and ((self.x_scale > 1e-30) & (self.x_scale < 1e30)).all()
        kind = X.dtype if X.dtype == self.dtype and moderate else np.dtype(np.float64)
        mean, scale = (values.astype(kind) for values in (self.x_mean, 1.0 / self.x_scale))
        found: Array = np.subtract(X, mean, dtype=kind)
        found *= scale
        return found.astype(self.dtype, copy=False)

    def targets(self, y: Array) -> Array:
        """Return targets (n, m) in the form that the loss expects."""
        if self.class_index is not None:
            return self.class_index[y[:, :1].astype(np.int64)].astype(self.dtype)
        if self.loss.logarithmic and (y < 0).any():
            raise DataError(f"for {self.loss_name} y must not be negative, got {y.min():g}")
        return ((y - self.y_mean) / self.y_scale).astype(self.dtype)

    def weights(self, rows: RowBlock) -> FloatArray | None:
        """Return the weights of the rows including class weights, or None if all are 1."""
        if self.class_weight is None or self.class_index is None:
            return None if rows.weight is None else np.asarray(rows.weight, np.float64)
        found = self.class_weight[self.class_index[rows.y[:, 0].astype(np.int64)]]
        return found if rows.weight is None else found * rows.weight

    def total_weight(self, rows: RowBlock) -> float:
        """Return the sum of the weights of the rows."""
        weights = self.weights(rows)
        return float(len(rows.X) if weights is None else weights.sum())

    def samples(self, rows: RowBlock, total_weight: float | None = None) -> InMemorySamples:
        """Return samples in memory; `total_weight` is the weight of the whole data set, by default of these rows."""
        weights = self.weights(rows)
        if weights is None:
            weights = np.ones(len(rows.X))
        total = check_total(float(weights.sum())) if total_weight is None else total_weight
        targets = Targets(self.loss, self.targets(rows.y), (weights / total).astype(self.dtype)[:, None])
        return InMemorySamples(self.inputs(rows.X)[None], targets, float(weights.sum()))


def check_total(weight: float) -> float:
    """Return the total weight of a data set; raise an error if it is 0."""
    if weight <= 0:
        raise DataError("all samples have weight 0; give at least one a positive weight")
    return weight
