"""Names of columns in messages, checks that they exist and are unique, and the origin of a table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from meshnn.errors import DataError

__all__ = ["check_names", "index_of", "listed", "plain", "quoted", "row_number", "short_date", "shown", "source",
           "take_rows", "unique_names", "with_origin"]  # fmt: skip


def shown(name: str, most: int = 60) -> str:
    """Return a name as messages show it: on one line, shortened, quoted if it would be misread.

    >>> print(shown("age"), shown(""), shown("two\\nlines"))
    age '' 'two\\nlines'
    """
    short = name if len(name) <= most else name[: most - 3] + "..."
    return short if short and short.isprintable() and short == short.strip() else repr(short)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return the first names of a list, separated by commas."""
    return ", ".join([*map(shown, names[:most]), *["..."] * (len(names) > most)])


def quoted(text: Any) -> str:
    """Return a cell of text in quotes, shortened."""
    text = str(text)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def plain(value: float | bool | str) -> str:
    """Return a number without the .0 of integers, a boolean in lower case, or a text as `shown`.

    >>> plain(3.0), plain(0.1), plain(True), plain("x")
    ('3', '0.1', 'true', 'x')
    """
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def short_date(text: str) -> str:
    """Return a moment in ISO notation without a fraction or a time of zero.

    >>> short_date("2024-01-31T00:00:00.000000"), short_date("2024-01-31T12:30:00.000000")
    ('2024-01-31', '2024-01-31 12:30:00')
    """
    return text.removesuffix(".000000").removesuffix("T00:00:00").replace("T", " ")


def with_origin(table: Any, file: str, before: int = 0, index: Sequence[str] = ()) -> Any:
    """Return a table whose metadata contain its file, the number of file rows before it and its index columns."""
    found = {"meshnn.file": file.encode(errors="replace"), "meshnn.before": str(before)}
    return table.replace_schema_metadata(found | {"meshnn.index": json.dumps(list(index))})


def source(table: Any) -> str:
    """Return the file that a table was read from, as the beginning of a message; "" for tables made in memory."""
    name = (table.schema.metadata or {}).get(b"meshnn.file")
    return "" if name is None else name.decode() + ": "


def index_of(table: Any) -> list[str]:
    """Return the columns that were the index of a pandas DataFrame."""
    found: list[str] = json.loads((table.schema.metadata or {}).get(b"meshnn.index", b"[]"))
    return found


def row_number(table: Any, at: int) -> int:
    """Return the row number in the file, counted from 1, of a row of a table or block."""
    metadata = table.schema.metadata or {}
    if taken := metadata.get(b"meshnn.taken"):
        at = int.from_bytes(taken[8 * at : 8 * at + 8], "little")
    return int(metadata.get(b"meshnn.before", b"0")) + at + 1


def take_rows(table: Any, rows: Any) -> Any:
    """Return some rows of a table; messages still show their original row numbers."""
    metadata = (table.schema.metadata or {}) | {b"meshnn.taken": rows.astype("<i8").tobytes()}
    return table.take(rows).replace_schema_metadata(metadata)


def check_names(known: Sequence[str], names: Sequence[Any], where: str = "", why: str = "") -> None:
    """Raise DataError if a name is unknown, and suggest the closest known name."""
    available = set(known)
    if lost := [str(name) for name in names if name not in available]:
        lowered = {other.lower(): other for other in known}
        close = difflib.get_close_matches(lost[0].lower(), lowered, n=1)
        meant = f" (did you mean {shown(lowered[close[0]])}?)" if close else ""
        none = "there is no column" if len(lost) == 1 else "there are no columns"
        message = f"{where}{none} {listed(lost)}{why}{meant}; the columns are {listed(known)}"
        raise DataError(message, code="column", field=lost[0])


def unique_names(raw: Sequence[str], file: str) -> list[str]:
    """Strip column names and check that they are unique; only the first may be empty (an index column)."""
    names = [column.strip() for column in raw]
    first: dict[str, int] = {}
    for k, column in enumerate(names):
        if not column and k:
            message = f"{file}: column {k + 1} of {len(names)} has no name; name it in the header or remove it"
            raise DataError(message, code="name")
        if column in first:
            both = f"columns {first[column] + 1} and {k + 1}"
            message = f"{file}: two columns are called {shown(column)} ({both}); rename one of them"
            raise DataError(message, code="name", field=column)
        first[column] = k
    return names
