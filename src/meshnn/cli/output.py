"""Text, notes and JSON of the commands, and checks before long work."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from meshnn.errors import MeshError
from meshnn.files import finite


def refuse(wrong: Mapping[str, Any]) -> None:
    """Raise MeshError with the first message whose condition is true."""
    for message, condition in wrong.items():
        if condition:
            raise MeshError(message)


def hint(code: str | None, field: str | None, command: str) -> str:
    """Return the end of a sentence that names an option which helps; "" if the command has none.

    The library names no options, but its errors and notes have a code.

    >>> hint("identifier", "id", "fit")
    '; --drop id leaves it out'
    """
    hints = {  # commands that have the option, and the advice
        "decimal": ("", "--decimal , reads them as numbers"),
        "encoding": ("", "--encoding names another one, as latin-1"),
        "identifier": ("fit", "--drop {field} leaves it out"),
        "type": ("fit", "--drop {field} leaves it out"),
        "text target": ("fit, stream", "--task classify takes texts as classes"),
        "number target": ("fit, stream", "--task regress takes them as numbers"),
        "row": ("stream", "--skip-broken leaves such rows out"),
        "order": ("stream", "without --by the rows are taken as they are"),
        "levels": ("stream", "--drop {field} if it is an identifier, or allow more with --max-categories"),
        "other table": ("stream", "--new-rows takes a table of new rows"),
        "stream date": ("stream", "--by {field} if it orders the rows, --drop {field} if not"),
        "series": ("forecast", "name the series with --target"),
        "future": ("forecast", "add rows without a value of {field}, or lower --horizon"),
    }
    commands, advice = hints.get(code or "", ("none", ""))
    return f"; {advice.format(field=field)}" if not commands or command in commands.split(", ") else ""


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(2000, "row"), counted(3, "class")
    ('1 row', '2,000 rows', '3 classes')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def printable(text: str) -> str:
    """Return a text with its control characters spelled out: names of columns and classes may hold some.

    >>> print(printable("red \\x1b]0;title\\x07"))
    red \\x1b]0;title\\x07
    """
    if text.isprintable():
        return text
    harmless = (c in "\n\t" or c.isprintable() or unicodedata.category(c) == "Zs" for c in text)
    return "".join(c if shown else ascii(c)[1:-1] for c, shown in zip(text, harmless, strict=True))


def screen(stderr: bool = False) -> Any:
    """Return a rich Console on which everything is `printable`."""
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else Segment(printable(part.text), part.style)

    return Screen(stderr=stderr)


def print_lines(*lines: str, stderr: bool = False, bold: int = -1, style: str = "") -> None:
    """Print lines as they are, without wrapping; one of them may be bold."""
    console = screen(stderr)
    for k, line in enumerate(lines):
        console.print(line, style="bold" if k == bold else style, markup=False, highlight=False, soft_wrap=True)


def say_notes(notes: list[str]) -> None:
    """Print remarks for the user on stderr, one line each."""
    print_lines(*(f"note: {note}" for note in notes), stderr=True, style="yellow")


def print_json(value: Any, default: Any = None) -> None:
    """Print one JSON document on stdout, in ASCII; numbers that are not finite become null."""
    print(json.dumps(finite(value), indent=2, default=default))


def print_text(text: str) -> None:
    """Print on stdout: exactly, unless it is a terminal."""
    print(printable(text) if sys.stdout.isatty() else text, end="")


def versions() -> dict[str, str | None]:
    """Return the versions of Python and the libraries that compute; None for one that is not installed."""
    names = ("meshnn", "numpy", "scipy", "scikit-learn", "torch", "matplotlib")
    found: dict[str, str | None] = {"python": platform.python_version()} | dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@contextmanager
def collect_warnings(notes: list[str]) -> Iterator[None]:
    """Append the warnings of the library to notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            notes.extend(str(warning.message) for warning in caught)


def check_output(option: str, path: Path, ending: str | None = None, keep: Mapping[str, Path] | None = None) -> None:
    """Refuse a file that cannot be written, or that must be kept, before long work."""
    if path.is_dir():
        raise MeshError(f"{option}: {path} is a directory; name a file")
    if not path.absolute().parent.is_dir():
        raise MeshError(f"{option}: the directory {path.absolute().parent} does not exist; create it first")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise MeshError(f"{option}: no permission to write {path}; choose another place")
    if ending is not None and path.suffix.lower() != ending:
        raise MeshError(f"{option}: {path.name} should end in {ending}")
    for what, other in (keep or {}).items():
        if path.exists() and other.exists() and path.samefile(other):
            raise MeshError(f"{option}: {path} is {what}, which would be lost; name another file")


def save_somewhere(model: Any, path: Path) -> tuple[Path, MeshError | None]:
    """Save a model that took long to train, in the temporary folder if need be; return where, and an error to raise."""
    try:
        model.save(path)
        return path, None
    except (OSError, MeshError) as error:
        failure = error
    place = free_name(Path(tempfile.gettempdir()), path)
    model.save(place)
    return place, MeshError(f"{failure}; the model was written to {place} instead")


def free_name(folder: Path, path: Path) -> Path:
    """Return a name in a folder that is not taken: that of the path, or with a number."""
    names = (folder / f"{path.stem}{f'-{k}' if k else ''}{path.suffix}" for k in count())
    return next(name for name in names if not name.exists())
