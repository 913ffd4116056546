"""Parquet, Feather and Arrow files, or a folder of them, as one table that is read block by block; also .npy files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meshnn.errors import DataError
from meshnn.files import as_path, explained
from meshnn.memory import format_bytes
from meshnn.tables.blocks import Block, CountedReader
from meshnn.tables.cells import family_of
from meshnn.tables.names import listed, shown, unique_names, with_origin
from meshnn.tables.sources import ROWS, matrix_file

__all__ = ["ENDINGS", "ArrowReader", "NpyReader"]

#: Endings of the files, with their formats in `pyarrow.dataset`.
ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".feather": "ipc", ".arrow": "ipc"}


class ArrowReader(CountedReader):
    """Files with the same columns, sorted by name. Folders such as year=2024 define columns.

    Later files of a folder, whose names sort after those already read, are new rows of the same table. `counts` are the
    rows of each file, `stamp` contains their sizes and times. `types` are the column types of the first file; numbers
    with different types in other files are widened to a common type.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from pyarrow import dataset  # imports pandas, which is slow

        super().__init__()
        self.path, self.name = Path(path), as_path(path)[1]
        with explained("read", self.name):
            self.path.stat()
            self.stamp = self._file_stamps()
        self.files = list(self.stamp)
        if not self.files:
            raise DataError(f"{self.name} contains no .parquet file; name the folder that does", code="empty")
        if empty := [file for file, (size, _) in self.stamp.items() if size == 0]:
            raise DataError(f"{empty[0]} is empty; write it again, or leave it out", code="empty")
        formats = {ENDINGS.get(file.suffix.lower(), "parquet") for file in self.files}
        if len(formats) > 1:
            raise DataError(f"{self.name} has files of several formats; keep one of them there", code="format")
        form: Any = formats.pop()
        if form == "parquet":  # verifies the checksums of pages that have one
            scan = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
            form = dataset.ParquetFileFormat(default_fragment_scan_options=scan)
        folders = {"partitioning": "hive", "partition_base_dir": str(self.path)} if self.path.is_dir() else {}
        with self._reading(self.files[0]):  # the other files are opened later
            data = dataset.dataset([str(file) for file in self.files], format=form, **folders)
            self._fragments = list(data.get_fragments())
        self.counts: list[int] = []
        for file, fragment in zip(self.files, self._fragments, strict=True):
            with self._reading(file):
                self.counts.append(fragment.count_rows())
        self.total = sum(self.counts)
        self._starts = [0, *accumulate(self.counts)]  # rows before each file
        self._schema = self._widened(data.schema)
        self._name_columns()
        self._few: list[Any] | None = None

    def _name_columns(self) -> None:
        """Set the names of the columns, without unnamed ones, and find those that are the pandas index."""
        raw = self._schema.names
        unnamed = {name for name in raw if name.startswith("__index_level_") or not name.strip()}
        self.notes += [f"{self.name}: column {shown(name)} is the index of pandas: left out" for name in unnamed]
        checked = zip(raw, unique_names(raw, self.name), strict=True)
        self._raw = {name: known for known, name in checked if known not in unnamed}
        self.names = self.first_line = list(self._raw)
        self.types = {name: self._schema.field(known).type for name, known in self._raw.items()}
        stored = (self._schema.pandas_metadata or {}).get("index_columns", [])
        self.index = tuple(name for name, known in self._raw.items() if known in stored)
        if self.index:
            self.notes.append(f"{self.name}: column {listed(self.index)} is the index of pandas: no feature")

    def _file_stamps(self) -> dict[Path, tuple[int, int]]:
        """Return size and time of each file; hidden files and files in hidden folders are ignored."""

        def belongs(file: Path) -> bool:
            parts = file.relative_to(self.path).parts
            # e.g. logs and temporary files
            hidden = any(part.startswith((".", "_")) and "=" not in part for part in parts)
            return file.suffix.lower() in ENDINGS and not hidden and file.is_file()

        files = sorted(filter(belongs, self.path.rglob("*"))) if self.path.is_dir() else [self.path]
        return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}

    @contextmanager
    def _reading(self, file: Path) -> Iterator[None]:
        """Convert the errors of reading a file to DataError."""
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            self.check_unchanged()
            what = " ".join(str(error).split())[:200]
            message = f"{file} cannot be read ({what}); write it again, or leave it out"
            raise DataError(message, code="damaged") from None

    def _widened(self, schema: Any) -> Any:
        """Return the schema in which numbers of different types have a common type."""
        kinds: dict[str, set[Any]] = {}
        for fragment in self._fragments:
            for field in fragment.physical_schema:
                kinds.setdefault(field.name, set()).add(field.type)
        for k, field in enumerate(schema):
            found = kinds.get(field.name, set())
            if len(found) > 1 and {family_of(kind) for kind in found} == {"numeric"}:
                whole = all(pa.types.is_integer(kind) or pa.types.is_boolean(kind) for kind in found)
                schema = schema.set(k, field.with_type(pa.int64() if whole else pa.float64()))
        return schema

    def batches(self, k: int, columns: Sequence[str], first: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield tables of file number k from row `first` on, each with the number of file rows before it."""
        file, row, skip, fragment = self.files[k], first, first, self._fragments[k]
        self.check_alike(k, columns)
        raw = [self._raw[name] for name in columns]
        with self._reading(file):
            if first and hasattr(fragment, "row_groups"):
                sizes = [group.num_rows for group in fragment.row_groups]
                gone = int(np.searchsorted(np.cumsum(sizes), first, side="right"))
                skip -= sum(sizes[:gone])
                fragment = fragment.subset(row_group_ids=list(range(gone, len(sizes))))
            for batch in fragment.to_batches(schema=self._schema, columns=raw, batch_size=ROWS, batch_readahead=2):
                part = batch.slice(min(skip, batch.num_rows))
                skip -= min(skip, batch.num_rows)
                if part.num_rows:
                    part.validate(full=True)  # a damaged file may contain text that is not UTF-8
                    yield pa.Table.from_batches([part]).rename_columns(list(columns)), row
                    row += part.num_rows
        if row != self.counts[k]:
            what = f"{file} has {row:,} rows, but {self.counts[k]:,} in its metadata"
            raise DataError(f"{what}; write it again", code="damaged")

    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position."""
        for k, start in enumerate(self._starts[:-1]):
            if self._starts[k + 1] > self._rows:
                for table, before in self.batches(k, self.names, self._rows - start):
                    yield self._block(table, start + before)

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield all blocks as tables whose metadata contain their file and their position in it."""
        for k, file in enumerate(self.files):
            for table, first in self.batches(k, columns):
                yield with_origin(table, str(file), before=first)
        self.check_unchanged()

    def few(self, column: str, count: int, most_groups: int = 64) -> Any:
        """Return a column of about `count` rows as a table: the first rows of evenly spaced row groups."""
        groups = [(k, g) for k, found in enumerate(self._fragments) for g in range(getattr(found, "num_row_groups", 1))]
        if len(groups) > most_groups:
            groups = [groups[i * len(groups) // most_groups] for i in range(most_groups)]
        if not groups:
            raise DataError(f"{self.name} has no rows", code="empty")
        parts: list[Any] = []
        each, raw = max(1, count // len(groups)), self._raw[column]
        for k, g in groups:
            self.check_alike(k, [column])
            with self._reading(self.files[k]):
                fragment = self._fragments[k]
                fragment = fragment.subset(row_group_ids=[g]) if hasattr(fragment, "row_groups") else fragment
                parts.append(fragment.scanner(schema=self._schema, columns=[raw], batch_size=each).head(each))
        return with_origin(pa.concat_tables(parts).rename_columns([column]), self.name)

    def check_alike(self, k: int, columns: Sequence[str]) -> None:
        """Raise DataError if file number k does not have these columns with the types of the first file."""
        file = self.files[k]
        with self._reading(file):
            found = {field.name: field.type for field in self._fragments[k].physical_schema}
        for name in columns:
            kind, known = found.get(self._raw[name]), self.types[name]
            if kind is None and f"{name}=" not in os.fspath(file):  # a column may be defined by the folder of the file
                message = f"{file} has no column {shown(name)}, which {self.files[0]} has; write all files alike"
                raise DataError(message, code="columns", field=name)
            if kind in (None, known):
                continue
            if family_of(kind) != family_of(known) or family_of(kind) not in ("numeric", "categorical"):
                message = f"{file}: column {shown(name)} is {kind}, but {known} in {self.files[0]}"
                raise DataError(f"{message}; write all files alike", code="columns", field=name)

    def check_unchanged(self) -> None:
        """Raise DataError if files changed after they were listed."""
        with explained("read", self.name):
            now = self._file_stamps() if self.path.exists() else {}
        for file in {**self.stamp, **now}:
            if self.stamp.get(file) != now.get(file):
                what = "is gone" if file not in now else "was changed" if file in self.stamp else "turned up"
                message = f"{file} {what} while {self.name} was read; read it again when no program writes to it"
                raise DataError(message, code="changed")

    def __str__(self) -> str:
        size = format_bytes(sum(size for size, _ in self.stamp.values()))
        return f"{len(self.files):,} files, {size}" if len(self.files) > 1 else size

    def _identity(self, rows: int) -> Any:
        if self._few is None:  # the first rows of the first file that is not empty
            filled = next((k for k, count in enumerate(self.counts) if count), None)
            found = iter(()) if filled is None else self.batches(filled, self.names)
            self._few = next((table.slice(0, 5).to_pylist() for table, _ in found), [])
        begun = sum(start < rows for start in self._starts[:-1])
        names = [str(file.relative_to(self.path)) for file in self.files[:begun]]
        whole = self.counts[: max(begun - 1, 0)]  # rows may have been added to the last file
        return {name: str(kind) for name, kind in self.types.items()}, self._few[:rows], names, whole


class NpyReader(CountedReader):
    """The rows of a matrix in a memory-mapped .npy file; its columns are named x0, x1, ..."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._matrix, self.name = matrix_file(path)
        self.total = len(self._matrix)
        self.names = self.first_line = [f"x{k}" for k in range(self._matrix.shape[1])]

    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position."""
        for first in range(self._rows, self.total, ROWS):
            part = np.ascontiguousarray(self._matrix[first : first + ROWS].T)
            yield self._block(pa.Table.from_arrays([pa.array(column) for column in part], names=self.names), first)

    def _identity(self, rows: int) -> Any:
        return self._matrix.dtype, self._matrix.shape[1:], self._matrix[: min(rows, 5)].tobytes()
