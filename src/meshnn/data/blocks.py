"""Tables in blocks of rows, in constant memory: files larger than memory, and standard input as it comes.

Cells of text files stay as they are written; those of Parquet files have their types. What a block is depends on when
and how a table is read, so nothing may depend on where one ends.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshnn.data.tables import ENDINGS, _ending
from meshnn.errors import DataError
from meshnn.files import as_path, explained

__all__ = ["STANDARD_INPUT", "Block", "Position", "RowCounter", "open_blocks"]

#: As messages and models call it.
STANDARD_INPUT = "standard input"


@dataclass(frozen=True)
class Position:
    """A place between two rows of a table, and by what the table is known again."""

    offset: int  # bytes of a text, rows of a Parquet file
    rows: int  # rows before it
    stamp: str


@dataclass
class Block:
    """Some rows, one after the other."""

    table: Any  # pyarrow.Table
    first: int  # rows of the source before it
    fault: DataError | None = None  # why the row after its last one cannot be read
    _ends: Any = field(default=None, repr=False)  # of the source: the position after so many rows

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def position(self, rows: int) -> Position:
        """After so many of its rows."""
        found: Position = self._ends(rows)
        return found


class RowCounter:
    """What readers share that know how many rows there are: where they stand is a number of rows."""

    name: str
    total: int
    what = "columns or first rows"  # by which the table is known again
    _rows: int  # that were read

    def _position(self, rows: int) -> Position:
        raise NotImplementedError

    def start(self) -> Position:
        """Before the first row."""
        return self._position(0)

    def go_to(self, position: Position) -> None:
        """Go on after a row, if this is the table that the position is of."""
        if position.rows > self.total:
            raise DataError(
                f"{self.name} has {self.total:,} rows, but the model was learned from {position.rows:,} of the same "
                "table; for a table of new rows pass --new-rows"
            )
        if self._position(position.rows).stamp != position.stamp:
            raise DataError(
                f"{self.name} is not the table that the model was learned from: {self.what} differ; pass "
                "that one, or --new-rows for a table of new rows"
            )
        self._rows = position.rows

    def done(self) -> float | None:
        """The share of the table that was read."""
        return self._rows / self.total if self.total else 1.0


def open_blocks(path: str | os.PathLike[str], columns: Sequence[str] | None = None, skip: bool = False) -> Any:
    """A reader of a .csv, .tsv (both also .gz), .parquet or .pq file or a folder of them; - is standard input.

    Parameters
    ----------
    path : str or path
    columns : names, optional
        Of text without a header line.
    skip : bool
        Leave rows of text out that have too few or too many values.

    Returns
    -------
    TextBlocks, ParquetBlocks or FolderBlocks
    """
    from meshnn.data.folder_blocks import FolderBlocks
    from meshnn.data.parquet_blocks import ParquetBlocks
    from meshnn.data.text_blocks import FileBytes, InputBytes, TextBlocks

    file, name = Path(path), as_path(path)[1]
    if name == "-":
        return TextBlocks(InputBytes(), STANDARD_INPUT, ",", columns, skip)
    with explained("read", name):
        status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            if columns is not None:
                raise DataError(f"{name} has names for its columns; they are given for text without a header line only")
            return FolderBlocks(file)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{name} is a pipe or a device, expected a file; pipe it in: meshnn stream - < {name}")
        ending = _ending(file, name, "reads")
        if ENDINGS[ending]:
            return TextBlocks(FileBytes(file, ending.endswith(".gz")), name, ENDINGS[ending], columns, skip)
        if columns is not None:
            raise DataError(f"{name} has names for its columns; they are given for text without a header line only")
        return ParquetBlocks(file, name)
