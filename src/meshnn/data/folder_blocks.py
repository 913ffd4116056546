"""`FolderBlocks`: the Parquet files of a folder in blocks of rows, for streams: one after the other by their names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from meshnn.data.blocks import Block, Position, RowCounter
from meshnn.data.parquet_files import ParquetFiles
from meshnn.data.tables import _checked_names, shown

__all__ = ["FolderBlocks"]

#: Rows that a table is known again by.
FEW = 5


class FolderBlocks(RowCounter):
    """Rows of the files of a folder, with the types of their columns.

    Files that come later, with names behind those that were read, are new rows of the same table.
    """

    what = "files, columns or first rows"

    live, separator, skipped = False, "", 0

    def __init__(self, path: Path) -> None:
        self._table, self.notes, self._rows = ParquetFiles(path), list[str](), 0
        self.name, self.total, raw = self._table.name, self._table.rows, self._table.schema.names
        checked = _checked_names(raw, self.name)
        index = [k for k, column in enumerate(checked) if column.startswith("__index_level_") or not column]
        self.notes += [f"{self.name}: column {shown(checked[k])} is the index of pandas: left out" for k in index]
        self._keep = {raw[k]: checked[k] for k in range(len(raw)) if k not in index}
        self.names = self.first_line = list(self._keep.values())
        self._starts = [0, *accumulate(self._table.counts)]  # rows before each file
        self._few: list[Any] | None = None

    def blocks(self) -> Iterator[Block | None]:
        """The rows after the position."""
        import pyarrow as pa

        for k, start in enumerate(self._starts[:-1]):
            if self._starts[k + 1] <= self._rows:
                continue
            for batch, before in self._table.batches(k, list(self._keep), self._rows - start):
                part = pa.Table.from_batches([batch]).rename_columns(self.names)
                first, self._rows = start + before, start + before + part.num_rows
                yield Block(part, first, None, lambda rows, first=first: self._position(first + rows))

    def _position(self, rows: int) -> Position:
        """After so many rows; known by the columns, the first rows, and which files they came from."""
        if self._few is None:
            found: list[Any] = []
            for k in range(len(self._table.files)):
                for batch, _ in self._table.batches(k, list(self._keep)):
                    found += batch.slice(0, FEW).to_pylist()
                    break
                if len(found) >= FEW:
                    break
            self._few = found[:FEW]
        begun = sum(start < rows for start in self._starts[:-1])
        names = [str(file.relative_to(self._table.path)) for file in self._table.files[:begun]]
        kinds = [str(kind) for kind in self._table.schema.types]
        whole = self._table.counts[: max(begun - 1, 0)]  # the last one may have grown
        stamp = repr((list(self._keep), kinds, self._few[:rows], names, whole)).encode()
        return Position(rows, rows, hashlib.sha256(stamp).hexdigest())

    def close(self) -> None:
        """Let the files go; each is open only while it is read."""
