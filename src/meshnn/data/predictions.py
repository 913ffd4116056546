"""Predictions written as they come, into a file that appears whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.data.tables import ENDINGS, _as_text, _ending
from meshnn.files import as_path, replacing

__all__ = ["Predictions", "check_ending", "predictions_to"]


def check_ending(path: Path) -> str:
    """That of a file of predictions, if it can be written."""
    return _ending(path, as_path(path)[1], "writes")


@contextmanager
def predictions_to(path: Path) -> Iterator[Predictions]:
    """What takes predictions until the block ends; if it fails, the file is as it was."""
    ending = check_ending(path)
    with ExitStack() as stack:
        file: Any = stack.enter_context(replacing(path))
        if ending.endswith(".gz"):
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        found = Predictions(file, ENDINGS[ending])
        stack.callback(found.close)
        yield found


class Predictions:
    """Blocks of columns, one after the other, as text or, without a separator, as Parquet."""

    def __init__(self, file: IO[bytes], separator: str) -> None:
        self._file, self._separator, self.rows = file, separator, 0
        self._writer: Any = None

    def add(self, kept: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> None:
        """More rows: columns of the table that are copied, and arrays."""
        count = len(next(iter(columns.values())))
        if self._separator:
            self._file.write(_as_text(dict(kept), dict(columns), self._separator, header=self.rows == 0).encode())
        else:
            self._as_parquet(kept, columns)
        self.rows += count

    def _as_parquet(self, kept: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({**kept, **{name: pa.array(np.asarray(column)) for name, column in columns.items()}})
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """The end of the file."""
        if self._writer is not None:
            self._writer.close()
