"""Tables on disk: CSV, TSV and Parquet are read with care, predictions are written whole or not at all."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import os
import re
import stat
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.files import replacing
from meshnn.memory import check_fits

__all__ = ["Loaded", "read_table", "shown", "source", "write_predictions"]

ENDINGS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t", ".parquet": None, ".pq": None}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None"]
BINARY = {b"\x89PNG": "a PNG image", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "compressed with gzip"}
BINARY |= {b"PAR1": "a Parquet file", b"%PDF": "a PDF file", b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"}
SOURCE = b"meshnn.file"  # key of the table's metadata, so that later refusals can name the file


@dataclass(frozen=True)
class Loaded:
    """A table and what the reader ought to tell the user about it."""

    table: Any  # pyarrow.Table
    notes: list[str]


def shown(name: str, most: int = 60) -> str:
    """A name as it goes into a message: on one line, not too long, quoted if it would be misread.

    >>> print(shown("age"), shown(""), shown("two\\nlines"))
    age '' 'two\\nlines'
    """
    short = name if len(name) <= most else name[: most - 3] + "..."
    return short if short and short.isprintable() and short == short.strip() else repr(short)


def source(table: Any) -> str:
    """The file a table was read from, as the beginning of a message; nothing for tables made in memory."""
    name = (table.schema.metadata or {}).get(SOURCE)
    return "" if name is None else name.decode() + ": "


def read_table(path: str | os.PathLike[str], text: Collection[str] = ()) -> Loaded:
    """Read a table from a .csv, .tsv (both also .gz), .parquet or .pq file.

    Text is UTF-8 with a header line. Cells that are empty, NA, N/A, nan, null or None are missing. A first column
    without a name that counts the rows (pandas writes one) is left out, with a note; semicolons are noticed.

    Parameters
    ----------
    path : str or path
    text : names of columns
        Columns of text files to be kept as written, even if they look like numbers: those that were text when the
        model was trained (`Encoder.text_columns`).

    Examples
    --------
    >>> import tempfile
    >>> from meshnn.data.tables import read_table
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("age,city\\n31,Bonn\\n,Ulm\\n")
    ...     file.flush()
    ...     read_table(file.name).table.to_pydict()
    {'age': [31, None], 'city': ['Bonn', 'Ulm']}
    """
    file, name = _regular_file(path)
    ending = _ending(file, name, "reads")
    notes: list[str] = []
    try:
        if ENDINGS[ending] is None:
            table = _from_parquet(file, name)
        else:
            table = _from_text(_content(file, name, ending.endswith(".gz")), name, ending, text, notes)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}; check the file and its disk") from None
    if table.num_columns and table.num_rows == 0:
        raise DataError(f"{name} has no rows below its header, expected at least one; check how the file was written")
    table = _without_index(table, name, notes)
    if table.num_columns == 0:
        raise DataError(f"{name} has no columns, expected at least one; check how the file was written")
    return Loaded(table.replace_schema_metadata({SOURCE: name.encode()}), notes)


def _regular_file(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """The path and how to name it in messages, if it is a file that can be read twice and has an end."""
    file = Path(path)
    name = shown(str(file), most=4096)
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise DataError(f"there is no file {name}; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a zero character in the path
        raise DataError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}; check the path") from None
    if stat.S_ISDIR(mode):
        raise DataError(f"{name} is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        raise DataError(f"{name} is a pipe or a device, expected a file; save the data to a file first")
    return file, name


def _ending(file: Path, name: str, does: str) -> str:
    for ending in ENDINGS:
        if file.name.lower().endswith(ending):
            return ending
    known = ", ".join(ENDINGS)
    raise DataError(f"{name} has an unknown ending; meshnn {does} {known}; save the table as one of these")


def _content(file: Path, name: str, zipped: bool) -> bytes:
    """All bytes of a text file, unpacked."""
    parts: list[bytes] = []
    size = 0
    with gzip.open(file, "rb") if zipped else file.open("rb") as stream:
        while True:
            try:
                part = stream.read(2**24)
            except gzip.BadGzipFile:
                raise DataError(f"{name} is not compressed with gzip; drop the .gz of its name") from None
            except (EOFError, zlib.error):
                raise DataError(f"{name} is cut off or damaged; copy or compress it again") from None
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)  # counted as it comes: a small .gz can hold terabytes
            check_fits(2.0 * size, f"reading {name}", "take a part of the file")


def _checked_text(data: bytes, name: str) -> bytes:
    """The same text without byte order mark and leading blank lines, with a line end at its end; UTF-8 for sure."""
    for magic, what in BINARY.items():
        if data.startswith(magic):
            advice = "save it as UTF-8" if "UTF" in what else "export it as CSV, or give the file its right ending"
            raise DataError(f"{name} is {what}, expected text in UTF-8; {advice}")
    if (at := data.find(b"\0")) >= 0:
        raise DataError(f"{name} holds a zero byte (byte {at + 1:,}), expected text in UTF-8; save it as UTF-8")
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(data)
    for start in range(0, len(data) + 1, 2**20):  # in pieces: the whole as a string would take four times the room
        behind = len(decoder.getstate()[0])  # bytes of a character that the last piece cut in two
        try:
            decoder.decode(view[start : start + 2**20], start + 2**20 > len(data))
        except UnicodeDecodeError as error:
            at = start - behind + error.start
            line = data.count(b"\n", 0, at) + 1
            raise DataError(
                f"{name} is not UTF-8 text (byte 0x{data[at]:02x} in line {line:,}); save it as UTF-8"
            ) from None
    data = data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    if not data.strip():
        raise DataError(f"{name} is empty, expected a header line and rows; check how the file was written")
    return data if data.endswith((b"\n", b"\r")) else data + b"\n"


def _from_text(data: bytes, name: str, ending: str, text: Collection[str], notes: list[str]) -> Any:
    data = _checked_text(data, name)
    usual = ENDINGS[ending] or ","
    header = re.split(rb"[\r\n]", re.sub(rb'"[^"]*"', b"", data[: 2**20]), maxsplit=1)[0].decode(errors="ignore")
    separator = usual
    if usual not in header:
        separator = next((other for other in (";", "\t", ",") if other in header), usual)
    if separator != usual:
        notes.append(f"{name}: values are taken to be separated by {SEPARATORS[separator]}, as in the header line")
    rows = csv.reader(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline=""), delimiter=separator)
    try:
        raw = next(rows)
    except csv.Error as error:
        raise DataError(f"{name}: cannot read the header line ({error}); look for a quote that is not closed") from None
    names = _checked_names(raw, name)
    wanted = {k for k, v in zip(raw, names, strict=True) if v in text}
    table = _parsed(data, name, separator, raw, wanted)
    padded = _padded(data, name, separator, raw, wanted, table)
    if padded:
        table = _parsed(data, name, separator, raw, wanted | set(padded))
        for column in padded:
            notes.append(f"{name}: column {shown(column.strip())} has numbers with leading zeros: kept as text")
    last = table.column(table.num_columns - 1)
    if table.num_rows and str(last[-1]).endswith(("\n", "\r")):  # as if the end of the file belonged to the value
        _check_quotes(data, name, separator)
    table = table.rename_columns(names)
    if separator != ",":
        _check_decimal_commas(table, name, text)
    return table


def _checked_names(raw: list[str], name: str) -> list[str]:
    """Column names without spaces around them; only the first may be empty (it may be an index)."""
    names = [column.strip() for column in raw]
    seen: dict[str, int] = {}
    for k, column in enumerate(names, start=1):
        if not column and k > 1:
            raise DataError(f"{name}: column {k} of {len(names)} has no name; name it in the header or remove it")
        if (first := seen.setdefault(column, k)) < k:
            raise DataError(
                f"{name}: two columns are called {shown(column)} (columns {first} and {k}); rename one of them"
            )
    return names


def _check_quotes(data: bytes, name: str, separator: str) -> None:
    """Refuse a quote that is never closed: pyarrow would take the rest of the file for one value."""
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="")
    count, last = -1, [""]
    try:
        for row in csv.reader(itertools.chain(lines, ["end"]), delimiter=separator):
            if row:
                count, last = count + 1, row
    except csv.Error:  # a value of more than 128 KiB
        count += 1
    if last != ["end"]:
        where = f"row {count:,}" if count else "the header line"
        raise DataError(f"{name}: a quote opened in {where} is never closed; close it, or double it inside a value")


def _parsed(data: bytes, name: str, separator: str, raw: list[str], text: set[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    def parse(block: int | None, threads: bool) -> Any:
        return arrow.read_csv(
            pa.BufferReader(data),
            arrow.ReadOptions(block_size=block, use_threads=threads),
            arrow.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                ignore_empty_lines=len(raw) > 1,  # with one column, a blank line is a missing value
                invalid_row_handler=note,
            ),
            arrow.ConvertOptions(
                column_types=dict.fromkeys(text, pa.string()),
                null_values=[space + word for space in ("", " ") for word in MISSING],
                strings_can_be_null=True,
            ),
        )

    try:
        return parse(None, True)
    except pa.ArrowInvalid:
        ragged.clear()
    try:  # in one piece: a row may be longer than a block, and only without threads are rows numbered
        return parse(min(len(data) + 1, 2**31 - 1), False)
    except pa.ArrowInvalid as error:
        _check_quotes(data, name, separator)
        if not ragged:
            raise DataError(f"{name} cannot be read ({_reason(error)}); check how the file was written") from None
    row = ragged[0]
    raise DataError(
        f"{name}: row {row.number - 1:,} has {row.actual_columns} values, expected {row.expected_columns} as in the "
        f"header ({shown(row.text)!r}); mend the row, or quote the values that hold {SEPARATORS[separator]}"
    )


def _padded(data: bytes, name: str, separator: str, raw: list[str], wanted: set[str], table: Any) -> list[str]:
    """Columns taken for whole numbers that are written with leading zeros: codes, which as numbers would lose them."""
    from pyarrow import compute, types

    whole = [k for k, field in zip(raw, table.schema, strict=True) if types.is_integer(field.type)]
    if not whole or not re.search(rb'[,;\t"\r\n][ ]*[+-]?0\d', data):  # in hardly any file
        return []
    texts = _parsed(data, name, separator, raw, wanted | set(whole))
    return [k for k in whole if compute.any(compute.match_substring_regex(texts.column(k), r"^ *[+-]?0\d")).as_py()]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check_decimal_commas(table: Any, name: str, text: Collection[str]) -> None:
    from pyarrow import compute, types

    for column in table.column_names:
        values = table.column(column)
        if column in text or not types.is_string(values.type):
            continue
        fits = compute.all(compute.match_substring_regex(values, r"^ *[+-]?\d[\d.]*(,\d+)? *$")).as_py()
        commas = compute.match_substring(values, ",")
        if fits and (at := compute.index(commas, True).as_py()) >= 0:
            raise DataError(
                f"{name}: column {shown(column)} has decimal commas ({values[at].as_py()!r} in row {at + 1:,}), "
                "expected decimal points; export the file with points"
            )


def _from_parquet(file: Path, name: str) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    if file.stat().st_size == 0:
        raise DataError(f"{name} is empty, expected a Parquet file; check how the file was written")
    try:
        with file.open("rb") as stream, parquet.ParquetFile(stream) as parts:
            groups = (parts.metadata.row_group(k).total_byte_size for k in range(parts.num_row_groups))
            check_fits(2.0 * sum(groups), f"reading {name}", "take a part of the file")
            table = parts.read()
        table.validate(full=True)  # a damaged file may hold text that is not UTF-8
        names = table.column_names
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk; pyarrow's own have no number
            raise
        raise DataError(
            f"{name} is not a Parquet file that can be read ({_reason(error)}); write it again, or give the file its "
            "right ending"
        ) from None
    return table.rename_columns(_checked_names(names, name))


def _without_index(table: Any, name: str, notes: list[str]) -> Any:
    """Leave out what is no data but pandas' numbers of the rows."""
    for column in [column for column in table.column_names if re.fullmatch(r"__index_level_\d+__", column)]:
        notes.append(f"{name}: column {column} is the index of pandas: left out")
        table = table.drop_columns([column])
    if table.num_columns == 0 or table.column_names[0] not in ("", "Unnamed: 0"):
        return table
    if _counts_rows(table.column(0)):
        what = "has no name" if table.column_names[0] == "" else "is called Unnamed: 0"
        notes.append(f"{name}: the first column {what} and counts the rows: left out")
        return table.remove_column(0)
    if table.column_names[0] == "":
        raise DataError(
            f"{name}: the first column has no name and does not count the rows; name it in the header, or write the "
            "file without it (pandas: index=False)"
        )
    return table


def _counts_rows(column: Any) -> bool:
    from pyarrow import types

    if not types.is_integer(column.type) or column.null_count:
        return False
    values = column.to_numpy()
    return values[0] in (0, 1) and np.array_equal(values, np.arange(len(values)) + int(values[0]))


def write_predictions(
    path: str | os.PathLike[str] | None, table: Any, columns: Mapping[str, NDArray[Any]]
) -> str | None:
    """Write columns of predictions, one row for each row of the table, in the form that the ending of the path names.

    The file appears complete or not at all. Without a path, the CSV text is returned. A column called prediction
    comes first, the others follow in their order.
    """
    names = sorted(columns, key=lambda column: column != "prediction")
    arrays = [np.asarray(columns[column]) for column in names]
    if not names:
        raise DataError("there are no columns to write, expected at least one; pass the predictions")
    for column, array in zip(names, arrays, strict=True):
        if array.shape != (table.num_rows,):
            raise DataError(
                f"column {shown(column)} of the predictions has shape {array.shape}, expected ({table.num_rows},): "
                "one value for each row of the table"
            )
    if path is None:
        text = io.StringIO()
        _write_rows(text, names, arrays, ",")
        return text.getvalue()
    ending = _ending(Path(os.path.realpath(path)), shown(str(path), most=4096), "writes")
    with replacing(path) as stream:
        _write_file(stream, ending, names, arrays)
    return None


def _write_file(stream: IO[bytes], ending: str, names: list[str], arrays: list[NDArray[Any]]) -> None:
    separator = ENDINGS[ending]
    if separator is None:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table(dict(zip(names, map(pa.array, arrays), strict=True))), stream)
        return
    if not ending.endswith(".gz"):
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        _write_rows(text, names, arrays, separator)
        text.detach()  # writes what is left and does not close the stream
        return
    with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as zipped:  # no clock: same predictions, same bytes
        text = io.TextIOWrapper(cast("IO[bytes]", zipped), encoding="utf-8", newline="")
        _write_rows(text, names, arrays, separator)
        text.detach()


def _write_rows(stream: IO[str], names: list[str], arrays: list[NDArray[Any]], separator: str) -> None:
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(names)
    for start in range(0, len(arrays[0]), 2**16):
        parts = [array[start : start + 2**16] for array in arrays]
        # float32 digit by digit as it is: as a Python float, 0.1 would become 0.10000000149011612
        cells = [map(str, part) if part.dtype in ("f4", "f2") else part.tolist() for part in parts]
        writer.writerows(zip(*cells, strict=True))
