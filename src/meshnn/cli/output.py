"""What the commands share: where text goes, notes, JSON, and checks before long work."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from meshnn.errors import MeshError

__all__ = ["check_output", "collect_warnings", "counted", "finite", "print_json", "say_notes"]


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def print_json(value: Any) -> None:
    """One JSON document on stdout; numbers that are not finite become null."""
    typer.echo(json.dumps(finite(value), indent=2, ensure_ascii=False))


def finite(value: Any) -> Any:
    """The same with plain numbers, and None for those that are not finite, which JSON does not know."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


def say_notes(notes: list[str]) -> None:
    """What the user should know, on stderr, one line each."""
    console = Console(stderr=True, soft_wrap=True)
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False)


@contextmanager
def collect_warnings(into: list[str]) -> Iterator[None]:
    """Warnings of the library as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    into.extend(str(warning.message) for warning in caught)


def check_output(option: str, path: Path, ending: str | None = None) -> None:
    """Refuse a file that could not be written, before anybody waits for what should be in it."""
    if path.is_dir():
        raise MeshError(f"{option}: {path} is a directory; name a file")
    if not path.absolute().parent.is_dir():
        raise MeshError(f"{option}: the directory {path.absolute().parent} does not exist; create it first")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise MeshError(f"{option}: no permission to write {path}; choose another place")
    if ending is not None and path.suffix.lower() != ending:
        raise MeshError(f"{option}: {path.name} should end in {ending}")
