"""`meshnn evaluate`: scores of a model on a table with the true answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from meshnn.cli.models import ModelTables, load_model
from meshnn.cli.options import AsJson, MeshFile, TrueAnswers, with_read_options
from meshnn.cli.output import print_json, print_lines, say_notes
from meshnn.cli.scores import ModelScores, show_confusion
from meshnn.errors import MeshError
from meshnn.tables.names import check_names


@with_read_options
def evaluate(
    model: MeshFile,
    data: Annotated[Path, Argument(help="A table with the same columns and the target; - is standard input.")],
    target: TrueAnswers = None,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a table: accuracy, log loss and confusions of classes; R², RMSE and MAE of numbers.

    [bold]Examples[/bold]

      meshnn evaluate iris.mesh new.csv
      meshnn evaluate iris.mesh new.csv --json
      meshnn evaluate y.mesh measured/
    """
    estimator = load_model(model)
    if target is None and not hasattr(estimator, "target_"):
        raise MeshError(f"{model} was made in Python and does not know what its target is called; pass --target")
    tables = ModelTables(estimator, data, read, target, shown=not as_json)
    check_names(tables.names, [tables.target], "the true answers: ")
    scores = ModelScores(tables.classes)
    for table in tables:
        truth, P, example = tables.truth(table), None, None
        assert truth is not None
        if tables.classes is not None:
            P = tables.call("predict_proba", table)
            example = table[tables.target][int((truth == -1).argmax())].as_py() if (truth == -1).any() else None
        scores.add(truth, tables.call("predict", table), P, example)
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
