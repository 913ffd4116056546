"""Training on more rows than memory holds: a source is read once into a temporary file, then trained on in windows.

The file is unnamed, so that it disappears when the process ends for any reason. It is read, not mapped into memory: a
disk failure then raises an error instead of killing the process, and pages that were read do not count as used memory.

The order of the samples depends only on the seed and the number of rows: an epoch is a permutation of all pages, cut
into windows; within a window the samples are permuted again. A thread reads the next window during training.
"""

from __future__ import annotations

import copy
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray, IntArray
from meshnn.engine import Curvature, Engine, Optimizer, Steps
from meshnn.errors import DataError, FileError
from meshnn.memory import format_bytes
from meshnn.mesh import Mesh
from meshnn.tables.holdout import HoldoutSplit
from meshnn.tables.sources import RowBlock, Source
from meshnn.training.dataset import LIMITS, Dataset, Summary, evenly_spaced, sums_per_label
from meshnn.training.samples import Epoch, InMemorySamples, PiecewiseSteps, RowTransform, Samples, check_total


class RowFile:
    """A temporary file of rows: features, targets (n, n_targets) and optional weights, with the types of `first`.

    The file is in `folder`, by default MESHNN_SCRATCH or the folder for temporary files (TMPDIR). An error is raised at
    once if the disk is too small for the `expected` number of rows.
    """

    _advice = "set MESHNN_SCRATCH to a folder with more space (on the command line, --scratch)"

    def __init__(self, first: RowBlock, folder: Any = None, expected: int | None = None) -> None:
        (_, width), (_, n_targets), self.weighted = first.X.shape, first.y.shape, first.weight is not None
        dtype = np.float32 if first.X.dtype == np.float32 else np.float64
        fields: list[Any] = [("x", dtype, (width,)), ("y", np.float64, (n_targets,))]
        self.row = np.dtype(fields + [("w", np.float64)] * self.weighted)
        self.summary, self.count, self._rest = Summary(width, n_targets), 0, np.empty(0, self.row)
        self.folder = os.fspath(folder or os.environ.get("MESHNN_SCRATCH") or tempfile.gettempdir())
        needed = (expected or 0) * self.row.itemsize
        try:
            free = shutil.disk_usage(self.folder).free
            if needed > free:
                raise FileError(f"{expected:,} rows need {format_bytes(needed)} in {self.folder} during training, but "
                                f"only {format_bytes(free)} are free; {self._advice}")  # fmt: skip
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> FileError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return FileError(f"the disk of {self.folder} is full after {self.count:,} rows; {self._advice}")
        return FileError(f"cannot store rows in {self.folder} ({error.strerror}); {self._advice}")

    def append(self, rows: RowBlock) -> None:
        """Add rows with targets (n, n_targets)."""
        block = np.empty(len(rows.X), self.row)
        block["x"], block["y"] = rows.X, rows.y
        if self.weighted:
            block["w"] = rows.weight
        stored = np.concatenate([self._rest, block]) if len(self._rest) else block
        whole = len(stored) - len(stored) % LIMITS.stride_rows
        self._write(stored[:whole])
        self._rest = stored[whole:].copy()

    def close(self) -> None:
        """Write the remaining rows and check the statistics; no rows can be appended afterwards."""
        self._write(self._rest)
        self._rest = self._rest[:0]
        self.summary.moments.check()

    def _write(self, rows: Array) -> None:
        for begin in range(0, len(rows), LIMITS.stride_rows):
            self.summary.add(as_block(rows[begin : begin + LIMITS.stride_rows]))
        left = memoryview(rows.tobytes())
        try:
            while len(left):  # a write may be partial
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failed(error) from None
        self.count += len(rows)

    def page_sizes(self, pages: Array) -> Array:
        """Return the number of rows of each page."""
        return np.minimum(LIMITS.page_rows, self.count - pages.astype(np.int64) * LIMITS.page_rows)

    def read(self, pages: Array) -> RowBlock:
        """Read the rows of some pages, in the given order."""
        return self._read(zip((pages * LIMITS.page_rows).tolist(), self.page_sizes(pages).tolist(), strict=True))

    def rows(self, numbers: Any) -> RowBlock:
        """Read single rows by their numbers."""
        return self._read((int(number), 1) for number in numbers)

    def _read(self, runs: Any) -> RowBlock:
        size, parts = self.row.itemsize, []
        for first, count in runs:
            try:
                parts.append(os.pread(self._file.fileno(), count * size, first * size))
            except OSError as error:
                raise self._failed(error) from None
            if len(parts[-1]) != count * size:
                raise FileError(f"the rows stored in {self.folder} cannot be read completely; fit again")
        return as_block(np.frombuffer(b"".join(parts), self.row))

    def release(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()


def as_block(rows: Array) -> RowBlock:
    """Return stored rows as arrays."""
    return RowBlock(rows["x"], rows["y"], rows["w"] if "w" in (rows.dtype.names or ()) else None)


class StoredSamples(Samples):
    """Preprocessed samples from some pages of a file, in ascending order."""

    def __init__(self, file: RowFile, preprocessing: RowTransform, pages: IntArray, total_weight: float) -> None:
        self.file, self.preprocessing, self.pages = file, preprocessing, pages
        self.total_weight, self.loss = total_weight, preprocessing.loss
        self.sizes = file.page_sizes(pages)
        self._first = np.concatenate([[0], np.cumsum(self.sizes)])
        self.count = int(self._first[-1])
        self._per_window = max(LIMITS.window_pages, LIMITS.window_bytes // (LIMITS.page_rows * file.row.itemsize))

    def windows(self, pages: IntArray) -> list[IntArray]:
        """Cut pages into windows."""
        return [pages[k : k + self._per_window] for k in range(0, len(pages), self._per_window)]

    def steps(self, mesh: Mesh, method: str, size: int, n_jobs: int | None) -> WindowSteps:
        """Return steps in batches of this size."""
        return WindowSteps(self, mesh.engine("epochs", method, size), size, n_jobs)

    def take(self, rows: Any) -> InMemorySamples:
        """Load the samples with these numbers, in ascending order."""
        page = np.searchsorted(self._first, rows, side="right") - 1
        numbers = self.pages[page] * LIMITS.page_rows + np.asarray(rows) - self._first[page]
        return self.preprocessing.samples(self.file.rows(numbers), self.total_weight)

    def _parts(self) -> Generator[InMemorySamples, None, None]:
        """Yield all samples in the order of their rows, one window at a time."""
        prepare = self.preprocessing.samples
        return read_ahead(self.windows(self.pages), lambda pages: prepare(self.file.read(pages), self.total_weight))

    def evaluate(self, mesh: Mesh, n_jobs: int | None) -> tuple[float, float]:
        """Return the loss and the fraction of correct samples."""
        with closing(self._parts()) as parts:
            found = [samples.evaluate(mesh, n_jobs) for samples in parts]
        return sum(loss for loss, _ in found), sum(correct for _, correct in found)

    def curvature(self, mesh: Mesh, method: str, live: IntArray, n_jobs: int | None) -> Curvature:
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
    """Steps on windows of a file; each window is trained on in compiled code like a data set in memory."""

    def __init__(self, samples: StoredSamples, engine: Engine, size: int, n_jobs: int | None) -> None:
        self.samples, self.size, self.n_jobs = samples, size, n_jobs
        self.n = samples.count
        # the incomplete page is always last, so that all windows but the last have the same size
        self.counts = [int(sizes.sum()) for sizes in samples.windows(samples.sizes)]
        self._first_batch = np.concatenate([[0], np.cumsum([-(-count // size) for count in self.counts])])
        self.batches, self.engine = int(self._first_batch[-1]), engine

    def windows(self, order: Array) -> list[IntArray]:
        """Return the shuffled pages of an epoch as a list of windows."""
        pages = self.samples.pages
        short = len(pages) - int(self.samples.sizes[-1] < LIMITS.page_rows)
        mixed = np.random.default_rng([int(order[0]), 0]).permutation(pages[:short])
        return self.samples.windows(np.append(mixed, pages[short:]))

    def _loaded(self, k: int, pages: IntArray, seed: int) -> tuple[int, Steps, Array]:
        samples, count = self.samples, self.counts[k]
        rows = samples.file.read(np.sort(pages))
        found = samples.preprocessing.samples(rows, samples.total_weight * (count / self.n))
        steps = Steps(self.engine, found.X, found.targets, self.size, self.n_jobs)
        return k, steps, np.random.default_rng([seed, 1, k]).permutation(count)[None]

    def epoch(
        self, values: Array, optimizer: Optimizer, order: Array, rates: Array, begun: Epoch,
        report: Callable[[Epoch, int], None],
    ) -> Epoch:  # fmt: skip
        """Train window by window; see `PiecewiseSteps.epoch`."""
        now, done = begun, sum(self.counts[: begun.piece])
        windows = list(enumerate(self.windows(order)))[begun.piece :]
        with closing(read_ahead(windows, lambda window: self._loaded(window[0], window[1], int(order[0])))) as loaded:
            for k, steps, mixed in loaded:
                part = rates[self._first_batch[k] : self._first_batch[k + 1]]
                record = steps.epochs(values, optimizer, mixed, part)
                done += self.counts[k]
                now = now.plus(record[-1], self.counts[k] / self.n)
                if not np.isfinite(now.sums[0]):
                    break
                report(now, done)
        return now


def read_ahead(items: Iterable[Any], make: Callable[[Any], Any]) -> Generator[Any, None, None]:
    """Yield `make(item)` for each item, with one thread that computes the next result in advance.

    Close the generator if it is not exhausted.
    """
    with ThreadPoolExecutor(1, "meshnn reader") as pool:
        futures = (pool.submit(make, item) for item in items)
        pending = next(futures, None)
        while pending is not None:
            made = pending.result()
            pending = next(futures, None)  # submitted only now, since the previous result is no longer in use
            yield made


class RowStore(Dataset):
    """A data set in a temporary file, read from a source.

    `classes` states that the targets are labels. `report` is called with the number of rows read so far.
    """

    def __init__(
        self, source: Source, classes: bool, folder: Any = None, report: Callable[[int], None] | None = None
    ) -> None:
        codes, file = dict[Any, int](), None
        try:
            for block in source.blocks():
                rows = block._replace(y=_as_matrix(block.y, classes, codes))
                if rows.X.shape[1] == 0:
                    raise DataError(f"{source.name} has no feature")
                if file is None:
                    file = RowFile(rows, folder, source.n_rows)
                    self.n_features, self.n_targets = rows.X.shape[1], rows.y.shape[1]
                if rows.y.shape[1] != self.n_targets:
                    raise DataError(f"y has {rows.y.shape[1]} columns in some blocks and {self.n_targets} in others")
                file.append(rows)
                if report is not None:
                    report(file.count)
            if file is None:
                raise DataError(f"{source.name} has no rows (an iterator can be read only once)")
            file.close()
            check_total(file.summary.moments.weight)
        except BaseException:
            if file is not None:
                file.release()
            raise
        self.file, self.pages, self.n_rows = file, np.arange(-(-file.count // LIMITS.page_rows)), file.count
        self.columns, self.labels, self.matrix_targets = source.columns, list(codes), block.y.ndim == 2
        self.moments, self.fingerprint = file.summary.moments, file.summary.fingerprint
        self.y_min = None if classes else file.summary.y_min

    @cached_property
    def label_sums(self) -> FloatArray:  # type: ignore[override]
        """Total weight of the rows per label, summed in an order that does not depend on the blocks of the source."""
        found: FloatArray = np.sum([sums_per_label(rows, len(self.labels)) for rows in self._strides()], axis=0)
        return found

    def _strides(self) -> Iterator[RowBlock]:
        return (self.file.read(self.pages[k : k + 2**8]) for k in range(0, len(self.pages), 2**8))

    def few(self, n: int) -> RowBlock:
        """Load up to n evenly spaced rows."""
        return self.file.rows(evenly_spaced(n, self.n_rows))

    def hold_out(self, fraction: float, seed: int) -> tuple[RowStore, RowBlock]:
        """Hold out random pages, at least one; the store must have at least four."""
        pages, size = len(self.pages), LIMITS.page_rows
        if pages < 4:
            raise DataError(
                f"early_stopping needs at least {3 * size + 1} rows, since whole pages of {size} rows are held out; "
                f"got {self.n_rows} rows. Load them into memory and call fit with arrays"
            )
        count = min(max(1, round(fraction * pages)), pages - 1, LIMITS.holdout_rows // size)
        split = HoldoutSplit.random(pages, count, [seed, 2])
        training = copy.copy(self)
        training.pages, training.n_rows = split.kept, int(self.file.page_sizes(split.kept).sum())
        return training, self.file.read(split.held)

    def prepared(self, preprocessing: RowTransform) -> StoredSamples:
        """Return the rows as preprocessed samples."""
        if self.file.weighted or preprocessing.class_weight is not None:
            total = check_total(sum(preprocessing.total_weight(rows) for rows in self._strides()))
        else:
            total = float(self.n_rows)
        return StoredSamples(self.file, preprocessing, self.pages, total)

    def release(self) -> None:
        """Delete the file."""
        self.file.release()


def _as_matrix(y: Array, classes: bool, codes: dict[Any, int]) -> Array:
    """Return targets (n, m) as float64; labels become codes in the order of their first occurrence."""
    y = y if y.ndim == 2 else y[:, None]
    if not classes:
        if y.dtype.kind not in "fiub":
            raise DataError(f"y holds {y.dtype}, expected numbers; for labels use MeshClassifier")
        return y.astype(np.float64)
    if y.shape[1] > 1:
        raise DataError("y has several columns; several label columns are supported only for data in memory")
    if codes and (y.dtype.kind in "US") != isinstance(next(iter(codes)), (str, bytes)):
        raise DataError("y holds text in some blocks and numbers in others; use one type for all blocks")
    if y.dtype.kind == "f" and (some := y[y != np.floor(y)]).size:
        raise DataError(f"y holds {some[0]:g}, which is not a class label; for regression use MeshRegressor")
    found, begins, place = np.unique(y, return_index=True, return_inverse=True)
    for label in found[np.argsort(begins)].tolist():  # independent of the division into blocks
        codes.setdefault(label, len(codes))
    if len(codes) > LIMITS.max_classes:
        raise DataError(f"y holds more than {LIMITS.max_classes:,} distinct values; for regression use MeshRegressor")
    return np.array([codes[label] for label in found.tolist()], np.float64)[place.ravel()][:, None]
