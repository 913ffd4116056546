"""Options that several commands share. Typer derives the name of an option from its parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from meshnn.errors import MeshError

AsJson = Annotated[bool, Option("--json", help="Print the results as one JSON document on stdout.")]
MeshFile = Annotated[Path, Argument(help="The model, a .mesh file.")]
ModelOut = Annotated[
    Path | None, Option("--out", "-o", help="File for the model, ending in .mesh. Default: the name of the table.")
]
TableOut = Annotated[
    Path | None, Option("--out", "-o", help="File for the results: .csv, .tsv (also .gz) or .parquet. Default: stdout.")
]
Picture = Annotated[Path | None, Option(help="File for the plot: .png, .svg or .pdf.")]
Drop = Annotated[list[str] | None, Option(help="Columns to ignore, for example id,name. May be repeated.")]
TrueAnswers = Annotated[
    str | None, Option("--target", "-y", help="Column with the true values. Default: the target of the training.")
]
Task = Literal["auto", "classify", "regress"]
TaskOption = Annotated[
    Task,
    Option(
        help="Classification or regression. auto: text, booleans and integers with few distinct values are classes. "
        "Set it if the classes are many integers, or if a target with few integers is a quantity."
    ),
]
Ticks = Annotated[
    int | None,
    Option(
        "--ticks",
        "-t",
        min=1,
        help="Number of ticks (update steps) per sample. Default: every edge that can contribute does.",
    ),
]
Activation = Annotated[str, Option("--activation", "-a", help="Activation function of the hidden neurons.")]
Seed = Annotated[
    int, Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the random number generator.")
]


def read_options(
    sep: Annotated[
        str | None, Option(help="Column separator of a text file. Default: detected from the first line.")
    ] = None,
    decimal: Annotated[str, Option(help="Decimal separator of the numbers in a text file.")] = ".",
    thousands: Annotated[str | None, Option(help="Thousands separator of the numbers in a text file.")] = None,
    encoding: Annotated[str, Option(help="Character encoding of a text file.")] = "utf-8",
    na: Annotated[
        str | None,
        Option(
            help="Further markers of missing values, for example -,?. Empty cells, NA and NaN always count as missing."
        ),
    ] = None,
) -> Any:
    """Return the format of a text file, for `tables.reader`."""
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

    before, after = ([p for p in own.parameters.values() if (p.name == "as_json") == last] for last in (0, 1))
    parameters = [p for p in (*before, *reading.values(), *after) if p.name != "read"]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def size_list(option: str, text: str) -> list[int]:
    """Return the sizes in an option value such as 10,5."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise MeshError(f"{option} must be a whole number or a list of layer sizes such as 10,5, got {text!r}")
    return [int(part) for part in parts]


def column_list(given: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Return the columns of an option that is repeated or a list (a,b); a column name may itself contain a comma."""
    found = [[text] if text in names else [part.strip() for part in text.split(",")] for text in given or ()]
    return list(dict.fromkeys(name for parts in found for name in parts))
