"""`ParquetFiles`: a Parquet file, or all of a folder in the order of their names, as one table read block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.data.tables import BEFORE, SOURCE, shown
from meshnn.errors import DataError
from meshnn.files import as_path, explained
from meshnn.memory import format_bytes

__all__ = ["ENDINGS", "LARGE", "ParquetFiles", "in_blocks", "is_numeric"]

ENDINGS = (".parquet", ".pq")
#: Rows that are read at once.
ROWS = 2**16
#: A single file of more bytes than so many, once it is unpacked, is read block by block.
LARGE = 2**30
#: Row groups that are looked into to tell what a column holds.
GROUPS = 64


def in_blocks(path: Path) -> bool:
    """Whether a path is read block by block: a folder, or a Parquet file that is large once it is unpacked."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if path.is_dir() or path.suffix.lower() not in ENDINGS or not path.is_file():
            return path.is_dir()
        found = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # whoever reads it says what is wrong with it
    return int(sum(found.row_group(k).total_byte_size for k in range(found.num_row_groups))) > LARGE


class ParquetFiles:
    """Files with the same columns, one after the other; names of folders like year=2024 are columns, too.

    Parameters
    ----------
    path : path
        A file or a folder.

    Attributes
    ----------
    files : list of Path
    counts : list of int
        Rows of each.
    schema : pyarrow.Schema
        That of the first file, but for numbers that have another type elsewhere.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import pyarrow as pa
        from pyarrow import dataset

        self.path, self.name = Path(path), as_path(path)[1]
        with explained("read", self.name):
            self.path.stat()
            self._found = self._look()
        self.files = list(self._found)
        if not self.files:
            raise DataError(f"{self.name} has no .parquet file in it; name the folder that has them")
        for file in self.files:
            if self._found[file][0] == 0:
                raise DataError(f"{file} is empty, expected a Parquet file; write it again, or leave it out")
        base = str(self.path) if self.path.is_dir() else None
        # pages that were written with a checksum are compared with it
        form = dataset.ParquetFileFormat(
            default_fragment_scan_options=dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
        )
        try:
            data = dataset.dataset([str(file) for file in self.files], format=form, partitioning="hive",
                                   partition_base_dir=base)  # fmt: skip
            self._fragments = list(data.get_fragments())
        except (pa.ArrowException, OSError) as error:
            raise self.broken(error, self.files[0]) from None  # the others are not looked at yet
        self.counts = [self._rows_of(k) for k in range(len(self.files))]
        self.rows, self.schema = sum(self.counts), self._widened(data.schema)

    def _look(self) -> dict[Path, tuple[int, int]]:
        """The files, with what tells whether they are still the same."""
        files = [self.path]
        if self.path.is_dir():
            files = sorted(
                file for file in self.path.rglob("*")
                if file.suffix.lower() in ENDINGS and not _is_hidden(file.relative_to(self.path)) and file.is_file()
            )  # fmt: skip
        return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}

    def _rows_of(self, k: int) -> int:
        import pyarrow as pa

        try:
            return int(self._fragments[k].metadata.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise self.broken(error, self.files[k]) from None

    def _widened(self, schema: Any) -> Any:
        """The schema of the first file, in which numbers that have another type elsewhere have one that holds both."""
        import pyarrow as pa
        from pyarrow import types

        kinds: dict[str, set[Any]] = {}
        for fragment in self._fragments:
            for field in fragment.physical_schema:
                kinds.setdefault(field.name, set()).add(field.type)
        for k, field in enumerate(schema):
            found = kinds.get(field.name, set())
            if len(found) > 1 and all(map(is_numeric, found)):
                whole = all(types.is_integer(kind) or types.is_boolean(kind) for kind in found)
                schema = schema.set(k, field.with_type(pa.int64() if whole else pa.float64()))
        return schema

    @property
    def stamp(self) -> dict[Path, tuple[int, int]]:
        """Tells the same files from others, and from themselves after a change."""
        return dict(self._found)

    def broken(self, error: Exception, file: Path, row: int | None = None) -> DataError:
        """What cannot be read, and from where on."""
        what = " ".join(str(error).split())[:200]
        after = "" if row is None else f" after row {row:,}"
        return DataError(f"{file} cannot be read{after} ({what}); write it again, or leave it out")

    # -- reading -----------------------------------------------------------------------------------------------------

    def batches(self, k: int, columns: Sequence[str], first: int = 0) -> Iterator[tuple[Any, int]]:
        """Blocks of file number k from a row on, each with the rows of the file before it."""
        import pyarrow as pa

        file, row, skip = self.files[k], first, first
        try:
            fragment = self._fragments[k]
            self.check_alike(k, columns)
            if first:
                sizes = [group.num_rows for group in fragment.row_groups]
                gone = int(np.searchsorted(np.cumsum(sizes), first, side="right"))
                skip -= sum(sizes[:gone])
                if gone == len(sizes):
                    return
                fragment = fragment.subset(row_group_ids=list(range(gone, len(sizes))))
            for batch in fragment.to_batches(
                schema=self.schema, columns=list(columns), batch_size=ROWS, batch_readahead=2
            ):
                part = batch.slice(min(skip, batch.num_rows))
                skip -= min(skip, batch.num_rows)
                if part.num_rows:
                    part.validate(full=True)  # a damaged file may hold text that is not UTF-8
                    yield part, row
                    row += part.num_rows
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            self.check_unchanged()
            raise self.broken(error, file, self._whole_rows(k, columns, row)) from None
        if row != self.counts[k]:
            raise DataError(f"{file} has {row:,} rows, but says {self.counts[k]:,}; write it again")

    def _whole_rows(self, k: int, columns: Sequence[str], seen: int) -> int:
        """Rows before the first row group that is damaged: it is read ahead, and found before those are seen."""
        import pyarrow as pa

        count = 0
        for group in self._fragments[k].split_by_row_group():
            try:
                count += sum(batch.num_rows for batch in group.to_batches(schema=self.schema, columns=list(columns)))
            except (pa.ArrowException, UnicodeDecodeError, OSError):
                return count
        return seen

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """All blocks as tables that know their file and their place in it."""
        import pyarrow as pa

        for k, file in enumerate(self.files):
            for batch, first in self.batches(k, columns):
                table = pa.Table.from_batches([batch])
                named = {SOURCE: str(file).encode(errors="replace"), BEFORE: str(first).encode()}
                yield table.replace_schema_metadata(named)
        self.check_unchanged()

    def few(self, column: str, count: int) -> Any:
        """A column of about so many rows, from the beginnings of row groups evenly spaced, as a table."""
        import pyarrow as pa

        groups = [(k, g) for k, fragment in enumerate(self._fragments) for g in range(fragment.num_row_groups)]
        some = groups if len(groups) <= GROUPS else [groups[i * len(groups) // GROUPS] for i in range(GROUPS)]
        each, parts = max(1, count // max(len(some), 1)), []
        for k, g in some:
            try:
                self.check_alike(k, [column])
                fragment = self._fragments[k].subset(row_group_ids=[g])
                parts.append(fragment.scanner(schema=self.schema, columns=[column], batch_size=each).head(each))
            except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
                raise self.broken(error, self.files[k]) from None
        if not parts:
            raise DataError(f"{self.name} has no rows")
        return pa.concat_tables(parts).replace_schema_metadata({SOURCE: self.name.encode(errors="replace")})

    # -- what must hold ----------------------------------------------------------------------------------------------

    def check_alike(self, k: int, columns: Sequence[str]) -> None:
        """Refuse a file whose columns are not those of the first one."""
        from pyarrow import types

        found, file = self._fragments[k].physical_schema, self.files[k]
        for name in columns:
            if name in found.names:
                kind, known = found.field(name).type, self.schema.field(name).type
                text = [types.is_string(t) or types.is_large_string(t) or types.is_dictionary(t) for t in (kind, known)]
                if kind != known and (text[0] != text[1] or not (text[0] or is_numeric(kind))):
                    raise DataError(
                        f"{file}: column {shown(name)} is {kind}, but {known} in {self.files[0]}; write all files alike"
                    )
            elif f"{name}=" not in os.fspath(file):  # else the name of its folder says it
                raise DataError(f"{file} has no column {shown(name)}, which {self.files[0]} has; write all files alike")

    def check_unchanged(self) -> None:
        """Refuse files that somebody has written since they were found."""
        advice = "begin again when nobody writes there"
        with explained("read", self.name):
            now = self._look() if self.path.exists() else {}
        for file, stamp in self._found.items():
            if now.get(file) != stamp:
                what = "is gone" if file not in now else "was changed"
                raise DataError(f"{file} {what} while {self.name} was read; {advice}")
        for file in now:
            if file not in self._found:
                raise DataError(f"{file} turned up while {self.name} was read; {advice}")

    def __str__(self) -> str:
        size = format_bytes(sum(size for size, _ in self._found.values()))
        return f"{len(self.files):,} files, {size}" if len(self.files) > 1 else size


def is_numeric(kind: Any) -> bool:
    """Whether a type of pyarrow is one of numbers, or of true and false."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_hidden(file: Path) -> bool:
    """Whether it, or a folder that it is in, is no part of a table: logs, what is being written."""
    return any(part.startswith((".", "_")) and "=" not in part for part in file.parts)
