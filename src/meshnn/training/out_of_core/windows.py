"""Samples in a file: windows of shuffled pages, read ahead by a thread while the one before is trained on.

The order of the samples follows from the seed and the number of rows alone: an epoch is a permutation of all pages, cut
into windows; in a window samples are permuted again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array
from meshnn.engine import Curvature, Engine, Optimizer, Steps
from meshnn.losses import Targets
from meshnn.mesh import Mesh
from meshnn.training.dataset import LIMITS
from meshnn.training.out_of_core.row_file import RowFile
from meshnn.training.row_transform import RowTransform
from meshnn.training.samples import Epoch, InMemorySamples, PiecewiseSteps, Samples

__all__ = ["StoredSamples", "read_ahead"]


class StoredSamples(Samples):
    """Some pages of a file as a net takes them.

    Parameters
    ----------
    file : RowFile
    preprocessing : Preprocessing
    pages : int array
        Ascending.
    total_weight : float
        Sum of the weights of their samples.
    """

    def __init__(
        self, file: RowFile, preprocessing: RowTransform, pages: NDArray[np.int64], total_weight: float
    ) -> None:
        self.file, self.preprocessing, self.pages = file, preprocessing, pages
        self.total_weight, self.loss = total_weight, preprocessing.loss
        self.sizes = file.page_sizes(pages)
        self._first = np.concatenate([[0], np.cumsum(self.sizes)])
        self._per_window = max(LIMITS.window_pages, LIMITS.window_bytes // (LIMITS.page_rows * file.row.itemsize))

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self._first[-1])

    def windows(self, pages: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut pages into windows."""
        return [pages[k : k + self._per_window] for k in range(0, len(pages), self._per_window)]

    def steps(self, mesh: Mesh, method: str, size: int, n_jobs: int | None) -> WindowSteps:
        """Return steps in batches of this size."""
        return WindowSteps(self, mesh.engine("epochs", method, size), size, n_jobs)

    def take(self, rows: Any) -> InMemorySamples:
        """Load some by their numbers, ascending."""
        page = np.searchsorted(self._first, rows, side="right") - 1
        numbers = self.pages[page] * LIMITS.page_rows + np.asarray(rows) - self._first[page]
        return self.preprocessing.samples(self.file.rows(numbers), self.total_weight)

    def _parts(self) -> Generator[InMemorySamples, None, None]:
        """Load all in the order of their rows, one window at a time."""
        prepare = self.preprocessing.samples
        return read_ahead(self.windows(self.pages), lambda pages: prepare(self.file.read(pages), self.total_weight))

    def evaluate(self, mesh: Mesh, n_jobs: int | None) -> tuple[float, float]:
        """Return the loss and the share of correct samples."""
        loss = correct = 0.0
        with closing(self._parts()) as parts:
            for samples in parts:
                part = samples.evaluate(mesh, n_jobs)
                loss, correct = loss + part[0], correct + part[1]
        return loss, correct

    def curvature(self, mesh: Mesh, method: str, live: NDArray[Any], n_jobs: int | None) -> Curvature:
        """Return loss, gradient and Gauss-Newton matrix by the parameters `live`."""
        engine = mesh.engine("curvature", method, LIMITS.page_rows * self._per_window)
        loss = correct = 0.0
        grad, matrix = np.zeros(len(live)), np.zeros((len(live), len(live)))
        with closing(self._parts()) as parts:
            for samples in parts:
                part = engine.curvature(mesh.values, samples.X, samples.targets, live, n_jobs)
                loss, correct = loss + part.loss, correct + part.correct
                grad += part.grad
                matrix += part.matrix
        return Curvature(loss, correct, grad, matrix)


class WindowSteps(PiecewiseSteps):
    """Steps on windows of a file: each is a small data set of its own, in which epochs run in compiled code."""

    def __init__(self, samples: StoredSamples, engine: Engine, size: int, n_jobs: int | None) -> None:
        self.samples, self.size, self.n_jobs = samples, size, n_jobs
        self.n = samples.count
        # the page with fewer rows comes last, so that all windows but the last are alike
        self.counts = [int(sizes.sum()) for sizes in samples.windows(samples.sizes)]
        self._first_batch = np.concatenate([[0], np.cumsum([-(-count // size) for count in self.counts])])
        self.batches = int(self._first_batch[-1])
        self.rewire(engine)

    def rewire(self, engine: Engine) -> None:
        """Continue with another graph of the same inputs and outputs."""
        self.engine = engine
        # one buffer is trained on while the other is filled; the last window has a size of its own
        sizes = {count: min(self.counts.count(count), 2) for count in self.counts}
        self._buffers = {count: [self._buffer(count) for _ in range(copies)] for count, copies in sizes.items()}

    def _buffer(self, count: int) -> Steps:
        preprocessing, row = self.samples.preprocessing, self.samples.file.row
        values = preprocessing.targets(np.zeros((1, *row["y"].shape)))
        dtype = preprocessing.dtype
        share = np.full((count, 1), 1 / count, dtype)
        targets = Targets(self.samples.loss, np.zeros((count, values.shape[1]), dtype), share)
        return Steps(self.engine, np.zeros((1, count, *row["x"].shape), dtype), targets, self.size, self.n_jobs)

    def windows(self, order: Array) -> list[NDArray[np.int64]]:
        """Return the pages of an epoch, window by window."""
        pages = self.samples.pages
        short = len(pages) - int(self.samples.sizes[-1] < LIMITS.page_rows)
        mixed = np.random.default_rng([int(order[0]), 0]).permutation(pages[:short])
        return self.samples.windows(np.append(mixed, pages[short:]))

    def _filled(self, k: int, pages: NDArray[np.int64], seed: int) -> tuple[int, Steps, Array]:
        buffers, preprocessing = self._buffers[self.counts[k]], self.samples.preprocessing
        steps, rows = buffers[k % len(buffers)], self.samples.file.read(np.sort(pages))
        weights = preprocessing.weights(rows)
        preprocessing.inputs(rows.X, steps.X[0])
        mean = self.samples.total_weight / self.n
        steps.fill(preprocessing.targets(rows.y), 1.0 if weights is None else weights / mean)
        return k, steps, np.random.default_rng([seed, 1, k]).permutation(len(rows.X))[None]

    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        report: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Train window by window; see `PiecewiseSteps.epoch`."""
        now, done = begun, sum(self.counts[: begun.piece])
        windows = list(enumerate(self.windows(order)))[begun.piece :]
        with closing(read_ahead(windows, lambda window: self._filled(window[0], window[1], int(order[0])))) as filled:
            for k, steps, mixed in filled:
                part = rates[self._first_batch[k] : self._first_batch[k + 1]]
                record = steps.epochs(values, optimizer, mixed, part)
                done += self.counts[k]
                now = now.plus(record[-1], self.counts[k] / self.n)
                if not np.isfinite(now.sums[0]):
                    break
                report(now, done)
        return now


def read_ahead(items: Iterable[Any], make: Callable[[Any], Any]) -> Generator[Any, None, None]:
    """Yield `make(item)` for each item; a thread makes the next one meanwhile. Close it if it is left early."""
    with ThreadPoolExecutor(1, "meshnn reader") as pool:
        futures = (pool.submit(make, item) for item in items)
        pending = next(futures, None)
        while pending is not None:
            made = pending.result()
            pending = next(futures, None)  # only now: what was yielded before is no longer in use
            yield made
