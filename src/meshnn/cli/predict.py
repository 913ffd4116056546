"""`meshnn predict`: what a model says about a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from meshnn.cli.output import check_output, print_json, print_text, say_notes
from meshnn.errors import DataError, MeshError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="A model that `meshnn fit` wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A table with the same columns.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write: .csv, .tsv or .parquet; else to the screen.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="A column per class with its probability.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the target of every row of a table.

    [bold]Examples[/bold]

      meshnn predict iris.mesh new.csv

      meshnn predict iris.mesh new.csv --probabilities --out predictions.csv
    """
    from meshnn.data.tables import read_table, write_predictions
    from meshnn.loading import load_fitted

    if out is not None:
        check_output("--out", out)
        for option, other in (("the table", data), ("the model", model)):
            if out.exists() and other.exists() and out.samefile(other):
                raise MeshError(f"--out: {out} is {option}, which would be lost; name another file")
    estimator = load_fitted(model)
    if not hasattr(estimator, "predict"):
        raise MeshError(
            f"{model} holds a bare net, which does not know what its outputs mean; use a model of `meshnn fit`"
        )
    encoder = getattr(estimator, "encoder_", None)
    loaded = read_table(data, text=encoder.text_columns if encoder is not None else ())
    if encoder is not None:
        encoded = encoder.encode(loaded.table)
        X, notes = encoded.X, [*loaded.notes, *encoded.notes]
    else:
        X, notes = _plain_columns(estimator, loaded.table), list(loaded.notes)
    columns: dict[str, Any] = {"prediction": estimator.predict(X)}
    if columns["prediction"].ndim == 2:
        columns = {f"prediction {k}": column for k, column in enumerate(columns["prediction"].T)}
    if probabilities:
        if not hasattr(estimator, "predict_proba"):
            raise MeshError("--probabilities: the model predicts numbers, not classes; leave it out")
        for name, column in zip(estimator.classes_, estimator.predict_proba(X).T, strict=True):
            columns[f"P({name})"] = column
    say_notes(notes + _compare(estimator, loaded.table, columns))
    if as_json:
        print_json({name: np.asarray(column).tolist() for name, column in columns.items()})
        if out is None:
            return
    text = write_predictions(out, loaded.table, columns)
    if text is not None:
        print_text(text)
    elif not as_json:
        print(f"{len(X)} predictions written to {out}", file=sys.stderr)


def _plain_columns(estimator: Any, table: Any) -> Any:
    """The features of a model that was fitted in Python: by name if it knows them, else all columns in order."""
    names = list(getattr(estimator, "feature_names_in_", table.column_names))
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}; it has {', '.join(table.column_names[:20])}")
    if len(names) != estimator.n_features_in_:
        raise DataError(
            f"the model takes {estimator.n_features_in_} features, the table has {len(names)} columns; leave others out"
        )
    try:
        X = np.stack([np.asarray(table[name], dtype=np.float64) for name in names], axis=1)
    except (ValueError, TypeError):
        raise DataError("the model was fitted on numbers, but the table holds text; encode it as in training") from None
    wrong = np.argwhere(~np.isfinite(X))
    if len(wrong):
        row, k = wrong[0]
        held = "no number" if np.isnan(X[row, k]) else str(X[row, k])
        raise DataError(f"column {names[k]} holds {held} in row {row + 1:,}, expected finite numbers; mend the cell")
    return X


def _compare(estimator: Any, table: Any, columns: dict[str, Any]) -> list[str]:
    """If the true answers are there, how many are met."""
    target = getattr(estimator, "target_", None)
    if target is None or target not in table.column_names or "prediction" not in columns:
        return []
    truth = table[target].to_pylist()
    known = [k for k, value in enumerate(truth) if value is not None]
    if not known or not hasattr(estimator, "classes_"):
        return []
    met = sum(str(truth[k]) == str(columns["prediction"][k]) for k in known)
    return [f"the table has the column {target}: {met} of {len(known)} predictions agree with it"]
