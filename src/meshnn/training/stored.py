"""Samples on a disk: windows of shuffled pages, read ahead by a thread while the one before is learned from.

The order of the samples follows from the seed and the number of rows alone: an epoch is a permutation of all pages, cut
into windows; in a window samples are permuted again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array
from meshnn.data.large import Source
from meshnn.data.spool import PAGE, Spool
from meshnn.engine import Curvature, Engine, Optimizer, Steps
from meshnn.errors import DataError
from meshnn.losses import Targets
from meshnn.mesh import Mesh
from meshnn.training.far import Look, OutOfCoreDataset, Raw
from meshnn.training.samples import Dataset, Epoch, InMemoryDataset, StepsOf

__all__ = ["Ahead", "Coding", "StoredRows", "StoredSamples"]

#: Bytes of a window, and pages that it has at least: enough that neighbours on the disk end up far apart.
WINDOW, FEWEST_PAGES = 2**25, 16
#: Rows that are held out at most, pages that are read to add weights up.
MOST_HELD, STRIDE = 2**17, 2**8
#: Pages, at least, where some are held out.
FEWEST_HELD = 4
#: More labels than that are no classes.
MOST_CLASSES = 1000


class StoredSamples(Dataset):
    """Some pages of a spool, as a net sees them.

    Parameters
    ----------
    spool : Spool
    look : Look
    pages : int array
        In ascending order.
    mass : float
        Sum of the weights of their samples.
    """

    in_memory: ClassVar[bool] = False

    def __init__(self, spool: Spool, look: Look, pages: NDArray[np.int64], mass: float) -> None:
        self.spool, self.look, self.pages, self.mass, self.loss = spool, look, pages, mass, look.loss
        self.sizes = np.minimum(PAGE, spool.count - pages * PAGE)
        self._first = np.concatenate([[0], np.cumsum(self.sizes)])
        self.per_window = max(FEWEST_PAGES, WINDOW // (PAGE * spool.row.itemsize))

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self._first[-1])

    def steps(self, mesh: Mesh, method: str, size: int, n_threads: int | None) -> WindowSteps:
        """In batches of this size."""
        return WindowSteps(self, mesh.engine("epochs", method, size), size, n_threads)

    def numbers(self, rows: Any) -> NDArray[np.int64]:
        """Of samples in ascending order, the numbers of their rows."""
        page = np.searchsorted(self._first, rows, side="right") - 1
        found: NDArray[np.int64] = self.pages[page] * PAGE + np.asarray(rows) - self._first[page]
        return found

    def take(self, rows: Any) -> InMemoryDataset:
        """Some of them in memory, in ascending order."""
        return self.look.samples(_raw(self.spool.rows(self.numbers(rows))), self.mass)

    def _parts(self) -> Iterator[InMemoryDataset]:
        """All of them in the order of their rows, a window at a time."""
        windows = [self.pages[k : k + self.per_window] for k in range(0, len(self.pages), self.per_window)]
        with Ahead(windows, lambda pages: self.look.samples(_raw(self.spool.read(pages)), self.mass)) as parts:
            yield from parts

    def evaluate(self, mesh: Mesh, n_threads: int | None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""
        loss = correct = 0.0
        for samples in self._parts():
            part = samples.evaluate(mesh, n_threads)
            loss, correct = loss + part[0], correct + part[1]
        return loss, correct

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_threads: int | None) -> Curvature:
        """Loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        engine = mesh.engine("curvature", method, PAGE * self.per_window)
        loss = correct = 0.0
        grad, matrix = np.zeros(len(live)), np.zeros((len(live), len(live)))
        for samples in self._parts():
            part = engine.curvature(mesh.values, samples.X, samples.targets, live, n_threads)
            loss, correct = loss + part.loss, correct + part.correct
            grad += part.grad
            matrix += part.matrix
        return Curvature(loss, correct, grad, matrix)


def _raw(rows: Array) -> Raw:
    """Rows of a spool by their parts."""
    return rows["x"], rows["y"], rows["w"] if "w" in (rows.dtype.names or ()) else None


class WindowSteps(StepsOf):
    """Steps on windows of a spool: each is a small set of its own, in which epochs run in compiled code."""

    def __init__(self, samples: StoredSamples, engine: Engine, size: int, n_threads: int | None) -> None:
        self.samples, self.size, self.n_threads = samples, size, n_threads
        self.n = samples.count
        # the page with fewer rows comes last, so that all windows but the last are alike
        cuts = range(0, len(samples.pages), samples.per_window)
        self.counts = [int(samples.sizes[k : k + samples.per_window].sum()) for k in cuts]
        self.before = np.concatenate([[0], np.cumsum([-(-count // size) for count in self.counts])])
        self.batches = int(self.before[-1])
        self.rewire(engine)

    def rewire(self, engine: Engine) -> None:
        """Go on with another graph of the same inputs and outputs."""
        self.engine = engine
        # one that is learned from while the other is filled; the last window has a size of its own
        self._rooms = {count: self._rooms_of(count) for count in set(self.counts)}

    def _rooms_of(self, count: int) -> list[Steps]:
        samples, dtype = self.samples, self.samples.look.dtype
        columns = samples.look.outputs(np.zeros((1, samples.spool.n_targets))).shape[1]
        made = []
        for _ in range(2 if self.counts.count(count) > 1 else 1):
            targets = Targets(samples.loss, np.zeros((count, columns), dtype), np.full((count, 1), 1 / count, dtype))
            X = np.zeros((1, count, samples.spool.width), dtype)
            made.append(Steps(self.engine, X, targets, self.size, self.n_threads))
        return made

    def windows(self, order: Array) -> list[NDArray[np.int64]]:
        """The pages of an epoch, window by window."""
        pages = self.samples.pages
        short = len(pages) - int(self.samples.sizes[-1] < PAGE)
        mixed = np.append(np.random.default_rng([int(order[0]), 0]).permutation(pages[:short]), pages[short:])
        return [mixed[k : k + self.samples.per_window] for k in range(0, len(mixed), self.samples.per_window)]

    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        told: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Window by window; see `StepsOf.epoch`."""
        seed, now, done = int(order[0]), begun, int(sum(self.counts[: begun.piece]))
        windows = list(enumerate(self.windows(order)))[begun.piece :]
        free: dict[int, queue.SimpleQueue[Steps | None]] = {count: queue.SimpleQueue() for count in self._rooms}
        for count, rooms in self._rooms.items():
            for room in rooms:
                free[count].put(room)
        mean = self.samples.mass / self.n

        def fill(window: tuple[int, NDArray[np.int64]]) -> tuple[int, Steps, Array] | None:
            k, pages = window
            steps = free[self.counts[k]].get()
            if steps is None:
                free[self.counts[k]].put(None)  # for the next window of this size
                return None
            X, y, weight = _raw(self.samples.spool.read(np.sort(pages)))
            look = self.samples.look
            weights = look.weights(y, weight)
            look.inputs(X, steps.X[0])
            steps.fill(look.outputs(y), 1.0 if weights is None else weights / mean)
            return k, steps, np.random.default_rng([seed, 1, k]).permutation(len(X))[None]

        with Ahead(windows, fill) as filled:
            try:
                for k, steps, mixed in filled:
                    part = rates[self.before[k] : self.before[k + 1]]
                    record = steps.epochs(values, optimizer, mixed, part)
                    free[self.counts[k]].put(steps)
                    done += self.counts[k]
                    now = now.plus(record[-1], self.counts[k] / self.n)
                    if not np.isfinite(now.sums[0]):
                        break
                    told(now, done)
            finally:
                for rooms_left in free.values():
                    rooms_left.put(None)  # whoever waits for one goes home
        return now


class Ahead:
    """Things made one after the other by a thread, one ahead of whoever takes them."""

    def __init__(self, things: Any, make: Callable[[Any], Any]) -> None:
        self._things, self._make = things, make
        self._made: queue.Queue[tuple[bool, Any]] = queue.Queue(1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meshnn reader", daemon=True)

    def _run(self) -> None:
        try:
            for thing in self._things:
                made = self._make(thing)
                if not self._give((True, made)):
                    return
            self._give((False, None))
        except BaseException as error:  # raised where it is waited for
            self._give((False, error))

    def _give(self, thing: tuple[bool, Any]) -> bool:
        while not self._over.is_set():
            try:
                self._made.put(thing, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __enter__(self) -> Iterator[Any]:
        self._thread.start()
        return self._taken()

    def _taken(self) -> Iterator[Any]:
        while True:
            more, thing = self._made.get()
            if not more:
                if thing is not None:
                    raise thing
                return
            yield thing

    def __exit__(self, *error: Any) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()


class Coding:
    """Numbers for labels, in the order in which they turn up."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self.sums = np.zeros(0)

    def add(self, y: Array, weight: Array | None) -> Array:
        """The codes of some labels; which one gets which does not depend on what is added at once."""
        text = y.dtype.kind in "US"
        if self.codes and text != isinstance(next(iter(self.codes)), (str, bytes)):
            raise DataError("y holds text in some blocks and numbers in others; make them alike")
        if y.dtype.kind == "f" and (some := y[y != np.floor(y)]).size:
            raise DataError(f"y holds {some[0]:g}, which is no label; for amounts take MeshRegressor")
        found, begins, place = np.unique(y, return_index=True, return_inverse=True)
        turn = np.argsort(begins)
        place, found = np.argsort(turn)[place.ravel()], found[turn]
        codes = np.array([self.codes.setdefault(label, len(self.codes)) for label in found.tolist()], np.int64)
        if len(self.codes) > MOST_CLASSES:
            raise DataError(f"y holds more than {MOST_CLASSES:,} different values; for amounts take MeshRegressor")
        coded = codes[place]
        sums = np.bincount(coded, weight, minlength=len(self.codes)).astype(np.float64)
        sums[: len(self.sums)] += self.sums
        self.sums = sums
        return coded


class StoredRows(OutOfCoreDataset):
    """A source, read once into a spool.

    Parameters
    ----------
    source : Source
    classes : bool
        Whether targets are labels.
    folder : path, optional
        Where the spool goes.
    told : callable, optional
        Is told how many rows were read.
    """

    def __init__(
        self, source: Source, classes: bool, folder: Any = None, told: Callable[[int], None] | None = None
    ) -> None:
        coding, spool = Coding(), None
        try:
            for rows in source.blocks():
                y = rows.y if rows.y.ndim == 2 else rows.y[:, None]
                if rows.X.shape[1] == 0:
                    raise DataError(f"there is no feature in {source.name}; nothing could be learned")
                if classes:
                    if y.shape[1] > 1:
                        raise DataError("y has several columns; labels in columns are learned from memory only")
                    y = coding.add(y[:, 0], rows.weight)[:, None]
                elif y.dtype.kind not in "fiub":
                    raise DataError(f"y holds {y.dtype}, expected numbers; for labels take MeshClassifier")
                if spool is None:
                    spool = Spool(
                        rows.X.shape[1], y.shape[1], source.dtype, rows.weight is not None, folder, source.expected
                    )
                if y.shape[1] != spool.n_targets:
                    raise DataError(f"y has {y.shape[1]} columns in some blocks and {spool.n_targets} in others")
                spool.append(rows.X, y.astype(np.float64), rows.weight)
                if told is not None:
                    told(spool.count)
            if spool is None:
                raise DataError(f"{source.name} has no rows")
            self.stamp = spool.close()
            if spool.features.weight <= 0:
                raise DataError("all samples have the weight 0; give some of them a weight")
        except BaseException:
            if spool is not None:
                spool.release()
            raise
        self.spool = spool
        self.count, self.width, self.names = self.spool.count, self.spool.width, source.names
        self.several, self.weighted = rows.y.ndim == 2, self.spool.weighted
        self.x_mean, self.x_spread = self.spool.features.mean, self.spool.features.spread
        self.y_least = None if classes else self.spool.least
        self.labels, self.label_sums = list(coding.codes), coding.sums
        if classes and self.weighted:  # in one order, however the rows came: sums of fractions depend on it
            self.label_sums = np.zeros(len(self.labels))
            for _, y, weight in self._strides(np.arange(self.spool.pages)):
                self.label_sums += np.bincount(y[:, 0].astype(np.int64), weight, len(self.labels))
        self._kept, self._held = np.arange(self.spool.pages), np.arange(0)

    def few(self, count: int) -> Raw:
        """So many rows, evenly spaced."""
        count = min(count, self.count)
        return _raw(self.spool.rows(np.arange(count) * self.count // count))

    def hold_out(self, share: float, seed: int) -> None:
        """Some pages, drawn at random."""
        pages = self.spool.pages
        if pages < FEWEST_HELD:  # one of them must not be most of all there is
            least = (FEWEST_HELD - 1) * PAGE + 1
            raise DataError(
                f"early_stopping holds out pages of {PAGE} rows, of at least {least}, but there are {self.count}; read "
                "them into memory and fit from there"
            )
        count = min(max(1, round(share * pages)), pages - 1, MOST_HELD // PAGE)
        self._held = np.sort(np.random.default_rng([seed, 2]).choice(pages, count, replace=False, shuffle=False))
        self._kept = np.setdiff1d(np.arange(pages), self._held)

    def samples(self, look: Look) -> StoredSamples:
        """All rows that are not held out."""
        return StoredSamples(self.spool, look, self._kept, self._mass(look, self._kept))

    def held_out(self, look: Look) -> InMemoryDataset:
        """Those that are."""
        return look.samples(_raw(self.spool.read(self._held)), self._mass(look, self._held))

    def _strides(self, pages: NDArray[np.int64]) -> Iterator[Raw]:
        return (_raw(self.spool.read(pages[k : k + STRIDE])) for k in range(0, len(pages), STRIDE))

    def _mass(self, look: Look, pages: NDArray[np.int64]) -> float:
        if not self.weighted and look.class_weight is None:
            return float(np.minimum(PAGE, self.count - pages * PAGE).sum())
        total = 0.0
        for _, y, weight in self._strides(pages):
            weights = look.weights(y, weight)
            total += float(weights.sum()) if weights is not None else 0.0
        if total <= 0:
            raise DataError("all samples have the weight 0; give some of them a weight")
        return total

    def release(self) -> None:
        """Give the room on the disk back."""
        self.spool.release()
