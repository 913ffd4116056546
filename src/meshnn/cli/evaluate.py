"""`meshnn evaluate`: how good a model is on a table with the true answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from meshnn.cli.output import print_json, say_notes, screen
from meshnn.cli.report import ClassMetrics, ValueMetrics, headline, show_confusion
from meshnn.cli.tables import Decimal, Encoding, ModelTables, Na, Sep, Thousands, load_model, read_options
from meshnn.errors import MeshError

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[Path, typer.Argument(help="The model, a .mesh file of `meshnn fit`.", show_default=False)],
    data: Annotated[
        Path,
        typer.Argument(help="A table with the same columns and the target; - is standard input.", show_default=False),
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", "-y", help="The column with the true answers; by default that of the training table."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    na: Na = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score a model on a table: accuracy, log loss and confusions of classes; R², RMSE and MAE of numbers.

    [bold]Examples[/bold]

      meshnn evaluate iris.mesh new.csv

      meshnn evaluate iris.mesh new.csv --json

      meshnn evaluate y.mesh measured/
    """
    read = read_options(sep, decimal, thousands, encoding, na)
    estimator = load_model(model)
    if target is None and not hasattr(estimator, "target_"):
        raise MeshError(f"{model} was made in Python and does not know what its target is called; pass --target")
    tables = ModelTables(estimator, data, read, target, shown=not as_json)
    tables.check_target()
    scores: ClassMetrics | ValueMetrics
    if hasattr(estimator, "classes_"):
        scores = ClassMetrics(estimator.classes_)
        for table in tables:
            truth = tables.labels(table)
            assert truth is not None
            example = table[tables.target][int((truth == -1).argmax())].as_py() if (truth == -1).any() else None
            scores.add(truth, tables.ask("predict", table), tables.ask("predict_proba", table), example)
    else:
        scores = ValueMetrics()
        for table in tables:
            scores.add(tables.values(table), tables.ask("predict", table))
    report, notes = scores.report(tables.target)
    notes = tables.notes + notes
    classes = [str(label) for label in getattr(estimator, "classes_", [])]
    if as_json:
        facts = {"data": str(data), "model": str(model), "target": tables.target}
        task = {"task": "classify" if classes else "regress", "classes": classes or None}
        print_json(facts | task | report.to_dict() | {"notes": notes})
        return
    say_notes(notes)
    console = screen()
    console.print(Text(headline(report), style="bold"), soft_wrap=True)
    for name, value in report.others.items():
        console.print(Text(f"{name} {value:.4f}" if classes else f"{name} {value:.6g}"))
    if report.confusion is not None:
        show_confusion(console, report.confusion, classes, "rows")
