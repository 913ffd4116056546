"""CSV and TSV in blocks of whole rows, from files (also compressed) and from standard input as it arrives.

The bytes are cut after the last complete record, and each piece is parsed by `pyarrow.csv.read_csv` on this thread.
Therefore no background thread outlives an error, rows have numbers, and the byte offset after any row is known, so that
reading can resume there. All cells remain text; `meshnn.tables.reader.read_table` finds types when all rows are known.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow

from meshnn.errors import DataError
from meshnn.files import explained
from meshnn.tables.blocks import Block, Position, Reader
from meshnn.tables.names import listed, shown, unique_names

__all__ = ["ByteSource", "ReadOptions", "TextReader"]


@dataclass(frozen=True)
class ReadOptions:
    """The format of a text file."""

    sep: str | None = None  # separator of values; default: detected in the first line
    decimal: str = "."
    thousands: str | None = None  # separator of thousands; by default, numbers with one remain text
    encoding: str = "utf-8"
    na: tuple[str, ...] = ("", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None")  # missing values
    block_size: int = 2**20  # bytes per block

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
    """The decompressed bytes of a file, or of standard input as they arrive."""

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
        except (OSError, ValueError):  # not a real file, or a system without `select`
            self._handle = -1

    def read(self, size: int) -> bytes | None:
        """Return the next bytes; empty at the end, None if none arrived within a fraction of a second."""
        if self._handle >= 0:
            return os.read(self._handle, size) if select.select([self._handle], [], [], 0.2)[0] else None
        found: bytes = getattr(self._stream, "read1", self._stream.read)(size) if self.live else self._stream.read(size)
        return found

    def skip(self, count: int) -> None:
        """Skip the given number of bytes."""
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
    """Rows of CSV or TSV as text.

    `name` is the file in messages, `columns` are the names for a file without a header line, and `skip_broken` leaves
    out rows with too few or too many values. Cells of the columns in `text` are not converted, and `default` is the
    separator that is tried first.
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
        self._skip, self._text, self._rows, self._ended = skip_broken, text, 0, False
        self._rest, self._at, self._head, self._tail, self._size = b"", 0, b"", b"", options.block_size
        utf8 = codecs.lookup(options.encoding).name in ("utf-8", "utf-8-sig", "ascii")
        self._decoder = None if utf8 else codecs.getincrementaldecoder(options.encoding)()
        try:
            self._open(columns, default)
        except BaseException:
            self.close()
            raise

    def _open(self, columns: Sequence[str] | None, default: str) -> None:
        line = self._first_line()
        kinds = {b"PK\x03\x04": "a zip or Excel", b"\x1f\x8b": "a gzip", b"PAR1": "a Parquet", b"%PDF": "a PDF"}
        for magic, kind in kinds.items():
            if line.startswith(magic):
                advice = "save it as CSV, or fix its ending"
                raise DataError(f"{self.name} is {kind} file, expected text; {advice}", code="text")
        header = line.removeprefix(b"\xef\xbb\xbf")
        if not header.strip():
            raise DataError(f"{self.name} is empty, expected a header line and rows", code="empty")
        self._check_text(header)
        bare = _masked(header, b",;\t|")[0].decode()
        found = next((sep for sep in (default, ";", "\t", ",", "|") if sep in bare), default)
        self.separator = found if self._options.sep is None else self._options.sep
        if self.separator != default and self._options.sep is None:
            written = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}[self.separator]
            self.notes.append(f"{self.name}: values are assumed to be separated by {written}, as in the header line")
        self._single = self.separator not in bare  # in a single column, a blank line is a missing value
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
        unnamed = self._raw[0] in ("", "Unnamed: 0")
        if unnamed:
            what = f"the first column {'is called Unnamed: 0' if self._raw[0] else 'has no name'}"
            self.notes.append(f"{self.name}: {what}: left out as the row index")
        self.names = self._raw[unnamed:]
        self._size = max(self._size, 64 * len(header))  # wide tables also get many rows per block

    def _first_line(self) -> bytes:
        """Return the first line that is not blank."""
        while True:
            self._take(len(self._rest) - len(self._rest.lstrip(b"\r\n")))
            end, unclosed = self._record_end(last=False)
            if end or self._ended:
                if unclosed and not end:
                    raise self._quote("the header line")
                return self._rest[: end or len(self._rest)]
            self._more()

    def _more(self, longest: int = 2**26) -> bool:
        """Read more bytes; return whether some arrived or the end was reached."""
        if len(self._rest) > longest:
            row = f"row {self._rows + 1:,} has more than {longest:,} bytes; a quote in it may be unclosed"
            raise DataError(f"{self.name}: {row}", code="quote", row=self._rows + 1)
        with explained("read", self.name):
            try:
                found = self._stream.read(self._size)
            except (gzip.BadGzipFile, EOFError, zlib.error):
                advice = "copy or compress it again, or drop the .gz of its name if it is plain text"
                raise DataError(f"{self.name} is not a gzip file, or is damaged; {advice}", code="gzip") from None
        if found is None:
            return False
        self._ended = not found
        if self._decoder is not None:
            try:
                found = self._decoder.decode(found, final=self._ended).encode()
            except UnicodeDecodeError as error:
                raise self._not_text(error.object[error.start], self._rest + error.object[: error.start]) from None
        if b"\n" not in found and b"\r" in found[:-1]:  # line ends of classic Mac OS
            found = found.replace(b"\r", b"\n")
        self._rest += found
        return True

    def _take(self, count: int) -> bytes:
        """Consume bytes."""
        taken, self._rest = self._rest[:count], self._rest[count:]
        self._at += len(taken)
        self._head, self._tail = _extended(self._head, self._tail, taken)
        return taken

    def _record_end(self, last: bool) -> tuple[int, bool]:
        """Return the end of the last (or first) complete record, 0 if there is none, and whether a quote is open."""
        masked, unclosed = _masked(self._rest, (self.separator or self._options.sep or ",;\t|").encode())
        return (masked.rfind(b"\n") if last else masked.find(b"\n")) + 1, unclosed

    def _quote(self, where: str) -> DataError:
        message = f"{self.name}: a quote opened in {where} is never closed; close it, or double it inside a value"
        return DataError(message, code="quote", row=self._rows + 1)

    def blocks(self) -> Iterator[Block | None]:
        """Yield the rows after the position; None while no row is available yet."""
        while True:
            end, unclosed = self._record_end(last=True)
            if not end and self._ended:
                end = len(self._rest)
                if end and unclosed:
                    raise self._quote(f"row {self._rows + 1:,}")
            if end:
                before, first, data = (self._at, self._head, self._tail), self._rows, self._take(end)
                if data.strip(b"\r\n") or self._single:
                    yield self._block(data, first, *before)
            elif self._ended:
                return
            elif not self._more():
                yield None

    def _block(self, data: bytes, first: int, at: int, head: bytes, tail: bytes) -> Block:
        self._check_text(data)
        table, fault = self._table(data)
        self._rows += table.num_rows

        def position(rows: int) -> Position:
            end = self._offset(data, rows)
            return Position(at + end, first + rows, _stamp(*_extended(head, tail, data[:end])))

        return Block(table, first, fault, position)

    def _table(self, data: bytes) -> tuple[Any, DataError | None]:
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
            if "Empty CSV" not in what:  # the piece is empty if all of its rows were left out
                raise DataError(f"{self.name} cannot be read after row {self._rows:,} ({what})", code="text") from None
            table = pa.table({name: pa.array([], pa.string()) for name in self.names})
        fault = None
        if self._skip:
            self.skipped += len(broken)
        elif broken:
            table, fault = table.slice(0, broken[0].number - 1), self._broken(broken[0])
        return _with_plain_numbers(table, self._options, self._text), fault

    def _broken(self, row: Any) -> DataError:
        number, expected = self._rows + row.number, f"{row.expected_columns} as in the header"
        message = (
            f"{self.name}: row {number:,} has {row.actual_columns} values, expected {expected} ({shown(row.text)!r}); "
            f"fix the row, or quote values that hold {self.separator!r}"
        )
        return DataError(message, code="row", row=number, value=row.text, expected=expected)

    def _check_text(self, data: bytes) -> None:
        at = data.find(b"\0")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            at = error.start if at < 0 else min(at, error.start)
        if at >= 0:
            raise self._not_text(data[at], data[:at])

    def _not_text(self, byte: int, before: bytes) -> DataError:
        row, expected = self._rows + before.count(b"\n") + 1, self._options.encoding.upper()
        what = f"is not {expected} text (byte 0x{byte:02x}, about row {row:,})"
        message = f"{self.name} {what}; save it as CSV in {expected}"
        return DataError(message, code="encoding", row=row, value=f"0x{byte:02x}", expected=expected)

    def _offset(self, data: bytes, rows: int) -> int:
        """Return the number of bytes of the first rows."""
        separator, offset, count = self.separator.encode(), 0, 0
        for line in _masked(data, separator)[0].split(b"\n"):
            if count == rows:
                break
            offset += len(line) + 1
            blank = not line.strip(b"\r")
            count += self._single if blank else line.count(separator) + 1 == len(self._raw)
        return min(offset, len(data))

    def start(self) -> Position:
        """Return the position before the first row."""
        return Position(self._at, self._rows, _stamp(self._head, self._tail))

    def go_to(self, position: Position) -> None:
        """Continue after a position; DataError if this is not the table that the position is of."""
        while (left := position.offset - self._at) > 0 and (self._rest or not self._ended):
            if self._rest:
                self._take(left)
            elif not self.live and self._decoder is None and len(self._head) == 4096 < left:
                with explained("read", self.name):
                    self._stream.skip(left - 4096)
                self._at, self._tail = self._at + left - 4096, b""
            else:
                self._more()
        self._check_reached(position, self.start() if left <= 0 else None)
        self._rows = position.rows

    def done(self) -> float | None:
        """Return the fraction of the table that was read; None if its size is unknown."""
        return self._stream.done()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _extended(head: bytes, tail: bytes, taken: bytes) -> tuple[bytes, bytes]:
    """Return the first and last 4096 bytes, which identify a table, after `taken` was read."""
    return (head + taken[:4096])[:4096], (tail + taken)[-4096:]


def _stamp(head: bytes, tail: bytes) -> str:
    return f"{zlib.crc32(head):08x}{zlib.crc32(tail):08x}"


def _masked(data: bytes, separators: bytes) -> tuple[bytes, bool]:
    """Replace quoted values, which may contain line ends, by zero bytes; return whether the last quote is open."""
    if b'"' not in data:
        return data, False
    unclosed = False

    def hide(found: re.Match[bytes]) -> bytes:
        nonlocal unclosed
        unclosed = not found[1]
        return b"\0" * len(found[0])

    quoted = rb'(?:^|(?<=[\r\n%b]))"[^"]*+(?:""[^"]*+)*+("?)' % re.escape(separators)
    return re.sub(quoted, hide, data), unclosed


def _with_plain_numbers(table: Any, options: ReadOptions, text: Collection[str]) -> Any:
    """Rewrite numbers like 1.234,5 as 1234.5 in columns where the options declare this notation."""
    point, thousands = options.decimal, options.thousands
    if point == "." and thousands is None:
        return table
    grouped = rf"\d{{1,3}}({re.escape(thousands)}\d{{3}})+|" if thousands else ""
    pattern = rf"^ *[+-]?({grouped}\d+)?({re.escape(point)}\d*)?([eE][+-]?\d+)? *$"
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name in columns.keys() - set(text):
        numbers = compute.replace_substring(columns[name], thousands, "") if thousands else columns[name]
        numbers = compute.replace_substring(numbers, point, ".")
        columns[name] = compute.if_else(compute.match_substring_regex(columns[name], pattern), numbers, columns[name])
    return pa.table(columns)
