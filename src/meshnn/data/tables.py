"""Tables on disk: pyarrow reads CSV, TSV and Parquet; what it cannot read or would misread is refused by name."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError
from meshnn.files import as_path, explained, write_whole
from meshnn.memory import check_fits

__all__ = ["Loaded", "read_table", "rows_before", "shown", "source", "write_predictions"]

ENDINGS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t", ".parquet": "", ".pq": ""}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "None"]
BINARY = {b"\x89PNG": "a PNG image", b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "compressed with gzip"}
BINARY |= {b"PAR1": "a Parquet file", b"%PDF": "a PDF file", b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"}
NUMBER = r"^ *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *$"
NUMERIC = r"^[\d.,%eE+ -]*$"
THOUSANDS = r"^ *[+-]?\d{1,3}(,\d{3})+(\.\d*)? *$"
PERCENT = r"^ *[+-]?(\d+\.?\d*|\.\d+) *% *$"
DECIMAL_COMMA = r"^ *[+-]?\d[\d.]*(,\d+)? *$"
SOURCE = b"meshnn.file"  # key of the table's metadata, so that later refusals can name the file
BEFORE = b"meshnn.before"  # and of a block of a file, so that they can name the row


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


def rows_before(table: Any) -> int:
    """Rows of the file before those of a block of it."""
    return int((table.schema.metadata or {}).get(BEFORE, b"0"))


def read_table(path: str | os.PathLike[str], text: Collection[str] = ()) -> Loaded:
    """Read a table from a .csv, .tsv (both also .gz), .parquet or .pq file; - is CSV from standard input.

    Text is UTF-8 with a header line. Cells that are empty, NA, N/A, nan, null or None are missing. A first column
    without a name that counts the rows (pandas writes one) is left out, with a note; semicolons are noticed. Columns of
    numbers like 1,234 or 5% are numbers, with a note.

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
    file, name, notes = Path(path), as_path(path)[1], list[str]()
    if name == "-":
        name = "standard input"
        with explained("read", name):
            table = _from_text(_input(name), name, ",", text, notes)
        return _finished(table, name, notes)
    with explained("read", name):
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise DataError(f"{name} is a pipe or a device, expected a file; save the data to a file first")
        ending = _ending(file, name, "reads")
        if separator := ENDINGS[ending]:
            table = _from_text(_content(file, name, ending.endswith(".gz")), name, separator, text, notes)
        else:
            table = _from_parquet(file, name)
    return _finished(table, name, notes)


def _finished(table: Any, name: str, notes: list[str]) -> Loaded:
    if table.num_columns and table.num_rows == 0:
        raise DataError(f"{name} has no rows below its header, expected at least one; check how the file was written")
    table = _without_index(table, name, notes)
    if table.num_columns == 0:
        raise DataError(f"{name} has no columns, expected at least one; check how the file was written")
    return Loaded(table.replace_schema_metadata({SOURCE: name.encode()}), notes)


def _ending(file: Path, name: str, does: str) -> str:
    for ending in ENDINGS:
        if file.name.lower().endswith(ending):
            return ending
    known = ", ".join(ENDINGS)
    raise DataError(f"{name} has an unknown ending; meshnn {does} {known}; save the table as one of these")


def _content(file: Path, name: str, zipped: bool) -> bytes:
    """The text of a file, unpacked."""
    with gzip.open(file) if zipped else file.open("rb") as stream:
        try:
            return _checked_text(_all_of(stream, name), name)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            advice = "copy or compress it again, or drop the .gz of its name if it is plain text"
            raise DataError(f"{name} is not compressed with gzip, or damaged; {advice}") from None


def _input(name: str) -> bytes:
    """The text that is piped in."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise DataError(f"{name} is closed; pipe a table into the command, or name a file")
    return _checked_text(_all_of(stream, name), name)


def _all_of(stream: Any, name: str) -> bytes:
    parts: list[bytes] = []
    while part := stream.read(2**24):
        parts.append(part)  # counted as it comes: a small .gz can hold terabytes
        check_fits(2.0 * sum(map(len, parts)), f"reading {name}", "take a part of the file")
    return b"".join(parts)


def _checked_text(data: bytes, name: str) -> bytes:
    """The same without byte order mark and leading blank lines, with a line end at its end."""
    for magic, what in BINARY.items():
        if data.startswith(magic):
            raise DataError(f"{name} is {what}, expected text in UTF-8; save it as CSV in UTF-8")
    if (at := data.find(b"\0")) >= 0:
        raise DataError(f"{name} holds a zero byte (byte {at + 1:,}), expected text in UTF-8; save it as UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not data or data.isspace():
        raise DataError(f"{name} is empty, expected a header line and rows; check how the file was written")
    return data if data.endswith((b"\n", b"\r")) else data + b"\n"


def _from_text(data: bytes, name: str, usual: str, text: Collection[str], notes: list[str]) -> Any:
    from pyarrow import compute, types

    start = re.sub(rb'(^|[,;\t])"([^"]|"")*"', rb"\1", data[: 2**20])  # without quoted names
    header = re.split(rb"[\r\n]", start, maxsplit=1)[0].decode(errors="ignore")
    separator = next((other for other in (usual, ";", "\t", ",") if other in header), usual)
    if separator != usual:
        notes.append(f"{name}: values are taken to be separated by {SEPARATORS[separator]}, as in the header line")
    single = separator not in header  # then a blank line is a missing value
    table = _parsed(data, name, separator, single)
    raw = table.column_names
    names = _checked_names(raw, name)
    held = dict(zip(raw, table.schema.types, strict=True))
    wanted = [k for k, column in zip(raw, names, strict=True) if column in text and not types.is_string(held[k])]
    whole = [k for k in raw if types.is_integer(held[k]) and k not in wanted]
    if wanted or whole:  # as they are written: numbers with leading zeros are codes, which would lose them
        texts = _parsed(data, name, separator, single, wanted + whole)
        padded = [k for k in whole if compute.any(compute.match_substring_regex(texts[k], r"^ *[+-]?0\d")).as_py()]
        for k in wanted + padded:
            table = table.set_column(raw.index(k), k, texts[k])
        notes += [f"{name}: column {shown(k.strip())} has numbers with leading zeros: kept as text" for k in padded]
    if table.num_rows and str(table.column(-1)[-1]).endswith(("\n", "\r")):
        _check_quotes(data, name, separator)  # the end of the file became part of the value
    table = table.rename_columns(names)
    table = _with_numbers(table, name, separator, text, notes)
    for column in names if separator != "," else ():
        if column not in text and types.is_string(table[column].type):
            _check_decimal_commas(name, column, table[column])
    return table


def _parsed(data: bytes, name: str, separator: str, single: bool, text: list[str] | None = None) -> Any:
    """All columns in the types that pyarrow finds, or those of `text` as they are written."""
    import pyarrow as pa
    from pyarrow import csv as arrow
    from pyarrow import types

    ragged: list[Any] = []
    nulls = [space + word for space in ("", " ") for word in MISSING]
    strings = dict.fromkeys(text or (), pa.string())
    conversion = arrow.ConvertOptions(
        column_types=strings, include_columns=text, null_values=nulls, strings_can_be_null=True
    )

    def parse(handler: Any = None, **how: Any) -> Any:
        layout = arrow.ParseOptions(
            delimiter=separator, newlines_in_values=True, ignore_empty_lines=not single, invalid_row_handler=handler
        )
        return arrow.read_csv(pa.BufferReader(data), arrow.ReadOptions(**how), layout, conversion)

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    try:
        table = parse()
        if table.column_names and not any(map(types.is_binary, table.schema.types)):
            return table
    except (pa.ArrowInvalid, UnicodeDecodeError):
        pass
    _check_encoding(data, name)
    try:  # in one piece: a row may be longer than a block, and only without threads are rows numbered
        return parse(note, block_size=min(len(data) + 1, 2**31 - 1), use_threads=False)
    except pa.ArrowInvalid as error:
        _check_quotes(data, name, separator)
        if not ragged:
            raise DataError(f"{name} cannot be read ({_reason(error)}); check how the file was written") from None
    row = ragged[0]
    what = f"{row.actual_columns} values, expected {row.expected_columns} as in the header ({shown(row.text)!r})"
    advice = f"mend the row, or quote the values that hold {SEPARATORS[separator]}"
    raise DataError(f"{name}: row {row.number - 1:,} has {what}; {advice}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check_encoding(data: bytes, name: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} in line {line:,}"
        raise DataError(f"{name} is not UTF-8 text ({what}); save it as UTF-8") from None


def _check_quotes(data: bytes, name: str, separator: str) -> None:
    """Refuse a quote that is never closed (pyarrow takes the rest of the file for one value), then wrong names."""
    lines = io.TextIOWrapper(io.BytesIO(data + b"end"), encoding="utf-8", newline="")
    most = csv.field_size_limit(2**31 - 1)
    try:
        rows = filter(None, csv.reader(lines, delimiter=separator))
        header = last = next(rows)
        count = 0
        for count, last in enumerate(rows, start=1):  # noqa: B007
            pass
    finally:
        csv.field_size_limit(most)
    if last != ["end"]:
        where = f"row {count:,}" if count else "the header line"
        raise DataError(f"{name}: a quote opened in {where} is never closed; close it, or double it inside a value")
    _checked_names(header, name)


def _checked_names(raw: list[str], name: str) -> list[str]:
    """Column names without spaces around them; only the first may be empty (it may be an index)."""
    names = [column.strip() for column in raw]
    for k, column in enumerate(names):
        if not column and k:
            raise DataError(f"{name}: column {k + 1} of {len(names)} has no name; name it in the header or remove it")
        if (first := names.index(column)) < k:
            both = f"columns {first + 1} and {k + 1}"
            raise DataError(f"{name}: two columns are called {shown(column)} ({both}); rename one of them")
    return names


def _with_numbers(table: Any, name: str, separator: str, text: Collection[str], notes: list[str]) -> Any:
    """Texts that are numbers to people: 1,234 and 5%. Not 1,5, which is something else in other countries."""
    from pyarrow import compute, types

    done: dict[str, list[str]] = {}
    for k, column in enumerate(table.column_names):
        values = table.column(k)
        if column in text or not types.is_string(values.type) or values.null_count == len(values):
            continue
        if not compute.all(compute.match_substring_regex(values[:100], NUMERIC)).as_py():  # most texts: quickly passed
            continue
        grouped = compute.match_substring_regex(values, THOUSANDS)
        several = separator == "," or compute.any(compute.match_substring_regex(values, r",\d{3},")).as_py()
        if several and compute.any(grouped).as_py():
            plain = compute.match_substring_regex(values, NUMBER)
            if compute.all(compute.or_(grouped, plain)).as_py() and not _padded(values):
                what = "commas between thousands are left out"
                table = table.set_column(k, column, _parsed_numbers(compute.replace_substring(values, ",", "")))
                done.setdefault(what, []).append(f"{shown(column)} ({_example(values, grouped)})")
                continue
        percent = compute.match_substring_regex(values, PERCENT)
        if compute.all(percent).as_py():
            what = "percent signs are left out"
            table = table.set_column(k, column, _parsed_numbers(compute.replace_substring(values, "%", "")))
            done.setdefault(what, []).append(f"{shown(column)} ({_example(values, percent)})")
            continue
        commas = compute.and_not(compute.match_substring(values, ","), grouped)
        decimal = separator == "," and compute.all(compute.match_substring_regex(values, DECIMAL_COMMA)).as_py()
        if decimal and compute.any(commas).as_py():
            what = "decimal commas are not read, so it is text; export with points for numbers"
            done.setdefault(what, []).append(f"{shown(column)} ({_example(values, commas)})")
    for what, columns in done.items():
        few = ", ".join(columns[:3]) + (", ..." if len(columns) > 3 else "")
        many = f"{len(columns):,} columns" if len(columns) > 1 else "column"
        notes.append(f"{name}: {many} {few}: {what}")
    return table


def _parsed_numbers(values: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    trimmed = compute.replace_substring_regex(values, r"^ *\+?| *$", "")
    try:
        return trimmed.cast("int64")
    except pa.ArrowInvalid:
        return trimmed.cast("float64")


def _padded(values: Any) -> bool:
    """Whether some are codes, as leading zeros tell."""
    from pyarrow import compute

    return bool(compute.any(compute.match_substring_regex(values, r"^ *[+-]?0\d")).as_py())


def _example(values: Any, mask: Any) -> str:
    from pyarrow import compute

    return repr(values[compute.index(mask, True).as_py()].as_py().strip()[:30])


def _check_decimal_commas(name: str, column: str, values: Any) -> None:
    from pyarrow import compute

    fits = compute.all(compute.match_substring_regex(values, DECIMAL_COMMA)).as_py()
    if fits and (at := compute.index(compute.match_substring(values, ","), True).as_py()) >= 0:
        raise DataError(
            f"{name}: column {shown(column)} has decimal commas ({values[at].as_py()!r} in row {at + 1:,}), "
            "expected decimal points; export the file with points"
        )


def _from_parquet(file: Path, name: str) -> Any:
    import pyarrow as pa
    from pyarrow import parquet, types

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
        advice = "write it again, or give the file its right ending"
        raise DataError(f"{name} is not a Parquet file that can be read ({_reason(error)}); {advice}") from None
    names = _checked_names(names, name)
    held = [pa.string() if types.is_string_view(kind) else kind for kind in table.schema.types]
    return table.rename_columns(names).cast(pa.schema(list(zip(names, held, strict=True))))  # of views, no row is taken


def _without_index(table: Any, name: str, notes: list[str]) -> Any:
    """Leave out what is no data but pandas' numbers of the rows."""
    for column in [column for column in table.column_names if re.fullmatch(r"__index_level_\d+__", column)]:
        notes.append(f"{name}: column {column} is the index of pandas: left out")
        table = table.drop_columns([column])
    first = table.column_names[0] if table.num_columns else "data"
    if first not in ("", "Unnamed: 0"):
        return table
    values = table.column(0).to_numpy()  # floats or objects if some are missing
    if values.dtype.kind in "iu" and values[0] in (0, 1) and np.array_equal(values - values[0], np.arange(len(values))):
        what = "is called Unnamed: 0" if first else "has no name"
        notes.append(f"{name}: the first column {what} and counts the rows: left out")
        return table.remove_column(0)
    if first == "":
        advice = "name it in the header, or write the file without it (pandas: index=False)"
        raise DataError(f"{name}: the first column has no name and does not count the rows; {advice}")
    return table


def write_predictions(
    path: str | os.PathLike[str] | None, table: Any, columns: Mapping[str, NDArray[Any]], keep: Sequence[str] = ()
) -> str | None:
    """Write columns of predictions, one row for each row of the table, in the form that the ending of the path names.

    The file appears complete or not at all. Without a path, the CSV text is returned. Columns of the table to keep come
    first, then a column called prediction; the others follow in their order.
    """
    arrays = {name: np.asarray(columns[name]) for name in sorted(columns, key=lambda name: name != "prediction")}
    if not arrays or any(array.shape != (table.num_rows,) for array in arrays.values()):
        shapes = ", ".join(f"{shown(column)} {array.shape}" for column, array in arrays.items()) or "none"
        expected = f"expected one value for each of {table.num_rows} rows"
        raise DataError(f"cannot write predictions of these shapes: {shapes}; {expected}; pass one-dimensional arrays")
    kept = {name: table[name] for name in keep}
    if path is None:
        return _as_text(kept, arrays, ",")
    ending = _ending(Path(path), as_path(path)[1], "writes")
    content = _as_text(kept, arrays, ENDINGS[ending]).encode() if ENDINGS[ending] else _as_parquet(kept | arrays)
    if ending.endswith(".gz"):
        content = gzip.compress(content, mtime=0)  # no clock: same predictions, same bytes
    write_whole(path, [content])
    return None


def _as_text(kept: dict[str, Any], arrays: dict[str, NDArray[Any]], separator: str, header: bool = True) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    if header:
        writer.writerow([*kept, *arrays])
    # float32 digit by digit as it is: as a Python float, 0.1 would become 0.10000000149011612
    cells = [map(str, array) if array.dtype in ("f4", "f2") else array.tolist() for array in arrays.values()]
    writer.writerows(zip(*(column.to_pylist() for column in kept.values()), *cells, strict=True))
    return text.getvalue()


def _as_parquet(columns: dict[str, Any]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    content = io.BytesIO()
    made = {name: pa.array(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    parquet.write_table(pa.table(made), content)
    return content.getvalue()
