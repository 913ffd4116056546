"""`Dataset`: rows as they were given, in a file or on workers.

What is known about the rows (moments, sums, a fingerprint) is computed in blocks of one size in one order, so that it
depends on the rows alone, not on where they are or how they came.
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
    """Sizes that decide how data sets are divided; a page, a shard and a bucket also decide the bits of a result."""

    page_rows: int = 256  # rows read at a time from a row store
    stride_rows: int = 4096  # rows of which moments and fingerprints are computed at a time
    window_bytes: int = 2**25  # of a row store, shuffled in memory ...
    window_pages: int = 16  # ... and at least this many pages, so that neighbours on the disk end up far apart
    holdout_rows: int = 2**17  # held out at most, as they are kept in memory
    max_classes: int = 1000  # more labels are taken for a regression target
    shards: int = 64  # of a data set on workers, at most
    bucket_rows: int = 1024  # of a batch that are worth a bucket of their own
    sliced_bytes: int = 2**20  # of a sum above which every worker adds up a slice of it


LIMITS = DataLimits()


class Moments:
    """Mean and spread of columns, from blocks of rows (Chan, Golub and LeVeque, 1983)."""

    def __init__(self, width: int) -> None:
        self.weight = 0.0
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, values: Array, weight: Array | None) -> None:
        """Add a block (rows, width)."""
        values = np.ascontiguousarray(values, np.float64)  # products of other layouts are rounded differently
        weight = None if weight is None else np.ascontiguousarray(weight)
        count = float(len(values) if weight is None else weight.sum())
        if count <= 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # checked at the end
            mean = values.mean(axis=0) if weight is None else weight @ values / count
            off = values - mean
            self._join(count, mean, (off**2).sum(axis=0) if weight is None else weight @ off**2)

    def merge(self, other: Moments) -> None:
        """Add the rows of another one."""
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
        """Refuse features whose squares overflow."""
        if not np.isfinite(self.spread).all():
            column = int(np.flatnonzero(~np.isfinite(self.spread))[0])
            raise DataError(f"feature {column} is too large to be squared; scale it before")


class Summary:
    """Facts about rows: moments of the features, the least targets, a digest."""

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
    """Return the sum of the weights of the rows per label code."""
    if n_labels == 0:
        return np.zeros(0)
    return np.bincount(rows.y[:, 0].astype(np.int64), rows.weight, minlength=n_labels).astype(np.float64)


def evenly_spaced(n: int, total: int) -> Array:
    """Return up to n numbers below `total`, evenly spaced."""
    n = min(n, total)
    return np.arange(n) * total // max(n, 1)


class Dataset(ABC):
    """Rows of one form, and what is known about all of them."""

    n_rows: int
    n_features: int
    n_targets: int = 1
    columns: list[str] | None = None  # names of the features
    moments: Moments  # per feature; of a training set also with the rows held out
    labels: list[Any]  # by code, as in the targets; empty for regression
    label_sums: FloatArray  # sum of the weights of the rows per label
    y_min: FloatArray | None = None  # the least of each target, if known
    matrix_targets: bool = False  # whether targets were given as a matrix
    fingerprint: str  # identifies the rows
    batch_size: int | None = None  # samples per batch, if it is not free

    @abstractmethod
    def few(self, n: int) -> RowBlock:
        """Load up to n rows, evenly spaced; targets (n, n_targets) are numbers or label codes."""

    @abstractmethod
    def hold_out(self, fraction: float, seed: int) -> tuple[Dataset, RowBlock]:
        """Split into a training set and rows to validate with, which must fit in memory."""

    @abstractmethod
    def prepared(self, preprocessing: RowTransform) -> Samples:
        """Return the rows as a net takes them."""

    def release(self) -> None:  # noqa: B027
        """Free the rows."""


def coded(y: Array, labels: list[Any]) -> FloatArray:
    """Return labels (n,) or (n, 1) as codes in a sorted list, values as they are; (n, m) float64."""
    values = y if y.ndim == 2 else y[:, None]
    if labels:
        return np.searchsorted(np.array(labels), values[:, :1]).astype(np.float64)
    return values.astype(np.float64)
