"""`meshnn predict`: what a model says about a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from meshnn.cli.output import check_output, print_json, print_text, say_notes
from meshnn.cli.rows import Rows, check_columns, load_model
from meshnn.errors import MeshError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="A model that `meshnn fit` wrote.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(help="A table with the same columns; - is standard input (CSV).", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write: .csv, .tsv or .parquet; else to the screen.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="A column per class with its probability.")
    ] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Columns of the table to copy, as id,name; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the target of every row of a table.

    [bold]Examples[/bold]

      meshnn predict iris.mesh new.csv

      meshnn predict iris.mesh new.csv --probabilities --out predictions.csv

      meshnn predict iris.mesh - --keep id,name < new.csv

      meshnn predict y.mesh measured/ --out predictions.parquet
    """
    from meshnn.tables.predictions import check_ending, write_predictions
    from meshnn.tables.reader import in_blocks

    if out is not None:
        check_output("--out", out)
        check_ending(out)
        for option, other in (("the table", data), ("the model", model)):
            if out.exists() and other.exists() and out.samefile(other):
                raise MeshError(f"--out: {out} is {option}, which would be lost; name another file")
    estimator = load_model(model)
    if probabilities and not hasattr(estimator, "predict_proba"):
        raise MeshError("--probabilities: the model predicts numbers, not classes; leave it out")
    kept = list(dict.fromkeys(name.strip() for names in keep or () for name in names.split(",")))
    if in_blocks(data):
        if as_json:
            raise MeshError(f"--json: {data} is read block by block, and JSON is one piece; write a file with --out")
        from meshnn.cli.predict_blocks import predict_blocks

        predict_blocks(estimator, data, out, kept, lambda X: _columns(estimator, X, kept, probabilities))
        return
    rows = Rows.read(estimator, data, keep=kept)
    check_columns("--keep", rows.table, kept)
    columns = _columns(estimator, rows.X, kept, probabilities)
    say_notes(rows.notes + _compare(rows, columns))
    if as_json:
        copied = {name: [_plain(value) for value in rows.table[name].to_pylist()] for name in kept}
        print_json(copied | {name: np.asarray(column).tolist() for name, column in columns.items()})
        if out is None:
            return
    text = write_predictions(out, rows.table, columns, kept)
    if text is not None:
        print_text(text)
    elif not as_json:
        print(f"{len(rows.X)} predictions written to {out}", file=sys.stderr)


def _columns(estimator: Any, X: Any, kept: list[str], probabilities: bool) -> dict[str, Any]:
    """The predictions of some rows by the names of their columns."""
    columns: dict[str, Any] = {"prediction": estimator.predict(X)}
    if columns["prediction"].ndim == 2:
        columns = {f"prediction {k}": column for k, column in enumerate(columns["prediction"].T)}
    if probabilities:
        for name, column in zip(estimator.classes_, estimator.predict_proba(X).T, strict=True):
            columns[f"P({name})"] = column
    if twice := [name for name in kept if name in columns]:
        raise MeshError(f"--keep: {twice[0]} is a column of the predictions, too; rename it in the table")
    return columns


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _compare(rows: Rows, columns: dict[str, Any]) -> list[str]:
    """If the true answers are there, how many are met."""
    if not hasattr(rows.estimator, "classes_") or (truth := rows.labels()) is None or not (truth > -2).any():
        return []
    met = int((rows.estimator.classes_[truth] == columns["prediction"])[truth >= 0].sum())
    known = int((truth > -2).sum())
    return [f"the table has the column {rows.target}: {met} of {known} predictions agree with it"]
