"""Advice of the command line about errors and notes: the library says what is wrong, this module names the options."""

from __future__ import annotations

from meshnn.errors import DataError

__all__ = ["advice", "hint"]

#: Advice by the code of an error; that of some commands alone has their names.
HINTS: dict[str, dict[str, str]] = {
    "decimal": {"": "--decimal , reads them as numbers"},
    "encoding": {"": "--encoding names another one, as latin-1"},
    "identifier": {"fit": "--drop {field} leaves it out"},
    "type": {"fit": "--drop {field} leaves it out"},
    "text target": {"fit": "--task classify takes texts as classes", "stream": "--task classify takes them as classes"},
    "number target": {"fit": "--task regress takes them as amounts", "stream": "--task regress takes it as numbers"},
    "row": {"stream": "--skip-broken leaves such rows out"},
    "order": {"stream": "without --by the rows are taken as they are"},
    "header": {"stream": "if these are values, send the header line, too (`tail -n +1 -f file`), or name the columns "
               "with --columns a,b,c"},
    "levels": {"stream": "--drop {field} if it is an identifier, --by {field} if it is a time, or allow more with "
               "--max-categories"},
    "other table": {"stream": "--new-rows takes a table of new rows"},
    "stream date": {"stream": "--by {field} if it orders the rows, --drop {field} if not"},
    "series": {"forecast": "name the series with --target"},
    "future": {"forecast": "add rows without a value of {field}, or lower --horizon"},
}  # fmt: skip


def hint(code: str | None, field: str | None, command: str) -> str:
    """Return the advice of a command about a code and a column, as the end of a sentence; "" if there is none."""
    hints = HINTS.get(code or "", {})
    found = hints.get(command, hints.get("", ""))
    return f"; {found.format(field=field)}" if found else ""


def advice(error: BaseException, command: str) -> str:
    """Return the advice of a command about an error.

    >>> advice(DataError("column id has 9 different texts", code="identifier", field="id"), "fit")
    '; --drop id leaves it out'
    """
    return hint(error.code, error.field, command) if isinstance(error, DataError) else ""
