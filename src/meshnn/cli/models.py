"""Models of files, and tables as a model sees them: block by block, with its features and the true answers."""

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
    """Return a model that predicts tables."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    if hasattr(model, "learn_one"):
        from meshnn.cli.stream_state import StreamEstimator

        return StreamEstimator(model, path)
    refuse({
        f"{path} holds a bare net, which does not know what its outputs mean; use a model of `meshnn fit`":
        not hasattr(model, "predict"),
        f"{path} holds a model of sequences, and a table has one sample per row; use meshnn.load in Python":
        hasattr(model, "reading_"),
    })  # fmt: skip
    return model


class ModelTables:
    """A table as a model sees it, block by block; one that fits in memory is one block.

    `target` names the column with the true answers, by default that of the model; columns to `keep` are copied as they
    are written, unless the model reads them.
    """

    def __init__(
        self, model: Any, data: Path, read: Any, target: str | None = None, keep: Sequence[str] | None = None,
        shown: bool = True,
    ) -> None:  # fmt: skip
        if hasattr(model, "read_") and read == read_options():
            read = model.read_  # as the table of the stream was written
        self.model, self._shown, self.rows, self._notes = model, shown, 0, dict[str, str]()
        self.target: str | None = getattr(model, "target_", None) if target is None else target
        self.classes: Any = getattr(model, "classes_", None)
        encoder = getattr(model, "encoder_", None)
        self._columns = None if encoder is None else [column.name for column in encoder.columns]
        if target is not None and target in (self._columns or ()):
            raise DataError(f"--target: {target} is a feature of the model; name the column with the true answers")
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
                as_text.add(self.target)  # a class 01 is not 1
            loaded = read_table(data, as_text - numbers, read)
            self._loaded, self.names = loaded.table, loaded.table.column_names
            self._note(loaded.notes)
        self.keep = column_list(keep, self.names)
        check_names(self.names, self.keep, "--keep: ")

    @property
    def in_blocks(self) -> bool:
        """Whether the table is larger than one block."""
        return self._files is not None

    @property
    def notes(self) -> list[str]:
        """Remarks for the user."""
        return list(self._notes.values())

    def _note(self, notes: Sequence[str]) -> None:
        for note in notes:  # blocks repeat remarks with other numbers and examples
            self._notes.setdefault(re.sub(r"^[^:]*: |\d[\d,]*|e\.g\. .*", "", note), note)

    def __iter__(self) -> Iterator[Any]:
        if self._files is None:
            self.rows = self._loaded.num_rows
            yield self._loaded
            return
        wanted = None if self._columns is None else {*self._columns, *self.keep, self.target}
        with progress("reading", self._files.total, quiet=not self._shown) as tell:
            for table in self._files.tables([name for name in self.names if wanted is None or name in wanted]):
                yield table
                self.rows += table.num_rows
                tell(self.rows)

    def samples(self, target: str | None = None) -> tuple[NDArray[np.float64], Any]:
        """Return the features of all rows as a net takes them, before scaling, and the true answers, if there are any.

        Rows without an answer that the model knows are left out; `target` is a column that must be there.
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
            raise DataError("the table has no row with a true answer that the model knows", code="empty")
        say_notes(self.notes + [f"{lost:,} rows have no answer that the model knows: left out"] * bool(lost))
        return np.concatenate(X), found

    def call(self, method: str, table: Any, **options: Any) -> Any:
        """Return the result of a method of the model for a block."""
        caught: list[str] = []
        with collect_warnings(caught):
            X = table if self._columns is not None else self._matrix(table)
            found = getattr(self.model, method)(X, **options)
        self._note(caught)
        return found

    def _matrix(self, table: Any) -> NDArray[np.float64]:
        """Return the features of a model that was fitted to arrays: all columns in order, except kept ones."""
        count = self.model.n_features_in_
        names = [name for name in table.column_names if name != self.target]
        if len(names) != count:
            names = [name for name in names if name not in self.keep]
        if len(names) != count:
            what = f"the model takes {count} features, the table has {len(names)} columns; leave others out"
            raise DataError(what, code="columns")
        columns = [cells_of(table, name) for name in names]
        for cells in columns:
            text = cells.kind in ("categorical", "date")
            if (at := first(cells.gaps | text)) >= 0:
                cells.refuse(at, "text or a date" if text else "no number", "finite numbers")
        return np.stack([cells.numbers for cells in columns], axis=1)

    def truth(self, table: Any) -> NDArray[Any] | None:
        """Return the true answer per row as in `true_answers`, None if the table has no such column."""
        if self.target is None or self.target not in table.column_names:
            return None
        return true_answers(cells_of(table, self.target), self.classes)
