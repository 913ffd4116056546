"""What the command line advises about errors of tables: the library says what is wrong, here are the options."""

from __future__ import annotations

from meshnn.errors import DataError

__all__ = ["advice"]

#: Advice by the code of an error; that of some commands alone has their names.
HINTS: dict[str, dict[str, str]] = {
    "identifier": {"fit": "--drop {field} leaves it out"},
    "type": {"fit": "--drop {field} leaves it out"},
    "text target": {"fit": "--task classify takes texts as classes", "stream": "--task classify takes them as classes"},
    "number target": {"fit": "--task regress takes them as amounts"},
    "row": {"stream": "--skip-broken leaves such rows out"},
    "other table": {"stream": "--new-rows takes a table of new rows"},
    "stream date": {"stream": "--by {field} if it orders the rows, --drop {field} if not"},
}


def advice(error: BaseException, command: str) -> str:
    """Return the advice of a command about an error, as the end of a sentence; "" if there is none.

    >>> advice(DataError("column id has 9 different texts", code="identifier", field="id"), "fit")
    '; --drop id leaves it out'
    """
    if not isinstance(error, DataError) or error.code is None:
        return ""
    hints = HINTS.get(error.code, {})
    hint = hints.get(command, hints.get("", ""))
    return f"; {hint.format(field=error.field)}" if hint else ""
