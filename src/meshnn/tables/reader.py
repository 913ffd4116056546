"""Open any table as blocks of rows, or read it as a whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meshnn.errors import DataError
from meshnn.files import as_path, explained
from meshnn.memory import check_fits
from meshnn.tables.blocks import Reader
from meshnn.tables.cells import Cells, kind_of, looks_numeric, typed_column, without_views
from meshnn.tables.files import ENDINGS, ArrowReader, NpyReader
from meshnn.tables.names import quoted, shown, with_origin
from meshnn.tables.sources import npy_blocks
from meshnn.tables.text import ByteSource, ReadOptions, TextReader

__all__ = ["STANDARD_INPUT", "TEXT", "Loaded", "ReadOptions", "in_blocks", "open_table", "read_table", "row_blocks"]

#: Its name in messages and stored models.
STANDARD_INPUT = "standard input"
#: Endings of text files, with their default separators.
TEXT = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
#: A Parquet file with more uncompressed bytes than this is read block by block.
LARGE = 2**30


@dataclass(frozen=True)
class Loaded:
    """A table in memory, and notes for the user."""

    table: Any  # pyarrow.Table
    notes: list[str]


def in_blocks(path: Path) -> bool:
    """Return whether a path is read block by block: a folder, or a Parquet file that is large when uncompressed."""
    try:
        if path.is_dir() or ENDINGS.get(path.suffix.lower()) != "parquet" or not path.is_file():
            return path.is_dir()
        found = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # the error is raised when the file is read
    return int(sum(found.row_group(k).total_byte_size for k in range(found.num_row_groups))) > LARGE


def open_table(
    path: str | os.PathLike[str],
    options: ReadOptions | None = None,
    columns: Sequence[str] | None = None,
    skip_broken: bool = False,
    text: Collection[str] = (),
) -> Reader:
    """Open a table as blocks of rows.

    The path is a .csv or .tsv file (both also .gz), a .parquet, .pq, .feather, .arrow or .npy file, a folder of Parquet
    or Arrow files, or "-" for CSV from standard input. Cells of text files are text; other files have types. See
    `TextReader` for the other arguments.
    """
    file, name, options = Path(path), as_path(path)[1], options or ReadOptions()
    if name == "-":
        return TextReader(ByteSource(), STANDARD_INPUT, options, columns, skip_broken, text)
    with explained("read", name):
        mode = file.stat().st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            message = f"{name} is a pipe or a device, expected a file; pass it on standard input, as -"
            raise DataError(message, code="pipe")
        separator = next((sep for ending, sep in TEXT.items() if file.name.lower().endswith(ending)), None)
        if separator is not None and stat.S_ISREG(mode):
            return TextReader(ByteSource(file), name, options, columns, skip_broken, text, separator)
        if columns is not None:
            raise DataError(f"{name} has column names; leave out the names that were passed", code="columns")
        if stat.S_ISDIR(mode) or file.suffix.lower() in ENDINGS:
            return ArrowReader(file)
        if file.suffix.lower() == ".npy":
            return NpyReader(file)
    known = ", ".join([*TEXT, *ENDINGS, ".npy"])
    raise DataError(f"{name} has an unknown ending, expected one of {known}", code="ending", expected=known)


def read_table(path: str | os.PathLike[str], text: Collection[str] = (), options: ReadOptions | None = None) -> Loaded:
    """Read a whole table (see `open_table`).

    Text is UTF-8 with a header line. Columns of a text file become integers, floats or booleans if all of their cells
    are; numbers with leading zeros are codes and remain text. Dates also remain text; `Encoder` recognises them.

    Columns in `text` are not converted: those that were text in training (`Encoder.text_columns`).

    Examples
    --------
    >>> import tempfile
    >>> from meshnn.tables.reader import read_table
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("age,city\\n31,Bonn\\n,Ulm\\n")
    ...     file.flush()
    ...     read_table(file.name).table.to_pydict()
    {'age': [31, None], 'city': ['Bonn', 'Ulm']}
    """
    parts: list[Any] = []
    with open_table(path, options, text=text) as reader:
        size = 0
        for block in reader.blocks():
            if block is None:
                continue
            size += block.table.get_total_buffer_size()
            check_fits(2.0 * size, f"reading {reader.name}", "take a part of the file")
            parts.append(block.table)
            if block.fault is not None:
                raise block.fault
        if not reader.names:
            raise DataError(f"{reader.name} has no columns, expected at least one", code="empty")
        if not sum(part.num_rows for part in parts):
            raise DataError(f"{reader.name} has no rows, expected at least one", code="empty")
    table = without_views(pa.concat_tables(parts))
    if isinstance(reader, TextReader):
        table = _typed(table, reader, text)
    return Loaded(with_origin(table, reader.name, index=reader.index), reader.notes)


def row_blocks(path: str | os.PathLike[str], text: Collection[str] = ()) -> Iterator[Any]:
    """Yield the rows of a file or folder as tables, block by block, or of a `.npy` file as arrays.

    Text files are read as a whole, because the types of their columns depend on all cells.
    """
    file = Path(path)
    if file.suffix.lower() == ".npy" and not file.is_dir():
        yield from npy_blocks(file)
    elif in_blocks(file):
        found = ArrowReader(file)
        yield from found.tables([name for name in found.names if name not in found.index])
    else:
        yield read_table(path, text).table


def _dates_in(values: Any) -> tuple[int, int]:
    """Return the number of cells that are dates, and the index of the first other cell, -1 if there is none."""
    if values.null_count == len(values) or kind_of(values.type) != "categorical":
        return 0, -1
    stamps, other = Cells(None, "", values, "categorical", False).days
    return int((~np.isnat(stamps)).sum()), other


def _typed(table: Any, reader: TextReader, text: Collection[str]) -> Any:
    """Convert text columns to the types of their cells; refuse or report numbers in another notation."""
    columns, odd = dict(zip(table.column_names, table.columns, strict=True)), list[str]()
    kept = set(text)
    for name in [name for name in columns if name not in kept]:
        values, padded = typed_column(columns[name])
        columns[name] = values
        if padded:
            reader.notes.append(f"{reader.name}: column {shown(name)} has numbers with leading zeros: kept as text")
            continue
        dates, other = _dates_in(values)
        # more than half of the cells must be dates, so that a single cell does not decide
        if other >= 0 and 2 * dates > len(values) - values.null_count:
            columns[name] = values.dictionary_encode()
            reader.notes.append(
                f"{reader.name}: column {shown(name)} is treated as text: {dates:,} of its {len(values):,} values are "
                f"dates, but row {other + 1:,} holds {quoted(values[other])}; fix or empty that cell for dates"
            )
        elif not dates and (example := looks_numeric(values)) is not None:
            row, cell = example
            if reader.separator != "," and "," in cell and "%" not in cell:
                message = f"{reader.name}: column {shown(name)} has numbers with commas ({cell!r} in row {row:,})"
                raise DataError(f"{message}, expected decimal points", code="decimal", field=name, value=cell, row=row,
                                expected="decimal points")  # fmt: skip
            odd.append(f"{shown(name)} ({cell[:30]!r})")
    if odd:
        few, many = ", ".join(odd[:3]) + ", ..." * (len(odd) > 3), f"{len(odd):,} columns" if odd[1:] else "column"
        note = f"{many} {few}: numbers in another notation, kept as text (see decimal and thousands)"
        reader.notes.append(f"{reader.name}: {note}")
    return pa.table(columns)
