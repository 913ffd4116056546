"""`meshnn predict`: what a model says about a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from meshnn.cli.output import check_output, counted, print_json, print_text, say_notes
from meshnn.cli.tables import Decimal, Encoding, ModelTables, Na, Sep, Thousands, load_model, read_options
from meshnn.errors import MeshError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="The model, a .mesh file of `meshnn fit`.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(help="A table with the same columns; - is standard input (CSV).", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The table of predictions: .csv, .tsv or .parquet; by default the screen."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Add a column per class with its probability.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option("--interval", min=0.01, max=0.999, help="Add the bounds of an interval that holds this share of "
                     "the targets, as 0.9; of models of numbers.", show_default=False),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Columns of the table to copy, as id,name; may be repeated.")
    ] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    na: Na = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the predictions as JSON.")] = False,
) -> None:  # fmt: skip
    """Predict the target of every row of a table.

    [bold]Examples[/bold]

      meshnn predict iris.mesh new.csv

      meshnn predict iris.mesh new.csv --probabilities --out predictions.csv

      meshnn predict price.mesh new.csv --interval 0.9

      meshnn predict iris.mesh - --keep id,name < new.csv

      meshnn predict y.mesh measured/ --out predictions.parquet
    """
    if out is not None:
        _check_out(out, data, model)
    read = read_options(sep, decimal, thousands, encoding, na)
    estimator = load_model(model)
    if probabilities and not hasattr(estimator, "predict_proba"):
        raise MeshError("--probabilities: the model predicts numbers, not classes; leave it out")
    if interval is not None and hasattr(estimator, "classes_"):
        raise MeshError("--interval: the model predicts classes, not numbers; use --probabilities")
    if interval is not None and not hasattr(estimator, "predict_interval"):
        raise MeshError("--interval: a model of `meshnn stream` knows no intervals; leave it out")
    tables = ModelTables(estimator, data, read, keep=keep, shown=out is not None)
    if as_json and tables.in_blocks:
        raise MeshError(f"--json: {data} is read block by block, and JSON is one piece; write a file with --out")
    met = known = 0
    with _writer(out, as_json) as write:
        for table in tables:
            columns = _columns(tables, table, probabilities, interval)
            write({name: table[name] for name in tables.keep}, columns)
            truth = tables.labels(table) if hasattr(estimator, "classes_") else None
            if truth is not None:
                agree = estimator.classes_[truth] == columns["prediction"]
                met, known = met + int(agree[truth >= 0].sum()), known + int((truth > -2).sum())
    agreed = f"the table has the column {tables.target}: {met:,} of {known:,} predictions agree with it"
    say_notes(tables.notes + [agreed] * bool(known))
    if out is not None and not as_json:
        print(f"{counted(tables.rows, 'prediction')} written to {out}", file=sys.stderr)


def _check_out(out: Path, data: Path, model: Path) -> None:
    from meshnn.tables.predictions import check_ending

    check_output("--out", out)
    check_ending(out)
    for what, other in (("the table", data), ("the model", model)):
        if out.exists() and other.exists() and out.samefile(other):
            raise MeshError(f"--out: {out} is {what}, which would be lost; name another file")
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise MeshError(f"--out: {out} is in the folder that is read, and would be read next time; name another place")


def _columns(tables: ModelTables, table: Any, probabilities: bool, interval: float | None) -> dict[str, Any]:
    """The predictions of a block by the names of their columns."""
    columns: dict[str, Any] = {"prediction": tables.ask("predict", table)}
    if columns["prediction"].ndim == 2:
        columns = {f"prediction {k}": column for k, column in enumerate(columns["prediction"].T)}
    if interval is not None:
        bounds = tables.ask("predict_interval", table, coverage=interval)
        if bounds[0].ndim == 2:
            raise MeshError(f"--interval: the model predicts {bounds[0].shape[1]} numbers a row, expected one")
        columns |= dict(zip(("low", "high"), bounds, strict=True))
    if probabilities:
        for name, column in zip(tables.model.classes_, tables.ask("predict_proba", table).T, strict=True):
            columns[f"P({name})"] = column
    if twice := [name for name in tables.keep if name in columns]:
        raise MeshError(f"--keep: {twice[0]} is a column of the predictions, too; rename it in the table")
    return columns


@contextmanager
def _writer(out: Path | None, as_json: bool) -> Iterator[Callable[[dict[str, Any], dict[str, Any]], None]]:
    """What takes copied columns and predictions, block by block: a file, the screen, or both if JSON is printed."""
    from meshnn.tables.predictions import as_text, predictions_to

    begun: list[bool] = []

    def show(kept: dict[str, Any], columns: dict[str, Any]) -> None:
        if as_json:
            copied = {name: [_plain(value) for value in column.to_pylist()] for name, column in kept.items()}
            print_json(copied | {name: np.asarray(column).tolist() for name, column in columns.items()})
        else:
            print_text(as_text(kept, columns, header=not begun))
        begun.append(True)

    if out is None:
        yield show
        return
    with predictions_to(out) as predictions:

        def write(kept: dict[str, Any], columns: dict[str, Any]) -> None:
            predictions.add(kept, columns)
            if as_json:
                show(kept, columns)

        yield write


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
