"""Predictions, written block by block into a file that appears complete or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from meshnn.errors import DataError
from meshnn.files import as_path, replacing
from meshnn.tables.reader import TEXT

__all__ = ["PredictionWriter", "as_text", "check_ending", "predictions_to"]


def check_ending(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file for predictions; raise DataError if the format is unknown."""
    endings = [*TEXT, ".parquet", ".pq"]
    found = next((ending for ending in endings if Path(path).name.lower().endswith(ending)), None)
    if found is None:
        name, known = as_path(path)[1], ", ".join(endings)
        raise DataError(f"{name} has an unknown ending, expected one of {known}", code="ending", expected=known)
    return found


@contextmanager
def predictions_to(path: str | os.PathLike[str]) -> Iterator[PredictionWriter]:
    """Open a file for predictions; if the block fails, the existing file is unchanged."""
    ending = check_ending(path)
    with ExitStack() as stack:
        file: Any = stack.enter_context(replacing(path))
        if ending.endswith(".gz"):  # no time in the header: the same predictions give the same bytes
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        writer = PredictionWriter(file, TEXT.get(ending, ""))
        stack.callback(writer.close)
        yield writer


class PredictionWriter:
    """Writes blocks of columns as text with a separator, or as Parquet without one."""

    def __init__(self, file: IO[bytes], separator: str) -> None:
        self._file, self._separator, self.rows = file, separator, 0
        self._writer: Any = None

    def add(self, kept: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> None:
        """Write rows: columns of the table that are copied, and arrays."""
        if self._separator:
            self._file.write(as_text(kept, columns, self._separator, header=self.rows == 0).encode())
        else:
            self._write_parquet(kept, columns)
        self.rows += len(next(iter(columns.values())))

    def _write_parquet(self, kept: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> None:
        table = pa.table({**kept, **{name: pa.array(np.asarray(column)) for name, column in columns.items()}})
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def as_text(kept: Mapping[str, Any], arrays: Mapping[str, Any], separator: str = ",", header: bool = True) -> str:
    """Return columns as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    if header:
        writer.writerow([*kept, *arrays])
    # the shortest text of a float32: as a Python float, 0.1 would become 0.10000000149011612
    cells = [map(str, array) if array.dtype in ("f4", "f2") else array.tolist() for array in arrays.values()]
    writer.writerows(zip(*(column.to_pylist() for column in kept.values()), *cells, strict=True))
    return text.getvalue()
