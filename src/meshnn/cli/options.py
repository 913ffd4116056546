"""Options that several commands share; Typer names an option after its parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from meshnn.errors import MeshError

AsJson = Annotated[bool, Option("--json", help="Print the results as JSON.")]
MeshFile = Annotated[Path, Argument(help="The model, a .mesh file.")]
ModelOut = Annotated[Path | None, Option("--out", "-o", help="The model to write; by default named after the table.")]
TableOut = Annotated[
    Path | None, Option("--out", "-o", help="The table to write: .csv, .tsv or .parquet; by default the screen.")
]
Picture = Annotated[Path | None, Option(help="The picture to write: .png, .svg or .pdf.")]
Drop = Annotated[list[str] | None, Option(help="Columns to leave out, as id,name; may be repeated.")]
TrueAnswers = Annotated[
    str | None, Option("--target", "-y", help="The column with the true answers; by default that of the training.")
]
Task = Literal["auto", "classify", "regress"]
TaskOption = Annotated[Task, Option(help="Whether the target is classes or numbers; auto decides by its values.")]
Ticks = Annotated[int | None, Option("--ticks", "-t", min=1, help="Number of ticks; by default as many as count.")]
Activation = Annotated[str, Option("--activation", "-a", help="Activation of the hidden neurons.")]
Seed = Annotated[int, Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the random numbers.")]


def read_options(
    sep: Annotated[str | None, Option(help="Separator of a text file; by default found from its first line.")] = None,
    decimal: Annotated[str, Option(help="Decimal point of the numbers of a text file.")] = ".",
    thousands: Annotated[str | None, Option(help="Separator of thousands in the numbers of a text file.")] = None,
    encoding: Annotated[str, Option(help="Character encoding of a text file.")] = "utf-8",
    na: Annotated[str | None, Option(help="Further spellings of missing values in a text file, as -,?.")] = None,
) -> Any:
    """Return how a text file is written, for `tables.reader`."""
    from meshnn.tables.text import ReadOptions

    sep = {"\\t": "\t", "tab": "\t"}.get(sep or "", sep)
    missing = tuple(dict.fromkeys([*ReadOptions.na, *(na or "").split(",")]))
    return ReadOptions(sep, decimal, thousands, encoding, missing)


def with_read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `read` of a command by the options of `read_options`."""
    own, reading = inspect.signature(command, eval_str=True), inspect.signature(read_options, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(read=read_options(**{name: given.pop(name) for name in reading}), **given)

    before, after = ([one for one in own.parameters.values() if (one.name == "as_json") == last] for last in (0, 1))
    parameters = [one for one in (*before, *reading.values(), *after) if one.name != "read"]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def size_list(option: str, text: str) -> list[int]:
    """Return the sizes of an option that lists several, as 10,5."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise MeshError(f"{option} must be a whole number, or sizes of layers like 10,5, got {text!r}")
    return [int(part) for part in parts]


def column_list(given: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Return the columns of an option that is repeated or lists several (a,b); a name may hold a comma itself."""
    found = [[text] if text in names else [part.strip() for part in text.split(",")] for text in given or ()]
    return list(dict.fromkeys(name for parts in found for name in parts))
