"""`meshnn predict` and `meshnn evaluate`: predict the rows of a table, and score the predictions."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from meshnn.cli.options import AsJson, MeshFile, TableOut, TrueAnswers, with_read_options
from meshnn.cli.output import check_output, counted, print_json, print_lines, print_text, refuse, say_notes
from meshnn.cli.scores import ModelScores, show_confusion
from meshnn.errors import MeshError
from meshnn.tables.cells import cells_of
from meshnn.tables.names import check_names
from meshnn.tables.predictions import as_text, check_ending, predictions_to


@with_read_options
def predict(
    model: MeshFile,
    data: Annotated[
        Path, Argument(help="Table with the columns of the training table, or - for CSV from standard input.")
    ],
    out: TableOut = None,
    probabilities: Annotated[
        bool, Option("--probabilities", "-p", help="Add one column per class with its probability.")
    ] = False,
    interval: Annotated[
        float | None,
        Option(
            min=0.01, max=0.999, help="Add the bounds of a prediction interval with this coverage, for example 0.9."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, Option(help="Columns to copy to the output, for example id,name. May be repeated.")
    ] = None,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Predict the target of each row of a table.

    [bold]Examples[/bold]

      meshnn predict iris.mesh new.csv
      meshnn predict iris.mesh new.csv --probabilities --out predictions.csv
      meshnn predict price.mesh new.csv --interval 0.9
      meshnn predict iris.mesh - --keep id,name < new.csv
      meshnn predict y.mesh measured/ --out predictions.parquet
    """
    from meshnn.cli.models import ModelTables, load_model

    if out is not None:
        check_output("--out", out, keep={"the table": data, "the model": model})
        check_ending(out)
    estimator = load_model(model)
    classes = getattr(estimator, "classes_", None)
    within = out is not None and data.is_dir() and out.resolve().is_relative_to(data.resolve())
    refuse({
        f"--out: {out} is in the input folder and would be read the next time; choose another folder": within,
        "--probabilities needs a classifier, got a regressor; leave it out": probabilities and classes is None,
        "--interval needs a regressor, got a classifier; use --probabilities": interval and classes is not None,
        "--interval does not apply to a model of `meshnn stream`; leave it out":
        interval and not hasattr(estimator, "predict_interval"),
    })  # fmt: skip
    tables = ModelTables(estimator, data, read, keep=keep, shown=out is not None)
    if as_json and tables.in_blocks:
        raise MeshError(f"--json needs a table that fits in memory, and {data} is read block by block; use --out")
    with ExitStack() as stack:
        file = None if out is None else stack.enter_context(predictions_to(out))
        for table in tables:
            begun, columns = tables.in_blocks and tables.rows > 0, _columns(tables, table, probabilities, interval)
            kept = {name: table[name] for name in tables.keep}
            if file is not None:
                file.add(kept, columns)
            if as_json:
                copied = {name: column.to_pylist() for name, column in kept.items()}
                predicted = {name: np.asarray(column).tolist() for name, column in columns.items()}
                print_json(copied | predicted, default=str)  # dates are no JSON type
            elif file is None:
                print_text(as_text(kept, columns, header=not begun))
    say_notes(tables.notes)
    if out is not None and not as_json:
        print(f"{counted(tables.rows, 'prediction')} written to {out}", file=sys.stderr)


def _columns(tables: Any, table: Any, probabilities: bool, interval: float | None) -> dict[str, Any]:
    """Return the predictions of a block by column name."""
    columns: dict[str, Any] = {"prediction": tables.call("predict", table)}
    if columns["prediction"].ndim == 2:
        columns = {f"prediction {k}": column for k, column in enumerate(columns["prediction"].T)}
    if interval is not None:
        bounds = tables.call("predict_interval", table, coverage=interval)
        if bounds[0].ndim == 2:
            raise MeshError(f"--interval needs a model with one output, got {bounds[0].shape[1]} outputs")
        columns |= dict(zip(("low", "high"), bounds, strict=True))
    if probabilities:
        for name, column in zip(tables.classes, tables.call("predict_proba", table).T, strict=True):
            columns[f"P({name})"] = column
    if clashes := [name for name in tables.keep if name in columns]:
        raise MeshError(f"--keep: {clashes[0]} is also a column of the predictions; rename it in the table")
    return columns


@with_read_options
def evaluate(
    model: MeshFile,
    data: Annotated[
        Path, Argument(help="Table with the columns of the training table and the target, or - for standard input.")
    ],
    target: TrueAnswers = None,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a table.

    Classification: accuracy, log loss and confusion matrix. Regression: R², RMSE
    and MAE. Accuracy and R² have a 95% confidence interval.

    [bold]Examples[/bold]

      meshnn evaluate iris.mesh new.csv
      meshnn evaluate iris.mesh new.csv --json
      meshnn evaluate y.mesh measured/
    """
    from meshnn.cli.models import ModelTables, load_model

    estimator = load_model(model)
    if target is None and not hasattr(estimator, "target_"):
        raise MeshError(f"{model} was fitted in Python and stores no name of a target; pass --target")
    tables = ModelTables(estimator, data, read, target, shown=not as_json)
    check_names(tables.names, [tables.target], "the true values: ")
    scores = ModelScores(tables.classes)
    for table in tables:
        P = None if tables.classes is None else tables.call("predict_proba", table)
        scores.add(cells_of(table, str(tables.target)), tables.call("predict", table), P)
    report, notes = scores.report(tables.target)
    notes = tables.notes + notes
    classes = [] if tables.classes is None else [str(label) for label in tables.classes]
    if as_json:
        facts = {"data": str(data), "model": str(model), "target": tables.target}
        task = {"task": "classify" if classes else "regress", "classes": classes or None}
        print_json(facts | task | report.to_dict() | {"notes": notes})
        return
    say_notes(notes)
    form = ".4f" if classes else ".6g"
    print_lines(str(report), *(f"{name} {value:{form}}" for name, value in report.others.items()), bold=0)
    if report.confusion is not None:
        show_confusion(report.confusion, classes, "rows")
