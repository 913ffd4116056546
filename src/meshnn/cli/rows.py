"""A saved model and a table for it: what `predict` and `evaluate` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError, MeshError

__all__ = ["Rows", "check_columns", "load_model"]


def load_model(path: Path) -> Any:
    """A model that predicts."""
    from meshnn.loading import load_fitted

    estimator = load_fitted(path)
    if hasattr(estimator, "learn_one"):
        from meshnn.cli.stream_model import fitted_stream

        return fitted_stream(path, estimator)
    if not hasattr(estimator, "predict"):
        raise MeshError(
            f"{path} holds a bare net, which does not know what its outputs mean; use a model of `meshnn fit`"
        )
    if hasattr(estimator, "reading_"):
        raise MeshError(
            f"{path} holds a model of sequences, and a table has one sample a row; use meshnn.load in Python"
        )
    return estimator


def check_columns(option: str, table: Any, names: Sequence[str]) -> None:
    """Refuse names that the table does not have."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        has = ", ".join(table.column_names[:20])
        raise DataError(f"{option}: the table has no column {missing[0]!r}; it has {has}")


class Rows:
    """The rows of a table as a model sees them.

    Parameters
    ----------
    estimator : a fitted model
    table : pyarrow.Table
    target : str, optional
        Where the true answers are, if the table has them; that of the model if it knows one.
    keep : names of columns
        To be copied; as written, where the model does not read them.

    Attributes
    ----------
    table : pyarrow.Table
    X : array (n_rows, n_features)
    notes : list of str
    """

    def __init__(
        self, estimator: Any, table: Any, target: str | None = None, keep: Sequence[str] = (), notes: Sequence[str] = ()
    ) -> None:
        self.estimator = estimator
        self.target: str | None = getattr(estimator, "target_", None) if target is None else target
        self.table, self.notes = table, list(notes)
        encoder = getattr(estimator, "encoder_", None)
        if encoder is not None:
            encoded = encoder.encode(self.table)
            self.X = encoded.X
            self.notes += encoded.notes
        else:
            self.X = self._plain_columns(keep)

    @classmethod
    def read(cls, estimator: Any, data: Path, target: str | None = None, keep: Sequence[str] = ()) -> Rows:
        """Those of a file."""
        from meshnn.tables.reader import read_table

        asked = target
        target = getattr(estimator, "target_", None) if target is None else target
        encoder = getattr(estimator, "encoder_", None)
        read = getattr(estimator, "feature_names_in_", keep)  # without names, any column may be a feature
        text = [] if encoder is None else encoder.text_columns
        if encoder is not None:
            read = [column.name for column in encoder.columns]
        if asked is not None and asked in list(read) and asked not in keep:
            raise DataError(f"--target: {asked} is a feature of the model; name the column with the true answers")
        text += [name for name in keep if name not in set(read)]
        if target is not None and hasattr(estimator, "classes_") and estimator.classes_.dtype.kind in "UO":
            text.append(target)  # a class 01 is not 1
        loaded = read_table(data, text=text)
        return cls(estimator, loaded.table, target, keep, loaded.notes)

    def _plain_columns(self, keep: Sequence[str]) -> NDArray[np.float64]:
        """The features of a model that was fitted in Python: by name if it knows them, else all columns in order."""
        from meshnn.tables.cells import cells_of, first

        estimator, table = self.estimator, self.table
        others = [name for name in table.column_names if name != self.target]
        if len(others) != estimator.n_features_in_:
            others = [name for name in others if name not in keep]
        names = list(getattr(estimator, "feature_names_in_", others))
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise DataError(f"the table has no column {missing[0]!r}; it has {', '.join(table.column_names[:20])}")
        if len(names) != estimator.n_features_in_:
            raise DataError(
                f"the model takes {estimator.n_features_in_} features, the table has {len(names)} columns; "
                "leave others out"
            )
        columns = []
        for name in names:
            cells = cells_of(table, name)
            if cells.kind in ("categorical", "date") and not cells.gaps.all():
                raise DataError(f"the model was fitted on numbers, but {cells.called} holds text or dates", field=name)
            if (at := first(cells.gaps)) >= 0:
                cells.refuse(at, "no number", "finite numbers")
            columns.append(cells.numbers)
        return np.stack(columns, axis=1)

    def labels(self) -> NDArray[np.int64] | None:
        """Of each row the number of its true class: -1 if the model does not know it, -2 if there is none.

        None if the table does not have the column.
        """
        from meshnn.tables.cells import cells_of, class_numbers

        if self.target is None or self.target not in self.table.column_names:
            return None
        cells = cells_of(self.table, self.target)
        return np.where(cells.gaps, -2, class_numbers(cells, self.estimator.classes_))

    def values(self) -> NDArray[np.float64]:
        """Of each row its true value, NaN if there is none."""
        from meshnn.tables.cells import cells_of, first
        from meshnn.tables.names import quoted

        assert self.target is not None
        cells = cells_of(self.table, self.target)
        if cells.kind in ("categorical", "date"):
            at = first(~cells.gaps)
            cells.refuse(at, f"the text {quoted(cells.values[at])}", "numbers, which the model predicts")
        return cells.numbers
