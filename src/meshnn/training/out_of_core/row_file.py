"""`RowFile`: more rows than memory holds, in a temporary file from which any of them can be read.

The file has no name: it is gone when the process is, however that ends. It is read, not mapped: a disk that fails is an
error then, not the end of the process, and pages that were read do not count as memory in use.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import FileError
from meshnn.memory import format_bytes
from meshnn.tables.sources import RowBlock
from meshnn.training.dataset import LIMITS, Summary

__all__ = ["RowFile"]

ADVICE = "set MESHNN_SCRATCH to a folder with more room (on the command line, --scratch)"


class RowFile:
    """Rows of features, targets and, if they have any, weights.

    Parameters
    ----------
    first : RowBlock
        Some rows, with targets (n, n_targets): says what all look like. They are not appended.
    folder : path, optional
        Where the file is; by default MESHNN_SCRATCH, or the folder of temporary files (TMPDIR).
    expected : int, optional
        Rows that will come, if known: a disk that is too small for them is refused at once.
    """

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
                raise FileError(f"{expected:,} rows take {format_bytes(needed)} in {self.folder} during training, but "
                                f"{format_bytes(free)} are free there; {ADVICE}")  # fmt: skip
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> FileError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return FileError(f"the disk of {self.folder} is full after {self.count:,} rows; {ADVICE}")
        return FileError(f"cannot keep rows in {self.folder} ({error.strerror}); {ADVICE}")

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
        """No more rows will come."""
        self._write(self._rest)
        self._rest = self._rest[:0]
        self.summary.moments.check()

    def _write(self, rows: Array) -> None:
        for begin in range(0, len(rows), LIMITS.stride_rows):
            self.summary.add(as_block(rows[begin : begin + LIMITS.stride_rows]))
        left = memoryview(rows.tobytes())
        try:
            while len(left):  # the system may take less at a time
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failed(error) from None
        self.count += len(rows)

    @property
    def pages(self) -> int:
        """Number of pages; the last one may have fewer rows."""
        return -(-self.count // LIMITS.page_rows)

    def page_sizes(self, pages: Array) -> Array:
        """Return the number of rows of each page."""
        return np.minimum(LIMITS.page_rows, self.count - pages.astype(np.int64) * LIMITS.page_rows)

    def read(self, pages: Array) -> RowBlock:
        """Read the rows of some pages, one page after the other."""
        sizes = self.page_sizes(pages).tolist()
        starts = [page * LIMITS.page_rows for page in pages.tolist()]
        return self._read(zip(starts, sizes, strict=True))

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
                raise FileError(f"the rows kept in {self.folder} can no longer be read; fit again")
        return as_block(np.frombuffer(b"".join(parts), self.row))

    def release(self) -> None:
        """Free the disk."""
        self._file.close()


def as_block(rows: Array) -> RowBlock:
    """Return stored rows as arrays."""
    return RowBlock(rows["x"], rows["y"], rows["w"] if "w" in (rows.dtype.names or ()) else None)
