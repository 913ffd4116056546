"""What the commands share: where text goes, notes, JSON, and checks before long work."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from meshnn.errors import MeshError
from meshnn.files import finite

__all__ = [
    "check_output",
    "collect_warnings",
    "counted",
    "free_name",
    "print_json",
    "print_text",
    "printable",
    "progress",
    "save_somewhere",
    "say_notes",
    "screen",
    "versions",
]


def counted(number: int, what: str) -> str:
    """A number of things.

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


def print_json(value: Any) -> None:
    """One JSON document on stdout; numbers that are not finite become null."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False)
    exact = _can_show(text) and (printable(text) == text or not sys.stdout.isatty())
    print(text if exact else json.dumps(finite(value), indent=2))


def print_text(text: str) -> None:
    """Lines on stdout, exact unless it is a terminal, and a note if some of their characters cannot be shown."""
    if not _can_show(text):
        say_notes([f"stdout is {sys.stdout.encoding}: characters it lacks are shown as ?; --out or --json keep them"])
    print(printable(text) if sys.stdout.isatty() else text, end="")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeError:
        return False
    return True


def versions() -> dict[str, str | None]:
    """Of what takes part in a computation; None of what is not installed."""
    names = ("meshnn", "numpy", "scipy", "scikit-learn", "torch", "matplotlib")
    found: dict[str, str | None] = {"python": platform.python_version()} | dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, if that is a terminal; it is told how many are done, of how many, and what was done last."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, doing = Console(stderr=True), TextColumn("{task.fields[what]}")
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), doing, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, what="")
        yield lambda done, total, what: bar.update(task, completed=done, total=total, what=printable(what)[:50])


def say_notes(notes: list[str]) -> None:
    """What the user should know, on stderr, one line each."""
    console = screen(stderr=True)
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def collect_warnings(into: list[Warning]) -> Iterator[None]:
    """Warnings of the library, to become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    into.extend(warning.message for warning in caught if isinstance(warning.message, Warning))


def check_output(option: str, path: Path, ending: str | None = None, keep: Mapping[str, Path] | None = None) -> None:
    """Refuse a file that could not be written, or is one to keep, before anybody waits for what should be in it."""
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


def save_somewhere(model: Any, path: Path) -> tuple[Path, OSError | MeshError | None]:
    """Save a model that took long to train: in another place if it cannot be where it should.

    Returns
    -------
    path : where it is
    failure : why it is not where it should be, if so
    """
    try:
        model.save(path)
        return path, None
    except (OSError, MeshError) as error:
        failure = error
    for folder in _other_places():
        place = free_name(folder, path)
        try:
            model.save(place)
            return place, failure
        except (OSError, MeshError):
            continue
    raise failure


def _other_places() -> Iterator[Path]:
    """The system's temporary directory, home, here; each may be missing."""
    for find in (tempfile.gettempdir, Path.home, Path.cwd):
        with suppress(OSError, RuntimeError):
            yield Path(find())


def free_name(folder: Path, path: Path) -> Path:
    """A name in a folder that is not taken: that of the path, or with a number."""
    names = (folder / f"{path.stem}{f'-{k}' if k else ''}{path.suffix}" for k in count())
    return next(name for name in names if not name.exists())
