"""Load models from files, and read tables as input for a model: features and true values, block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.cli.options import column_list, read_options
from meshnn.cli.output import collect_warnings, refuse, say_notes
from meshnn.cli.scores import true_answers
from meshnn.errors import DataError
from meshnn.progress import progress
from meshnn.tables.cells import cells_of, first
from meshnn.tables.files import ArrowReader
from meshnn.tables.names import check_names
from meshnn.tables.reader import in_blocks, read_table


def load_model(path: Path) -> Any:
    """Return the model in a file; raise an error if it cannot predict tables."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    if hasattr(model, "learn_one"):
        from meshnn.cli.stream_state import StreamEstimator

        return StreamEstimator(model, path)
    refuse({
        f"{path} holds a network without a classifier or regressor; use a model of `meshnn fit`":
        not hasattr(model, "predict"),
        f"{path} holds a sequence model, which cannot predict single rows; use meshnn.load in Python":
        hasattr(model, "reading_"),
    })  # fmt: skip
    return model


class ModelTables:
    """A table as input for a model, block by block. A table that fits in memory is one block.

    `target` is the column with the true values, by default the target of the model. Columns to `keep` are read as
    text, so that they are copied unchanged, unless they are features.
    """

    def __init__(
        self, model: Any, data: Path, read: Any, target: str | None = None, keep: Sequence[str] | None = None,
        shown: bool = True,
    ) -> None:  # fmt: skip
        if hasattr(model, "read_") and read == read_options():
            read = model.read_  # the format of the training table
        self.model, self._shown, self.rows, self._notes = model, shown, 0, dict[str, str]()
        self.target: str | None = getattr(model, "target_", None) if target is None else target
        self.classes: Any = getattr(model, "classes_", None)
        encoder = getattr(model, "encoder_", None)
        self._columns = None if encoder is None else [column.name for column in encoder.columns]
        if target is not None and target in (self._columns or ()):
            raise DataError(f"--target: {target} is a feature of the model; name the column with the true values")
        self._files = ArrowReader(data) if in_blocks(data) else None
        if self._files is not None:
            self.names = self._files.names
            if self._files.total == 0:
                raise DataError(f"{self._files.name} has no rows", code="empty")
        else:
            as_text = set[str]() if encoder is None else set(encoder.text_columns)
            numbers = set(self._columns or ()) - as_text
            as_text.update(part for text in keep or () for part in (text, *text.split(",")))
            if self.target is not None and self.classes is not None and self.classes.dtype.kind in "UO":
                as_text.add(self.target)  # the class "01" is not "1"
            loaded = read_table(data, as_text - numbers, read)
            self._loaded, self.names = loaded.table, loaded.table.column_names
            self._note(loaded.notes)
        self.keep = column_list(keep, self.names)
        check_names(self.names, self.keep, "--keep: ")

    @property
    def in_blocks(self) -> bool:
        """Whether the table is read in several blocks."""
        return self._files is not None

    @property
    def notes(self) -> list[str]:
        """Notes for the user."""
        return list(self._notes.values())

    def _note(self, notes: Sequence[str]) -> None:
        for note in notes:  # one note per kind: blocks repeat it with other numbers and examples
            self._notes.setdefault(re.sub(r"^[^:]*: |\d[\d,]*|e\.g\. .*", "", note), note)

    def __iter__(self) -> Iterator[Any]:
        if self._files is None:
            self.rows = self._loaded.num_rows
            yield self._loaded
            return
        needed = None if self._columns is None else {*self._columns, *self.keep, self.target}
        with progress("reading", self._files.total, quiet=not self._shown) as tell:
            for table in self._files.tables([name for name in self.names if needed is None or name in needed]):
                yield table
                self.rows += table.num_rows
                tell(self.rows)

    def samples(self, target: str | None = None) -> tuple[NDArray[np.float64], Any]:
        """Return the encoded features of all rows, before scaling, and the true values if the table has them.

        Rows without a true value, or with a class that the model does not have, are left out. A missing column
        `target` is an error.
        """
        check_names(self.names, [] if target is None else [target], "--target: ")
        X, y, lost = list[Any](), list[Any](), 0
        for table in self:
            if self._columns is None:
                features = self._matrix(table)
            else:
                encoded = self.model.encoder_.encode(table)
                features = encoded.X
                self._note(encoded.notes)
            truth = self.truth(table)
            if truth is not None:
                there = np.isfinite(truth) if self.classes is None else truth >= 0
                features = features[there]
                y.append((truth if self.classes is None else self.classes[truth])[there])
                lost += len(truth) - len(y[-1])
            X.append(features)
        found = np.concatenate(y) if y else None
        if found is not None and not len(found):
            raise DataError("the table has no row with a true value that the model can predict", code="empty")
        say_notes(self.notes + [f"{lost:,} rows without a true value, or with an unknown class: left out"] * bool(lost))
        return np.concatenate(X), found

    def call(self, method: str, table: Any, **options: Any) -> Any:
        """Return the result of a method of the model on a block; collect its warnings."""
        caught: list[str] = []
        with collect_warnings(caught):
            X = table if self._columns is not None else self._matrix(table)
            found = getattr(self.model, method)(X, **options)
        self._note(caught)
        return found

    def _matrix(self, table: Any) -> NDArray[np.float64]:
        """Return the features for a model that was fitted to arrays: all columns in order, except kept ones."""
        count = self.model.n_features_in_
        names = [name for name in table.column_names if name != self.target]
        if len(names) != count:
            names = [name for name in names if name not in self.keep]
        if len(names) != count:
            message = f"the model has {count} features, got a table with {len(names)} columns; remove the others"
            raise DataError(message, code="columns")
        columns = [cells_of(table, name) for name in names]
        for cells in columns:
            text = cells.kind in ("categorical", "date")
            if (at := first(cells.gaps | text)) >= 0:
                cells.refuse(at, "text or a date" if text else "no number", "finite numbers")
        return np.stack([cells.numbers for cells in columns], axis=1)

    def truth(self, table: Any) -> NDArray[Any] | None:
        """Return the true value per row as `true_answers` does, or None if the table has no such column."""
        if self.target is None or self.target not in table.column_names:
            return None
        return true_answers(cells_of(table, self.target), self.classes)
