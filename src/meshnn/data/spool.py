"""`Spool`: more rows than memory holds, on a disk, where any of them can be read at once.

What comes in, comes in blocks of any size; what is told about it (moments, a stamp) comes from pages of one size, so
that it depends on the rows alone. The file has no name: it is gone when the process is, however that ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError, FileError
from meshnn.memory import format_bytes

__all__ = ["PAGE", "Moments", "Spool"]

#: Rows of a page, the least that is read at a time.
PAGE = 256
#: Rows that moments and stamps are made of at a time.
STRIDE = 16 * PAGE
ADVICE = "set MESHNN_SCRATCH to a folder with more room (on the command line, --scratch)"


class Moments:
    """Mean and spread of columns, from blocks of rows that are always the same."""

    def __init__(self, width: int) -> None:
        self.weight = 0.0
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, values: Array, weight: Array | None) -> None:
        """Another block (rows, width)."""
        values = values.astype(np.float64, copy=False)
        count = float(len(values) if weight is None else weight.sum())
        if count <= 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # looked at in the end
            mean = values.mean(axis=0) if weight is None else weight @ values / count
            off = values - mean
            squares = (off**2).sum(axis=0) if weight is None else weight @ off**2
            self.join(count, mean, squares)

    def join(self, count: float, mean: FloatArray, squares: FloatArray) -> None:
        """Those of other rows (Chan, Golub and LeVeque, 1983)."""
        total = self.weight + count
        step = mean - self.mean
        self.mean = self.mean + step * (count / total)
        self._squares = self._squares + squares + step**2 * (self.weight * count / total)
        self.weight = total

    def merge(self, other: Moments) -> None:
        """All that another one has seen."""
        if other.weight > 0:
            self.join(other.weight, other.mean, other._squares)

    @property
    def spread(self) -> FloatArray:
        """Standard deviations."""
        found: FloatArray = np.sqrt(self._squares / max(self.weight, np.finfo(float).tiny))
        return found


def _bytes(rows: Any) -> memoryview:
    return memoryview(rows.view(np.uint8)) if len(rows) else memoryview(b"")


class Spool:
    """Rows of features, targets and, if they have any, weights.

    Parameters
    ----------
    width, n_targets : int
        Numbers in a row.
    dtype : dtype
        Of the features; targets and weights are float64.
    weighted : bool
    folder : path, optional
        Where there is room for it; by default what MESHNN_SCRATCH says, or where temporary files go (TMPDIR).
    expected : int, optional
        Rows that will come, if that is known: a disk that is too small for them is refused at once.
    """

    def __init__(
        self, width: int, n_targets: int, dtype: Any, weighted: bool = False, folder: Any = None,
        expected: int | None = None,
    ) -> None:  # fmt: skip
        fields: list[Any] = [("x", np.dtype(dtype), (width,)), ("y", np.float64, (n_targets,))]
        self.row = np.dtype(fields + [("w", np.float64)] * weighted)
        self.width, self.n_targets, self.weighted, self.count = width, n_targets, weighted, 0
        self.folder = os.fspath(folder or os.environ.get("MESHNN_SCRATCH") or tempfile.gettempdir())
        needed = (expected or 0) * self.row.itemsize
        try:
            free = shutil.disk_usage(self.folder).free
            if needed > free:
                raise FileError(
                    f"{expected:,} rows take {format_bytes(needed)} in {self.folder} while they are learned, but "
                    f"{format_bytes(free)} are free there; {ADVICE}"
                )
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from None
        self.features, self.targets = Moments(width), Moments(n_targets)
        self.least = np.full(n_targets, np.inf)  # of the targets
        self._stamp = hashlib.blake2b(str(self.row.descr).encode(), digest_size=32)
        self._rest = np.empty(0, self.row)

    def _failed(self, error: OSError) -> FileError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return FileError(
                f"the disk of {self.folder} is full after {self.count:,} rows of {self.row.itemsize} bytes; {ADVICE}"
            )
        return FileError(f"cannot keep rows in {self.folder} ({error.strerror}); {ADVICE}")

    def append(self, X: Array, y: Array, weight: Array | None) -> None:
        """More rows: (rows, width), (rows, n_targets) and (rows,)."""
        block = np.empty(len(X), self.row)
        block["x"], block["y"] = X, y
        if self.weighted:
            block["w"] = weight
        rows = np.concatenate([self._rest, block]) if len(self._rest) else block
        whole = len(rows) - len(rows) % STRIDE
        for begin in range(0, whole, STRIDE):
            self._take(rows[begin : begin + STRIDE])
        self._write(rows[:whole])
        self._rest = rows[whole:].copy()

    def close(self) -> str:
        """No more rows will come; the stamp of all there are."""
        self._take(self._rest)
        self._write(self._rest)
        self._rest = self._rest[:0]
        if not np.isfinite(self.features.spread).all():
            column = int(np.flatnonzero(~np.isfinite(self.features.spread))[0])
            raise DataError(f"feature {column} is too large for its square to be a number; scale it before")
        return self.stamp

    @property
    def stamp(self) -> str:
        """Tells these rows from others."""
        return self._stamp.hexdigest()

    def _take(self, rows: Array) -> None:
        weight = rows["w"] if self.weighted else None
        self.features.add(rows["x"], weight)
        self.targets.add(rows["y"], weight)
        self.least = np.minimum(self.least, rows["y"].min(axis=0, initial=np.inf))
        self._stamp.update(rows.tobytes())

    def _write(self, rows: Array) -> None:
        left = _bytes(rows)
        try:
            while len(left):  # the system may take less at a time
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failed(error) from None
        self.count += len(rows)

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> int:
        """Pages; the last one may have fewer rows."""
        return -(-self.count // PAGE)

    def read(self, pages: Array, out: Array | None = None) -> Array:
        """The rows of some pages, one page after the other; runs of pages are read at once."""
        counts = np.minimum(PAGE, self.count - pages.astype(np.int64) * PAGE)
        total = int(counts.sum())
        found = np.empty(total, self.row) if out is None else out[:total]
        raw, at = _bytes(found), 0
        cuts = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
        for first, last in pairwise([*cuts, len(pages)]):
            size = int(counts[first:last].sum()) * self.row.itemsize
            self._read_at(int(pages[first]) * PAGE * self.row.itemsize, raw[at : at + size])
            at += size
        return found

    def _read_at(self, offset: int, into: memoryview) -> None:
        while len(into):
            try:
                got = os.preadv(self._file.fileno(), [into], offset)
            except OSError as error:
                raise self._failed(error) from None
            if got <= 0:
                raise FileError(f"rows kept in {self.folder} cannot be read any more; fit again")
            into, offset = into[got:], offset + got

    def rows(self, numbers: Array) -> Array:
        """Single rows, by their numbers; each is read alone, since those that are asked for are far apart."""
        numbers = np.asarray(numbers, np.int64)
        found = np.empty(len(numbers), self.row)
        raw, size = _bytes(found), self.row.itemsize
        for k, number in enumerate(numbers.tolist()):
            self._read_at(number * size, raw[k * size : (k + 1) * size])
        return found

    def release(self) -> None:
        """Let the disk have its room back."""
        self._file.close()
