"""Output of the commands (text, notes, JSON), and checks of output files before the computation."""

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
    """Return the advice which option helps, to append to a message; "" if the command has none.

    The library does not name options. Its errors and notes have a code instead.

    >>> hint("identifier", "id", "fit")
    '; --drop id excludes it'
    """
    hints = {  # by code: the commands with the option ("" for all), and the advice
        "decimal": ("", "--decimal , reads these values as numbers"),
        "encoding": ("", "--encoding sets another one, for example latin-1"),
        "identifier": ("fit", "--drop {field} excludes it"),
        "type": ("fit", "--drop {field} excludes it"),
        "text target": ("fit, stream", "--task classify uses the texts as classes"),
        "number target": ("fit, stream", "--task regress uses the values as numbers"),
        "row": ("stream", "--skip-broken skips such rows"),
        "order": ("stream", "without --by, the rows are read in the order of the file"),
        "levels": ("stream", "pass --drop {field} if it is an identifier, else raise --max-categories"),
        "other table": ("stream", "--new-rows continues with a table of new rows"),
        "stream date": ("stream", "pass --by {field} if it orders the rows, else --drop {field}"),
        "series": ("forecast", "pass the column of the series with --target"),
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
    """Return a text with its control characters escaped: names of columns and classes may contain some.

    >>> print(printable("red \\x1b]0;title\\x07"))
    red \\x1b]0;title\\x07
    """
    if text.isprintable():
        return text
    harmless = (c in "\n\t" or c.isprintable() or unicodedata.category(c) == "Zs" for c in text)
    return "".join(c if shown else ascii(c)[1:-1] for c, shown in zip(text, harmless, strict=True))


def screen(stderr: bool = False) -> Any:
    """Return a rich Console that prints all text as `printable` returns it."""
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else Segment(printable(part.text), part.style)

    return Screen(stderr=stderr)


def print_lines(*lines: str, stderr: bool = False, bold: int = -1, style: str = "") -> None:
    """Print lines without markup or wrapping; `bold` is the index of a line in bold."""
    console = screen(stderr)
    for k, line in enumerate(lines):
        console.print(line, style="bold" if k == bold else style, markup=False, highlight=False, soft_wrap=True)


def say_notes(notes: list[str]) -> None:
    """Print notes for the user on stderr, one per line."""
    print_lines(*(f"note: {note}" for note in notes), stderr=True, style="yellow")


def print_json(value: Any, default: Any = None) -> None:
    """Print one JSON document on stdout, in ASCII; NaN and infinite numbers become null."""
    print(json.dumps(finite(value), indent=2, default=default))


def print_text(text: str) -> None:
    """Print on stdout: unchanged into a file or pipe, `printable` on a terminal."""
    print(printable(text) if sys.stdout.isatty() else text, end="")


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the numerical libraries, None for one that is not installed."""
    names = ("meshnn", "numpy", "scipy", "scikit-learn", "torch", "matplotlib")
    found: dict[str, str | None] = {"python": platform.python_version()} | dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@contextmanager
def collect_warnings(notes: list[str]) -> Iterator[None]:
    """Append warnings to the notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            notes.extend(str(warning.message) for warning in caught)


def check_output(option: str, path: Path, ending: str | None = None, keep: Mapping[str, Path] | None = None) -> None:
    """Raise an error if a file cannot be written, or is one to keep, before the computation starts."""
    if path.is_dir():
        raise MeshError(f"{option}: {path} is a directory; pass the name of a file")
    if not path.absolute().parent.is_dir():
        raise MeshError(f"{option}: the directory {path.absolute().parent} does not exist; create it first")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise MeshError(f"{option}: no permission to write {path}; choose another folder")
    if ending is not None and path.suffix.lower() != ending:
        raise MeshError(f"{option}: {path.name} must end in {ending}")
    for what, other in (keep or {}).items():
        if path.exists() and other.exists() and path.samefile(other):
            raise MeshError(f"{option}: {path} is {what} and would be overwritten; choose another file")


def save_somewhere(model: Any, path: Path) -> tuple[Path, MeshError | None]:
    """Save a model, if that fails in the temporary folder. Return its path, and the error to raise later."""
    try:
        model.save(path)
        return path, None
    except (OSError, MeshError) as error:
        failure = error
    place = free_name(Path(tempfile.gettempdir()), path)
    model.save(place)
    return place, MeshError(f"{failure}; the model was written to {place} instead")


def free_name(folder: Path, path: Path) -> Path:
    """Return a path in the folder that does not exist yet: the name of `path`, with a number if necessary."""
    names = (folder / f"{path.stem}{f'-{k}' if k else ''}{path.suffix}" for k in count())
    return next(name for name in names if not name.exists())
