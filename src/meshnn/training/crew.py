"""Samples that a crew of workers has: what a trainer sees of them."""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.data.spool import STRIDE, Moments
from meshnn.engine import Curvature, Engine, Optimizer
from meshnn.errors import DataError
from meshnn.mesh import Mesh
from meshnn.training.far import Look, OutOfCoreDataset, Raw
from meshnn.training.lots import ShardPlan
from meshnn.training.samples import Dataset, Epoch, InMemoryDataset, StepsOf
from meshnn.training.settings import Settings

__all__ = ["CrewSamples", "Facts", "LotRows", "WorkerGroup", "cluster_batch", "coded", "joined", "kept_and_held"]

#: Seconds between two looks at where an epoch stands.
PIECE = 2.0
#: Samples that are held out at most.
MOST_HELD = 2**17


class WorkerGroup(ABC):
    """Workers who have the lots of a cut among them; sums are over all samples, in the order of the tree."""

    cut: ShardPlan

    @abstractmethod
    def evaluate(self, mesh: Mesh) -> FloatArray:
        """Loss and correct."""

    @abstractmethod
    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any]) -> FloatArray:
        """Loss, correct, gradient and Gauss-Newton matrix, one after the other."""

    @abstractmethod
    def steps(
        self, mesh: Mesh, method: str, optimizer: Optimizer, seed: int, rates: Array, begun: Epoch, last: int
    ) -> Epoch:
        """Take steps of an epoch up to batch number `last`: parameters of the mesh and moments move in place."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> InMemoryDataset:
        """Some samples, by their numbers in ascending order."""


class CrewSamples(Dataset):
    """All samples of a crew."""

    in_memory: ClassVar[bool] = False

    def __init__(self, crew: WorkerGroup, look: Look, mass: float) -> None:
        self.crew, self.look, self.mass, self.loss = crew, look, mass, look.loss

    @property
    def count(self) -> int:
        """Number of samples."""
        return self.crew.cut.rows

    def steps(self, mesh: Mesh, method: str, size: int, n_threads: int | None) -> CrewSteps:
        """In batches of the size that the cut was made for."""
        return CrewSteps(self.crew, mesh, mesh.engine("epochs", method, size))

    def evaluate(self, mesh: Mesh, n_threads: int | None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""
        loss, correct = self.crew.evaluate(mesh).tolist()
        return loss, correct

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_threads: int | None) -> Curvature:
        """Loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        n = len(live)
        found = self.crew.curvature(mesh, method, live)
        return Curvature(float(found[0]), float(found[1]), found[2 : 2 + n].copy(), found[2 + n :].reshape(n, n).copy())

    def take(self, rows: Any) -> InMemoryDataset:
        """Some of them in memory, in ascending order."""
        return self.crew.take(np.asarray(rows, np.int64))


class CrewSteps(StepsOf):
    """Steps that a crew takes together."""

    def __init__(self, crew: WorkerGroup, mesh: Mesh, engine: Engine) -> None:
        self.crew, self.mesh, self.engine = crew, mesh, engine
        self.n, self.batches = crew.cut.rows, crew.cut.batches
        self._pace = math.nan  # seconds a batch

    def rewire(self, engine: Engine) -> None:
        """Go on with another graph of the same inputs and outputs."""
        self.engine = engine

    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        told: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """In pieces of about a second: how long they are changes nothing."""
        now, method, cut = begun, self.engine.plan.method.name, self.crew.cut
        while now.piece < self.batches and np.isfinite(now.sums[0]):
            some = 1 if math.isnan(self._pace) else max(1, int(PIECE / max(self._pace, 1e-9)))
            began, first = time.perf_counter(), now.piece
            last = min(first + some, self.batches)
            now = self.crew.steps(self.mesh, method, optimizer, int(order[0]), rates, now, last)
            self._pace = (time.perf_counter() - began) / max(now.piece - first, 1)
            if np.isfinite(now.sums[0]):
                told(now, min(now.piece * cut.each * cut.lots, cut.rows))
        return now


class Facts(NamedTuple):
    """What is to be known about a lot of raw rows."""

    moments: Moments
    label_sums: FloatArray
    stamp: str

    @classmethod
    def of(cls, raw: Raw, n_labels: int) -> Facts:
        """Of features, coded targets and weights; in blocks of one size, from the first row of the lot on."""
        X, y, weight = raw
        moments, stamp = Moments(X.shape[1]), hashlib.blake2b(digest_size=16)
        for begin in range(0, len(X), STRIDE):
            part = slice(begin, begin + STRIDE)
            moments.add(X[part], None if weight is None else weight[part])
            for array in (X, y) if weight is None else (X, y, weight):
                stamp.update(np.ascontiguousarray(array[part]).tobytes())
        sums = np.bincount(y[:, 0].astype(np.int64), weight, minlength=n_labels) if n_labels else np.zeros(0)
        return cls(moments, sums.astype(np.float64), stamp.hexdigest())


class LotRows(OutOfCoreDataset):
    """Rows in lots at workers: what is known about all of them, from the facts of each lot in order."""

    cut: ShardPlan
    _held: tuple[float, int] | None = None  # the share that is held out, and a seed

    def hold_out(self, share: float, seed: int) -> None:
        """Some rows of each lot."""
        self._held = (share, seed)
        if not any(map(len, self.chosen(held=True).values())):
            raise DataError("early_stopping would hold out less than one row of every lot; pass X_val and y_val")

    def chosen(self, held: bool) -> dict[int, NDArray[np.int64]]:
        """Of each lot the rows that are held out, or those that are not."""
        if self._held is None:
            return {lot: np.arange(0 if held else size) for lot, size in enumerate(self.cut.sizes)}
        share, seed = self._held
        return {lot: kept_and_held(self.cut, lot, share, seed)[int(held)] for lot in range(self.cut.lots)}

    def cut_of_kept(self) -> ShardPlan:
        """How rows are cut that are not held out: lots are shorter."""
        return self.cut._replace(sizes=tuple(len(rows) for rows in self.chosen(held=False).values()))

    def _know(self, facts: list[Facts], labels: list[Any], names: list[str] | None, columns: int) -> None:
        total = Moments(len(facts[0].moments.mean))
        for fact in facts:
            total.merge(fact.moments)
        if not np.isfinite(total.spread).all():
            column = int(np.flatnonzero(~np.isfinite(total.spread))[0])
            raise DataError(f"feature {column} is too large for its square to be a number; scale it before")
        self.count, self.width, self.names, self.labels = self.cut.rows, len(total.mean), names, labels
        self.several, self.x_mean, self.x_spread = columns > 1, total.mean, total.spread
        self.label_sums = np.sum([fact.label_sums for fact in facts], axis=0) if labels else np.zeros(0)
        words = "".join(fact.stamp for fact in facts) + repr(self.cut)
        self.stamp = hashlib.blake2b(words.encode(), digest_size=32).hexdigest()
        self.batch = self.cut.lots * self.cut.each


def cluster_batch(rows: int, settings: Settings) -> int:
    """Samples in a batch that several workers share: what is asked for, else many, since each step is a message."""
    if settings.solver == "lm":
        return rows
    if settings.batch_size != "auto":
        return settings.batch_of(rows)
    return int(min(max(2048, rows // 64), 8192, rows))


def coded(y: Array, labels: list[Any]) -> FloatArray:
    """Labels (n,) as their numbers in a sorted list; values (n,) or (n, m) as they are. As (n, m)."""
    if labels:
        return np.searchsorted(np.array(labels), y).astype(np.float64)[:, None]
    values = y if y.ndim == 2 else y[:, None]
    return values.astype(np.float64)


def joined(pieces: list[Raw]) -> Raw:
    """Rows one after the other."""
    X, y = (np.concatenate([piece[k] for piece in pieces]) for k in (0, 1))
    return (
        X,
        y,
        None if pieces[0][2] is None else np.concatenate([piece[2] for piece in pieces if piece[2] is not None]),
    )


def kept_and_held(cut: ShardPlan, lot: int, share: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which rows of a lot stay and which are held out, such a share, but no more than fit in memory."""
    size = cut.sizes[lot]
    count = min(round(share * size), MOST_HELD // cut.lots)
    held = np.sort(np.random.default_rng([seed, 2, lot]).choice(size, count, replace=False))
    return np.setdiff1d(np.arange(size), held), held
