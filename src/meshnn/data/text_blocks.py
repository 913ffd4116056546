"""`TextBlocks`: CSV and TSV in blocks of whole rows, from files, packed or not, and from standard input as it comes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
import select
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meshnn.data.blocks import Block, Position
from meshnn.data.tables import BINARY, MISSING, SEPARATORS, _checked_names, shown
from meshnn.errors import DataError
from meshnn.files import explained

__all__ = ["FileBytes", "InputBytes", "TextBlocks"]

#: Bytes that are read at once, and those that one row may have.
SIZE, LONGEST = 2**20, 2**26
#: Seconds to wait for standard input before the reader says that there is nothing.
PATIENCE = 0.2
#: Bytes at the beginning, and before a position, by which a table is known again.
KNOWN_BY = 4096


class FileBytes:
    """The bytes of a file, unpacked."""

    live = False

    def __init__(self, path: Path, zipped: bool) -> None:
        self._raw = path.open("rb")
        self._stream: Any = gzip.GzipFile(fileobj=self._raw) if zipped else self._raw
        self._size = path.stat().st_size

    def read(self) -> bytes | None:
        """The next ones; none at the end."""
        found: bytes = self._stream.read(SIZE)
        return found

    def skip(self, count: int) -> None:
        """Go past so many."""
        self._stream.seek(count, os.SEEK_CUR)

    def done(self) -> float | None:
        """The share that was read."""
        return min(self._raw.tell() / self._size, 1.0) if self._size else 1.0

    def close(self) -> None:
        """Let the file go."""
        self._stream.close()
        self._raw.close()


class InputBytes:
    """The bytes that come in, as soon as they do."""

    live = True

    def __init__(self) -> None:
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise DataError("standard input is closed; pipe a table into the command, or name a file")
        self._stream = stream
        try:
            self._handle = stream.fileno()
            select.select([self._handle], [], [], 0)
        except (OSError, ValueError):  # no real one, or a system that cannot wait for it
            self._handle = -1

    def read(self) -> bytes | None:
        """None if there is nothing yet, so that whoever reads can look around."""
        if self._handle < 0:
            read = getattr(self._stream, "read1", self._stream.read)
            found: bytes = read(SIZE)
            return found
        if not select.select([self._handle], [], [], PATIENCE)[0]:
            return None
        return os.read(self._handle, SIZE)

    def done(self) -> float | None:
        """Nobody knows how much is to come."""
        return None

    def close(self) -> None:
        """It is not ours."""


class TextBlocks:
    """Rows of CSV or TSV.

    Attributes
    ----------
    name : str
        As messages call it.
    names : list of str
        Of its columns.
    separator : str
    notes : list of str
        What the user should know.
    """

    def __init__(self, stream: Any, name: str, usual: str, columns: Sequence[str] | None, skip: bool) -> None:
        self.name, self.live, self.notes = name, bool(stream.live), list[str]()
        self.skipped = 0  # rows that were left out
        self._stream, self._usual, self._skip = stream, usual, skip
        self._rest, self._at, self._head, self._before, self._rows, self._ended = b"", 0, b"", b"", 0, False
        self._unclosed = False
        self._left_out: list[int] = []
        try:
            self._open(columns)
        except BaseException:
            self.close()
            raise

    # -- the beginning ---------------------------------------------------------------------------------------------

    def _open(self, columns: Sequence[str] | None) -> None:
        """Read up to the end of the header line."""
        line = self._first_line()
        for magic, what in BINARY.items():
            if line.startswith(magic):
                raise DataError(f"{self.name} is {what}, expected text in UTF-8; save it as CSV in UTF-8")
        plain = line.removeprefix(b"\xef\xbb\xbf")
        if not plain.strip():
            raise DataError(f"{self.name} is empty, expected a header line and rows; check how the file was written")
        self._check_text(plain, 0, self._at)
        bare = re.sub(rb'(^|[,;\t])"([^"]|"")*"', rb"\1", plain).decode()
        self.separator = next((other for other in (self._usual, ";", "\t", ",") if other in bare), self._usual)
        if self.separator != self._usual:
            what = SEPARATORS[self.separator]
            self.notes.append(f"{self.name}: values are taken to be separated by {what}, as in the first line")
        self._single = self.separator not in bare
        cells = next(csv.reader(io.StringIO(plain.decode(), newline=""), delimiter=self.separator))
        self.first_line = [cell.strip() for cell in cells]
        if columns is not None and set(self.first_line) != set(columns):
            if len(columns) != len(cells):
                raise DataError(
                    f"{self.name}: the first line has {len(cells)} values, but {len(columns)} columns are named "
                    f"({', '.join(map(shown, columns[:10]))}); name each of them"
                )
            raw = list(columns)
        else:
            raw = cells
            self._take(len(line))
        self._set_names(raw)

    def _set_names(self, raw: list[str]) -> None:
        names = _checked_names(raw, self.name)
        self._raw, self._left_out = names, []
        if names[0] in ("", "Unnamed: 0"):  # of pandas
            what = "is called Unnamed: 0" if names[0] else "has no name"
            self.notes.append(f"{self.name}: the first column {what}: left out, as numbers of rows")
            self._left_out = [0]
        self.names = [column for k, column in enumerate(names) if k not in self._left_out]

    def _first_line(self) -> bytes:
        """Up to its end; blank lines before it are gone."""
        while True:
            blank = len(self._rest) - len(self._rest.lstrip(b"\r\n"))
            if blank and not self._head.strip(b"\r\n"):
                self._take(blank)
            end = self._record_end(last=False)
            if end or self._ended:
                return self._rest[: end or len(self._rest)]
            self._more()

    def _more(self) -> bool:
        """Read some more; whether something came."""
        if len(self._rest) > LONGEST:
            raise DataError(
                f"{self.name}: row {self._rows + 1:,} has more than {LONGEST:,} bytes; perhaps a quote that is opened "
                "in it is never closed: close it, or double it inside a value"
            )
        with self._explained():
            found = self._stream.read()
        if found is None:
            return False
        self._ended = not found
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
                raise DataError(f"{self.name} is not compressed with gzip, or damaged; {advice}") from None

    def _take(self, count: int) -> bytes:
        """The next bytes, which are done with."""
        taken, self._rest = self._rest[:count], self._rest[count:]
        self._at += count
        if len(self._head) < KNOWN_BY:
            self._head = (self._head + taken)[:KNOWN_BY]
        self._before = (self._before + taken)[-KNOWN_BY:]
        return taken

    def _record_end(self, last: bool) -> int:
        """Where the last record ends that is there whole, or the first; 0 if none is. Quotes may hold line ends."""
        data, self._unclosed = self._rest, False
        end = data.rfind(b"\n") if last else data.find(b"\n")
        if data.find(b'"', 0, len(data) if last or end < 0 else end) < 0:
            return end + 1
        separator = re.escape((getattr(self, "separator", "") or ",;\t").encode())
        best = start = 0
        for quoted in re.finditer(rb'(?:^|(?<=[\r\n%b]))"(?:[^"]|"")*+("?)' % separator, data):
            between = data.rfind(b"\n", start, quoted.start()) if last else data.find(b"\n", start, quoted.start())
            if between >= 0:
                best = between + 1
                if not last:
                    return best
            if not quoted[1]:
                self._unclosed = True
                return best
            start = quoted.end()
        between = data.rfind(b"\n", start) if last else data.find(b"\n", start)
        return between + 1 if between >= 0 else best

    # -- rows ------------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block | None]:
        """The rows; None while there are none to be had, though some may come."""
        while True:
            end = self._record_end(last=True)
            if not end and self._ended:
                end = len(self._rest)
                if end and self._unclosed:
                    raise DataError(
                        f"{self.name}: a quote opened in row {self._rows + 1:,} is never closed; close it, or double "
                        "it inside a value"
                    )
            if end:
                yield from self._parsed(end)
            elif self._ended:
                return
            elif not self._more():
                yield None

    def _parsed(self, end: int) -> Iterator[Block]:
        at, head, before = self._at, self._head, self._before
        data = self._take(end)
        if not data.strip(b"\r\n") and not self._single:
            return
        self._check_text(data, self._rows, at)
        table, fault = self._table(data)
        first = self._rows

        def ends(rows: int) -> Position:
            offset = self._offset(data, rows)
            stamp = _stamp((head + data[:offset])[:KNOWN_BY], (before + data[:offset])[-KNOWN_BY:])
            return Position(at + offset, first + rows, stamp)

        self._rows += table.num_rows
        yield Block(table, first, fault, ends)

    def _table(self, data: bytes) -> tuple[Any, DataError | None]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        bad: list[Any] = []

        def note(row: Any) -> str:
            bad.append(row)
            return "skip"

        nulls = [space + word for space in ("", " ") for word in MISSING]
        conversion = arrow.ConvertOptions(
            column_types=dict.fromkeys(self._raw, pa.string()), null_values=nulls, strings_can_be_null=True
        )
        layout = arrow.ParseOptions(
            delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=not self._single,
            invalid_row_handler=note,
        )  # fmt: skip
        reading = arrow.ReadOptions(column_names=self._raw, block_size=len(data) + 2, use_threads=False)
        whole = data if data.endswith(b"\n") else data + b"\n"
        try:
            table = arrow.read_csv(pa.BufferReader(whole), reading, layout, conversion)
        except pa.ArrowInvalid as error:
            what = " ".join(str(error).split())[:200]
            if "Empty CSV" in what:  # all of its rows were left out
                table = pa.table({name: pa.array([], pa.string()) for name in self._raw})
            else:
                raise DataError(
                    f"{self.name} cannot be read after row {self._rows:,} ({what}); check how it was written"
                ) from None
        fault = None
        if bad and self._skip:
            self.skipped += len(bad)
        elif bad:
            row = bad[0]
            table = table.slice(0, row.number - 1)
            what = f"{row.actual_columns} values, expected {row.expected_columns} as in the header"
            fault = DataError(
                f"{self.name}: row {self._rows + row.number:,} has {what} ({shown(row.text)!r}); mend the row or quote "
                f"values that hold {SEPARATORS[self.separator]}, or leave such rows out with --skip-broken"
            )
        return table.drop_columns([self._raw[k] for k in self._left_out]), fault

    def _check_text(self, data: bytes, row: int, begin: int) -> None:
        if (at := data.find(b"\0")) >= 0:
            raise DataError(f"{self.name} holds a zero byte (byte {begin + at + 1:,}), expected text in UTF-8")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = row + data.count(b"\n", 0, error.start) + 1
            what = f"byte 0x{data[error.start]:02x}, about row {line:,}"
            raise DataError(f"{self.name} is not UTF-8 text ({what}); save it as UTF-8") from None

    def _offset(self, data: bytes, rows: int) -> int:
        """Bytes of so many rows."""
        if rows == 0:
            return 0
        lines = data.split(b"\n")
        count = records = 0
        reader = csv.reader((line.decode() + "\n" for line in lines), delimiter=self.separator)
        most = csv.field_size_limit(2**31 - 1)
        try:
            for record in reader:
                if len(record) == len(self._raw) or (not record and self._single):
                    records += 1
                count = reader.line_num
                if records == rows:
                    break
        finally:
            csv.field_size_limit(most)
        return min(sum(map(len, lines[:count])) + count, len(data))

    # -- going on --------------------------------------------------------------------------------------------------

    def start(self) -> Position:
        """Before the first row."""
        return Position(self._at, self._rows, _stamp(self._head, self._before))

    def go_to(self, position: Position) -> None:
        """Go on after a row, if this is the table that the position is of."""
        shorter = (
            f"{self.name} is shorter than the table that the model was learned from, which had {position.rows:,} rows "
            "so far; for a table of new rows pass --new-rows"
        )
        other = (
            f"{self.name} is not the table that the model was learned from: it differs within its first "
            f"{position.rows:,} rows; pass that one, or --new-rows for a table of new rows"
        )
        if position.offset < self._at:
            raise DataError(other)
        while (left := position.offset - self._at) > 0:
            if (
                not self._rest
                and not self._ended
                and not self.live
                and left > max(SIZE, KNOWN_BY)
                and len(self._head) >= KNOWN_BY
            ):
                with self._explained():
                    self._stream.skip(left - KNOWN_BY)
                self._at += left - KNOWN_BY
                self._before = b""
            elif self._rest:
                self._take(min(left, len(self._rest)))
            elif self._ended:
                raise DataError(shorter)
            else:
                self._more()
        if _stamp(self._head[: position.offset], self._before) != position.stamp:
            raise DataError(other)
        self._rows = position.rows

    def done(self) -> float | None:
        """The share of the table that was read; None if nobody knows."""
        share: float | None = self._stream.done()
        return share

    def close(self) -> None:
        """Let the file go."""
        self._stream.close()


def _stamp(head: bytes, before: bytes) -> str:
    return hashlib.sha256(len(head).to_bytes(8, "little") + head + before).hexdigest()
