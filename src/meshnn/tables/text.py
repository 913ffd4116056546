"""CSV and TSV in blocks of whole rows: from files, compressed or not, and from standard input as it arrives.

The bytes are cut after the last complete record, and each piece is parsed by `pyarrow.csv.read_csv` on this thread:
no background thread can outlive an error, rows have numbers, and the byte after any row is known, so that reading can
resume there. All cells stay text; `meshnn.tables.reader.read_table` finds types once all rows are known.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import select
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshnn.errors import DataError
from meshnn.files import explained
from meshnn.tables.blocks import Block, Position, Reader, stamp_of
from meshnn.tables.names import listed, shown, unique_names

__all__ = ["ByteSource", "ReadOptions", "TextReader"]

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
BINARY = {b"\x89PNG": "a PNG image", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "compressed with gzip",
          b"PAR1": "a Parquet file", b"%PDF": "a PDF file", b"\xff\xfe": "UTF-16 text",
          b"\xfe\xff": "UTF-16 text"}  # fmt: skip
#: Maximum number of bytes of one row.
LONGEST = 2**26
#: Bytes at the beginning of a table and before a position that identify the table.
KNOWN_BY = 4096


@dataclass(frozen=True)
class ReadOptions:
    """How a text file is written.

    Parameters
    ----------
    sep : str, optional
        Separator of values; by default found from the first line.
    decimal, thousands : str
        Decimal point, and separator of thousands. By default numbers are written 1234.5; text in another notation
        stays text.
    encoding : str
        Character encoding.
    na : tuple of str
        Cells that are missing values.
    block_size : int
        Bytes that are read at once.
    """

    sep: str | None = None
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] = MISSING
    block_size: int = 2**20

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding)
        except (LookupError, ValueError):
            raise DataError(f"unknown encoding {self.encoding!r}", code="option", field="encoding") from None
        for name in ("sep", "decimal", "thousands"):
            value = getattr(self, name)
            if value is not None and len(value) != 1:
                raise DataError(f"{name} must be one character, got {value!r}", code="option", field=name)
        given = "".join([self.sep or "", self.decimal, self.thousands or "", *self.na])
        if any("\ud800" <= letter <= "\udfff" for letter in given):
            raise DataError("sep, decimal, thousands and na must be text", code="option", field="na")
        if self.decimal == self.thousands:
            raise DataError("decimal and thousands are the same character", code="option", field="thousands")


class ByteSource:
    """The bytes of a file, decompressed, or of standard input as soon as they arrive."""

    def __init__(self, path: Path | None = None) -> None:
        self.live = path is None
        self._handle = self._size = -1
        if path is not None:
            self._raw: Any = path.open("rb")
            self._stream: Any = gzip.GzipFile(fileobj=self._raw) if path.name.lower().endswith(".gz") else self._raw
            self._size = path.stat().st_size
            return
        self._stream = getattr(sys.stdin, "buffer", None)
        if self._stream is None:
            raise DataError("standard input is closed; pipe a table into the command, or name a file")
        try:
            self._handle = self._stream.fileno()
            select.select([self._handle], [], [], 0)
        except (OSError, ValueError):  # not a real file, or a system that cannot wait for one
            self._handle = -1

    def read(self, size: int) -> bytes | None:
        """Return the next bytes, empty at the end; None if none arrived within a fraction of a second."""
        if self._handle >= 0:
            return os.read(self._handle, size) if select.select([self._handle], [], [], 0.2)[0] else None
        found: bytes = getattr(self._stream, "read1", self._stream.read)(size) if self.live else self._stream.read(size)
        return found

    def skip(self, count: int) -> None:
        """Go past some bytes."""
        self._stream.seek(count, os.SEEK_CUR)

    def done(self) -> float | None:
        """Return the fraction that was read."""
        return None if self.live else min(self._raw.tell() / self._size, 1.0) if self._size else 1.0

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self.live:
            self._stream.close()
            self._raw.close()


class TextReader(Reader):
    """Rows of CSV or TSV, as text.

    Parameters
    ----------
    stream : ByteSource
    name : str
        As messages call it.
    options : ReadOptions
    columns : names, optional
        Of a file without a header line.
    skip_broken : bool
        Leave out rows with too few or too many values.
    text : names
        Columns to keep as they are written, whatever `options` says about numbers.
    default : str
        Separator that is tried first.
    """

    def __init__(
        self,
        stream: ByteSource,
        name: str,
        options: ReadOptions,
        columns: Sequence[str] | None = None,
        skip_broken: bool = False,
        text: Collection[str] = (),
        default: str = ",",
    ) -> None:
        super().__init__()
        self.name, self.live, self._stream, self._options = name, stream.live, stream, options
        self._skip, self._text, self._rows, self._ended, self._unclosed = skip_broken, text, 0, False, False
        self._rest, self._head, self._before, self._at, self._size = b"", b"", b"", 0, options.block_size
        utf8 = codecs.lookup(options.encoding).name in ("utf-8", "utf-8-sig", "ascii")
        self._decoder = None if utf8 else codecs.getincrementaldecoder(options.encoding)()
        try:
            self._open(columns, default)
        except BaseException:
            self.close()
            raise

    # -- the header ------------------------------------------------------------------------------------------------

    def _open(self, columns: Sequence[str] | None, default: str) -> None:
        line = self._first_line()
        for magic, what in BINARY.items():
            if line.startswith(magic):
                raise DataError(f"{self.name} is {what}, expected text in UTF-8; save it as CSV in UTF-8", code="text")
        header = line.removeprefix(b"\xef\xbb\xbf")
        if not header.strip():
            raise DataError(f"{self.name} is empty, expected a header line and rows", code="empty")
        self._check_text(header, self._at)
        if self._unclosed:
            raise self._quote("the header line")
        bare = re.sub(rb'(^|[,;\t|])"([^"]|"")*"', rb"\1", header).decode()
        found = next((sep for sep in (default, ";", "\t", ",", "|") if sep in bare), default)
        self.separator = found if self._options.sep is None else self._options.sep
        if self.separator != default and self._options.sep is None:
            written = SEPARATORS[self.separator]
            self.notes.append(f"{self.name}: values are taken to be separated by {written}, as in the header line")
        self._single = self.separator not in bare  # then a blank line is a missing value
        cells = next(csv.reader(io.StringIO(header.decode(), newline=""), delimiter=self.separator))
        self.first_line = [cell.strip() for cell in cells]
        if columns is not None and set(self.first_line) != set(columns):
            if len(columns) != len(cells):
                counts = f"the first line has {len(cells)} values, but {len(columns)} columns are named"
                raise DataError(f"{self.name}: {counts} ({listed(columns, 10)}); name each of them", code="columns")
        else:
            columns = cells
            self._take(len(line))
        self._raw = unique_names(columns, self.name)
        self._left_out = self._raw[:1] if self._raw[0] in ("", "Unnamed: 0") else []
        if self._left_out:
            what = "has no name" if not self._raw[0] else "is called Unnamed: 0"
            self.notes.append(f"{self.name}: the first column {what}: left out, as the index of the rows")
        self.names = self._raw[len(self._left_out) :]
        self._size = max(self._size, 64 * len(header))  # wide tables: many rows per block all the same

    def _first_line(self) -> bytes:
        """Return the first line that is not blank."""
        while True:
            blank = len(self._rest) - len(self._rest.lstrip(b"\r\n"))
            if blank and not self._head.strip(b"\r\n"):
                self._take(blank)
            end = self._record_end(last=False)
            if end or self._ended:
                return self._rest[: end or len(self._rest)]
            self._more()

    def _more(self) -> bool:
        """Read some more bytes; return whether some arrived, or the end."""
        if len(self._rest) > LONGEST:
            row = f"row {self._rows + 1:,} has more than {LONGEST:,} bytes; perhaps a quote in it is never closed"
            raise DataError(f"{self.name}: {row}", code="quote", row=self._rows + 1)
        with self._explained():
            found = self._stream.read(self._size)
        if found is None:
            return False
        self._ended = not found
        if self._decoder is not None:
            try:
                found = self._decoder.decode(found, final=self._ended).encode()
            except UnicodeDecodeError as error:
                raise self._encoding(error.object[error.start], self._rest + error.object[: error.start]) from None
        if b"\n" not in found and b"\r" in found[:-1]:  # line ends of old Macs
            found = found.replace(b"\r", b"\n")
        self._rest += found
        return True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained("read", self.name):
            try:
                yield
            except (gzip.BadGzipFile, EOFError, zlib.error):
                advice = "copy or compress it again, or drop the .gz of its name if it is plain text"
                raise DataError(f"{self.name} is not compressed with gzip, or damaged; {advice}", code="gzip") from None

    def _take(self, count: int) -> bytes:
        """Consume bytes."""
        taken, self._rest = self._rest[:count], self._rest[count:]
        self._at += count
        if len(self._head) < KNOWN_BY:
            self._head = (self._head + taken)[:KNOWN_BY]
        self._before = (self._before + taken)[-KNOWN_BY:]
        return taken

    def _record_end(self, last: bool) -> int:
        """Return where the last (or first) complete record ends; 0 if there is none. Quotes may hold line ends."""
        data, self._unclosed = self._rest, False
        find = data.rfind if last else data.find
        end = find(b"\n")
        if data.find(b'"', 0, len(data) if last or end < 0 else end) < 0:
            return end + 1
        separators = re.escape((self.separator or self._options.sep or ",;\t|").encode())
        best = start = 0
        for found in re.finditer(rb'(?:^|(?<=[\r\n%b]))"(?:[^"]|"")*+("?)' % separators, data):
            between = find(b"\n", start, found.start())
            if between >= 0:
                best = between + 1
                if not last:
                    return best
            if not found[1]:
                self._unclosed = True
                return best
            start = found.end()
        between = find(b"\n", start)
        return between + 1 if between >= 0 else best

    def _quote(self, where: str) -> DataError:
        message = f"{self.name}: a quote opened in {where} is never closed; close it, or double it inside a value"
        return DataError(message, code="quote", row=self._rows + 1)

    # -- rows ------------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position; None while no row is available yet."""
        while True:
            end = self._record_end(last=True)
            if not end and self._ended:
                end = len(self._rest)
                if end and self._unclosed:
                    raise self._quote(f"row {self._rows + 1:,}")
            if end:
                at, head, before, first, data = self._at, self._head, self._before, self._rows, self._take(end)
                if data.strip(b"\r\n") or self._single:
                    yield self._parsed(data, at, head, before, first)
            elif self._ended:
                return
            elif not self._more():
                yield None

    def _parsed(self, data: bytes, at: int, head: bytes, before: bytes, first: int) -> Block:
        self._check_text(data, at)
        table, fault = self._table(data)
        self._rows += table.num_rows

        def position(rows: int) -> Position:
            offset = self._offset(data, rows)
            stamp = stamp_of((head + data[:offset])[:KNOWN_BY], (before + data[:offset])[-KNOWN_BY:])
            return Position(at + offset, first + rows, stamp)

        return Block(table, first, fault, position)

    def _table(self, data: bytes) -> tuple[Any, DataError | None]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        broken: list[Any] = []

        def note(row: Any) -> str:
            broken.append(row)
            return "skip"

        conversion = arrow.ConvertOptions(
            column_types=dict.fromkeys(self._raw, pa.string()),
            null_values=[space + word for space in ("", " ") for word in self._options.na],
            strings_can_be_null=True,
            include_columns=self.names,
        )
        layout = arrow.ParseOptions(
            delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=not self._single,
            invalid_row_handler=note,
        )  # fmt: skip
        reading = arrow.ReadOptions(column_names=self._raw, block_size=len(data) + 2, use_threads=False)
        try:
            whole = pa.BufferReader(data if data.endswith(b"\n") else data + b"\n")
            table = arrow.read_csv(whole, reading, layout, conversion)
        except pa.ArrowInvalid as error:
            what = " ".join(str(error).split())[:200]
            if "Empty CSV" not in what:  # unless all of its rows were left out
                raise DataError(f"{self.name} cannot be read after row {self._rows:,} ({what})", code="text") from None
            table = pa.table({name: pa.array([], pa.string()) for name in self.names})
        if not broken or self._skip:
            self.skipped += len(broken)
            return self._with_plain_numbers(table), None
        table = table.slice(0, broken[0].number - 1)
        return self._with_plain_numbers(table), self._broken(broken[0])

    def _broken(self, row: Any) -> DataError:
        number, expected = self._rows + row.number, f"{row.expected_columns} as in the header"
        separators = SEPARATORS.get(self.separator, repr(self.separator))
        message = (
            f"{self.name}: row {number:,} has {row.actual_columns} values, expected {expected} ({shown(row.text)!r}); "
            f"fix the row, or quote values that hold {separators}"
        )
        return DataError(message, code="row", row=number, value=row.text, expected=expected)

    def _with_plain_numbers(self, table: Any) -> Any:
        """Rewrite numbers like 1.234,5 as 1234.5, where the options say that they are written so."""
        from pyarrow import compute

        point, thousands = self._options.decimal, self._options.thousands
        if point == "." and thousands is None:
            return table
        grouped = rf"\d{{1,3}}({re.escape(thousands)}\d{{3}})+|" if thousands else ""
        pattern = rf"^ *[+-]?({grouped}\d+)?({re.escape(point)}\d*)?([eE][+-]?\d+)? *$"
        arrays = []
        for name, values in zip(table.column_names, table.columns, strict=True):
            if name not in self._text:
                numbers = compute.replace_substring(values, thousands, "") if thousands else values
                numbers = compute.replace_substring(numbers, point, ".")
                values = compute.if_else(compute.match_substring_regex(values, pattern), numbers, values)
            arrays.append(values)
        return type(table).from_arrays(arrays, names=table.column_names)

    def _check_text(self, data: bytes, begin: int) -> None:
        if (at := data.find(b"\0")) >= 0:
            message = f"{self.name} holds a zero byte (byte {begin + at + 1:,}), expected text in UTF-8"
            raise DataError(message, code="text")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise self._encoding(data[error.start], data[: error.start]) from None

    def _encoding(self, byte: int, before: bytes) -> DataError:
        row, expected = self._rows + before.count(b"\n") + 1, self._options.encoding.upper()
        message = f"{self.name} is not {expected} text (byte 0x{byte:02x}, about row {row:,}); save it as {expected}"
        return DataError(message, code="encoding", row=row, value=f"0x{byte:02x}", expected=expected)

    def _offset(self, data: bytes, rows: int) -> int:
        """Return the number of bytes of some rows."""
        if rows == 0:
            return 0
        lines = data.split(b"\n")
        count = records = 0
        reader = csv.reader((line.decode() + "\n" for line in lines), delimiter=self.separator)
        limit = csv.field_size_limit(2**31 - 1)
        try:
            for record in reader:
                records += len(record) == len(self._raw) or (not record and self._single)
                count = reader.line_num
                if records == rows:
                    break
        finally:
            csv.field_size_limit(limit)
        return min(sum(map(len, lines[:count])) + count, len(data))

    # -- resuming --------------------------------------------------------------------------------------------------

    def start(self) -> Position:
        """Return the position before the first row."""
        return Position(self._at, self._rows, stamp_of(self._head, self._before))

    def go_to(self, position: Position) -> None:
        """Continue after a position; DataError if this is not the table that the position is of."""
        if position.offset < self._at:
            raise self._other(position.rows)
        while (left := position.offset - self._at) > 0:
            if self._rest:
                self._take(min(left, len(self._rest)))
            elif self._ended:
                raise self._shorter(position.rows)
            elif self._can_skip(left):
                with self._explained():
                    self._stream.skip(left - KNOWN_BY)
                self._at, self._before = self._at + left - KNOWN_BY, b""
            else:
                self._more()
        if stamp_of(self._head[: position.offset], self._before) != position.stamp:
            raise self._other(position.rows)
        self._rows = position.rows

    def _can_skip(self, left: int) -> bool:
        enough = left > max(self._size, KNOWN_BY) and len(self._head) >= KNOWN_BY
        return enough and not self.live and self._decoder is None

    def done(self) -> float | None:
        """Return the fraction of the table that was read; None if its size is unknown."""
        return self._stream.done()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
