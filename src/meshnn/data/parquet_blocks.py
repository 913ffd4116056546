"""`ParquetBlocks`: Parquet files in blocks of rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshnn.data.blocks import Block, Position, RowCounter
from meshnn.data.tables import _checked_names, shown
from meshnn.errors import DataError

__all__ = ["ParquetBlocks"]

#: Rows that are read at once.
ROWS = 2**15


class ParquetBlocks(RowCounter):
    """Rows of a Parquet file, with the types of its columns."""

    live, separator, skipped = False, "", 0

    def __init__(self, file: Path, name: str) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self.name, self.notes, self._rows = name, list[str](), 0
        if file.stat().st_size == 0:
            raise DataError(f"{name} is empty, expected a Parquet file; check how the file was written")
        try:
            self._file = parquet.ParquetFile(file, memory_map=False)
            raw = self._file.schema_arrow.names
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        checked = _checked_names(raw, name)
        index = [k for k, column in enumerate(checked) if re.fullmatch(r"__index_level_\d+__", column) or not column]
        self.notes += [f"{name}: column {shown(checked[k])} is the index of pandas: left out" for k in index]
        self._keep = {raw[k]: checked[k] for k in range(len(raw)) if k not in index}
        self.names = self.first_line = list(self._keep.values())
        self.total = self._file.metadata.num_rows
        self._few: list[Any] = []  # the first rows

    def _damaged(self, error: Exception) -> DataError:
        what = " ".join(str(error).split())[:200]
        advice = "write it again, or give the file its right ending"
        return DataError(f"{self.name} is not a Parquet file that can be read ({what}); {advice}")

    def blocks(self) -> Iterator[Block | None]:
        """The rows after the position."""
        import pyarrow as pa

        skip = self._rows
        groups, before = [], 0
        for k in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(k).num_rows
            if before + count > self._rows:
                groups.append(k)
            else:
                skip -= count
            before += count
        try:
            for batch in self._file.iter_batches(ROWS, row_groups=groups, columns=list(self._keep)):
                part = pa.Table.from_batches([batch]).slice(min(skip, len(batch)))
                skip -= min(skip, len(batch))
                part = part.rename_columns([self._keep[column] for column in part.column_names])
                part.validate(full=True)
                if part.num_rows:
                    first, self._rows = self._rows, self._rows + part.num_rows
                    yield Block(part, first, None, lambda rows, first=first: self._position(first + rows))
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise self._damaged(error) from None

    def _position(self, rows: int) -> Position:
        kinds = [str(kind) for kind in self._file.schema_arrow.types]
        if not self._few:
            few = next(self._file.iter_batches(5, columns=list(self._keep)), None)
            self._few = [] if few is None else few.to_pylist()
        stamp = repr((list(self._keep), kinds, self._few[:rows])).encode()
        return Position(rows, rows, hashlib.sha256(stamp).hexdigest())

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
