"""`meshnn predict` on folders and large files: predictions are written as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meshnn.cli.output import counted, print_text, say_notes
from meshnn.cli.row_blocks import RowBlocks
from meshnn.errors import MeshError
from meshnn.tables.names import check_names
from meshnn.tables.predictions import predictions_to

__all__ = ["predict_blocks"]


def predict_blocks(estimator: Any, data: Path, out: Path | None, kept: list[str], columns_of: Any) -> None:
    """Predict the rows of a table block by block.

    Parameters
    ----------
    estimator : a fitted model
    data : path
    out : path, optional
        Without it, CSV goes to stdout.
    kept : list of str
        Columns to copy.
    columns_of : callable (X) -> dict
        The columns of predictions.
    """
    if out is not None and data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise MeshError(f"--out: {out} is in the folder that is read, and would be read next time; name another place")
    blocks = RowBlocks(estimator, data, keep=kept, shown=out is not None)
    check_names(blocks.names, kept, "--keep: ")
    met = known = 0
    with _sink(out) as sink:
        for rows in blocks:
            columns = columns_of(rows.X)
            sink({name: rows.table[name] for name in kept}, columns)
            truth = rows.labels() if hasattr(estimator, "classes_") else None
            if truth is not None:
                agree = estimator.classes_[truth] == columns["prediction"]
                met, known = met + int(agree[truth >= 0].sum()), known + int((truth > -2).sum())
    notes = blocks.notes
    if known:
        notes.append(f"the table has the column {blocks.target}: {met:,} of {known:,} predictions agree with it")
    say_notes(notes)
    if out is not None:
        print(f"{counted(blocks.table.rows, 'prediction')} written to {out}", file=sys.stderr)


@contextmanager
def _sink(out: Path | None) -> Iterator[Any]:
    if out is not None:
        with predictions_to(out) as predictions:
            yield predictions.add
        return
    from meshnn.tables.predictions import as_text

    begun: list[bool] = []

    def show(kept: dict[str, Any], columns: dict[str, Any]) -> None:
        print_text(as_text(kept, columns, header=not begun))
        begun.append(True)

    yield show
