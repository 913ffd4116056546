"""`meshnn evaluate`: how good a model is on a table with the true answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from meshnn.arguments import whole_number
from meshnn.cli.output import counted, print_json, say_notes
from meshnn.cli.report import Report, headline, score_classes, score_values, show_confusion
from meshnn.cli.rows import Rows, check_columns, load_model
from meshnn.errors import DataError, MeshError

if TYPE_CHECKING:
    from meshnn.cli.row_blocks import RowBlocks

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model that `meshnn fit` wrote.", show_default=False)],
    data: Annotated[
        Path,
        typer.Argument(help="A table with the same columns and the target; - is standard input.", show_default=False),
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", "-y", help="The column with the true answers; by default that of the training table."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the resampling behind the interval of R².")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a model on a table: accuracy, log loss and confusions of classes; R², RMSE and MAE of numbers.

    [bold]Examples[/bold]

      meshnn evaluate iris.mesh new.csv

      meshnn evaluate iris.mesh new.csv --json

      meshnn evaluate y.mesh measured/
    """
    from meshnn.cli.row_blocks import RowBlocks
    from meshnn.tables.names import check_names
    from meshnn.tables.reader import in_blocks

    whole_number("--seed", seed, least=0, most=2**32 - 1)
    estimator = load_model(model)
    if target is None and not hasattr(estimator, "target_"):
        raise MeshError(f"{model} was made in Python and does not know what its target is called; pass --target")
    rows: Rows | RowBlocks
    if in_blocks(data):
        rows = RowBlocks(estimator, data, target, shown=not as_json)
        check_names(rows.names, [rows.target], f"{rows.table.name}: ")
        report, notes = _scored_blocks(rows, estimator, seed)
    else:
        rows = Rows.read(estimator, data, target)
        assert rows.target is not None
        check_columns("evaluate", rows.table, [rows.target])
        report, notes = _scored(rows, seed), rows.notes
    if as_json:
        facts = {"data": str(data), "model": str(model), "target": rows.target}
        classes = [str(label) for label in estimator.classes_] if hasattr(estimator, "classes_") else None
        task = "regress" if classes is None else "classify"
        print_json(facts | {"task": task, "classes": classes} | report.to_dict() | {"notes": notes})
        return
    say_notes(notes)
    _show(report, estimator)


def _scored_blocks(blocks: RowBlocks, estimator: Any, seed: int) -> tuple[Report, list[str]]:
    """Of a table that is read block by block."""
    from meshnn.cli.tally import tally_of

    tally = tally_of(estimator)
    for rows in blocks:
        tally.add(rows)
    notes = blocks.notes
    return tally.report(blocks.target, seed, notes), notes


def _scored(rows: Rows, seed: int) -> Report:
    """Of the rows that have an answer."""
    estimator = rows.estimator
    classes = getattr(estimator, "classes_", None)
    truth: Any = rows.values() if classes is None else rows.labels()
    known = np.isfinite(truth) if classes is None else truth > -2
    if not known.any():
        raise DataError(f"column {rows.target} has no values: there is nothing to compare with; fill it")
    if missing := int((~known).sum()):
        rows.notes.append(f"{counted(missing, 'row')} without a value of {rows.target}: left out")
    truth, X = truth[known], rows.X[known]
    predicted = estimator.predict(X)
    if classes is None:
        if predicted.ndim == 2:
            raise MeshError(
                f"the model predicts {predicted.shape[1]} numbers a row; meshnn evaluate takes models of one"
            )
        return score_values(truth, predicted, seed)
    if strange := int((truth < 0).sum()):
        at = int(np.flatnonzero(known)[np.argmin(truth)])
        example = rows.table[rows.target][at].as_py()
        rows.notes.append(
            f"{counted(strange, 'row')} of classes that the model does not know, e.g. {str(example)[:60]!r}: "
            "counted as wrong, not in log loss and matrix"
        )
    return score_classes(classes, truth, predicted, estimator.predict_proba(X))


def _show(report: Report, estimator: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(Text(headline(report), style="bold"), soft_wrap=True)
    for name, value in report.others.items():
        console.print(Text(f"{name} {value:.4f}" if report.confusion is not None else f"{name} {value:.6g}"))
    if report.confusion is not None:
        show_confusion(console, report.confusion, [str(label) for label in estimator.classes_], "rows")
