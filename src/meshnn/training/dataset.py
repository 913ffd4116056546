"""`Dataset`: rows before preprocessing, in a file or on workers.

Statistics of the rows (moments, sums, a fingerprint) are computed over blocks of a fixed size in a fixed order, so that
they depend only on the rows, not on where the rows are stored or in which blocks they arrived.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError
from meshnn.tables.sources import RowBlock
from meshnn.training.samples import RowTransform, Samples


@dataclass
class DataLimits:
    """Sizes for dividing data sets. The sizes of pages, shards and buckets also affect the rounding of results."""

    page_rows: int = 256  # rows per page, the unit of reading from a row store
    stride_rows: int = 4096  # rows per block of moments and fingerprints
    window_bytes: int = 2**25  # part of a row store that is shuffled in memory at once
    window_pages: int = 16  # minimum number of pages per window, so that rows from all over the disk are mixed
    holdout_rows: int = 2**17  # maximum size of the hold-out set, which is kept in memory
    max_classes: int = 1000  # targets with more distinct values are rejected as labels
    shards: int = 64  # maximum number of shards of a data set on workers
    bucket_rows: int = 1024  # minimum number of rows of a batch per bucket
    sliced_bytes: int = 2**20  # size of a sum above which every worker adds up one slice of it


LIMITS = DataLimits()


class Moments:
    """Mean and standard deviation of columns, from blocks of rows (Chan, Golub and LeVeque, 1983)."""

    def __init__(self, width: int) -> None:
        self.weight = 0.0
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, values: Array, weight: Array | None) -> None:
        """Add a block (rows, width)."""
        values = np.ascontiguousarray(values, np.float64)  # BLAS rounds products of other memory layouts differently
        weight = None if weight is None else np.ascontiguousarray(weight)
        count = float(len(values) if weight is None else weight.sum())
        if count <= 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # see `check`
            mean = values.mean(axis=0) if weight is None else weight @ values / count
            off = values - mean
            self._join(count, mean, (off**2).sum(axis=0) if weight is None else weight @ off**2)

    def merge(self, other: Moments) -> None:
        """Add the rows of other moments."""
        if other.weight > 0:
            self._join(other.weight, other.mean, other._squares)

    def _join(self, count: float, mean: FloatArray, squares: FloatArray) -> None:
        total = self.weight + count
        step = mean - self.mean
        self.mean = self.mean + step * (count / total)
        self._squares = self._squares + squares + step**2 * (self.weight * count / total)
        self.weight = total

    @property
    def spread(self) -> FloatArray:
        """Standard deviations."""
        found: FloatArray = np.sqrt(self._squares / max(self.weight, np.finfo(float).tiny))
        return found

    def check(self) -> None:
        """Raise an error if the squares of a feature overflow."""
        if not np.isfinite(self.spread).all():
            column = int(np.flatnonzero(~np.isfinite(self.spread))[0])
            raise DataError(f"the squares of feature {column} overflow; scale the feature first")


class Summary:
    """Statistics of rows: moments of the features, minima of the targets and a fingerprint."""

    def __init__(self, n_features: int, n_targets: int) -> None:
        self.moments, self.y_min = Moments(n_features), np.full(n_targets, np.inf)
        self.fingerprint = ""  # identifies the rows

    @classmethod
    def of(cls, rows: RowBlock) -> Summary:
        """Summarise rows with targets (n, m)."""
        found, size = cls(rows.X.shape[1], rows.y.shape[1]), LIMITS.stride_rows
        for k in range(0, len(rows.X), size):
            found.add(rows.take(slice(k, k + size)))
        return found

    def add(self, rows: RowBlock) -> None:
        """Add the next `stride_rows` rows."""
        self.moments.add(rows.X, rows.weight)
        self.y_min = np.minimum(self.y_min, rows.y.min(axis=0, initial=np.inf))
        digest = hashlib.blake2b(self.fingerprint.encode(), digest_size=16)
        for array in rows:
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        self.fingerprint = digest.hexdigest()


def sums_per_label(rows: RowBlock, n_labels: int) -> FloatArray:
    """Return the total weight of the rows per label code."""
    if n_labels == 0:
        return np.zeros(0)
    return np.bincount(rows.y[:, 0].astype(np.int64), rows.weight, minlength=n_labels).astype(np.float64)


def evenly_spaced(n: int, total: int) -> Array:
    """Return up to n evenly spaced integers below `total`."""
    n = min(n, total)
    return np.arange(n) * total // max(n, 1)


class Dataset(ABC):
    """Rows from one source, with statistics of all of them."""

    n_rows: int
    n_features: int
    n_targets: int = 1
    columns: list[str] | None = None  # names of the features
    moments: Moments  # per feature; hold-out rows are included
    labels: list[Any]  # by the code that stands for them in the targets; empty for regression
    label_sums: FloatArray  # total weight of the rows per label
    y_min: FloatArray | None = None  # minimum of each target, if known
    matrix_targets: bool = False  # whether the targets were passed as a matrix
    fingerprint: str  # identifies the rows
    batch_size: int | None = None  # samples per batch, if the data set prescribes it

    @abstractmethod
    def few(self, n: int) -> RowBlock:
        """Load up to n evenly spaced rows; targets (n, n_targets) are numbers or label codes."""

    @abstractmethod
    def hold_out(self, fraction: float, seed: int) -> tuple[Dataset, RowBlock]:
        """Split into a training set and hold-out rows, which must fit in memory."""

    @abstractmethod
    def prepared(self, preprocessing: RowTransform) -> Samples:
        """Return the rows as preprocessed samples."""

    def release(self) -> None:  # noqa: B027
        """Free the rows."""


def coded(y: Array, labels: list[Any]) -> FloatArray:
    """Return targets as a float64 matrix; with `labels` (sorted), labels (n,) or (n, 1) become their codes."""
    values = y if y.ndim == 2 else y[:, None]
    if labels:
        return np.searchsorted(np.array(labels), values[:, :1]).astype(np.float64)
    return values.astype(np.float64)
