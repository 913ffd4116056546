"""Models of files, and tables as a model sees them: block by block, with its features and the true answers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from meshnn.cli.options import column_list, read_options
from meshnn.cli.output import collect_warnings, refuse, say_notes
from meshnn.errors import DataError, FileError, MeshError
from meshnn.online.blocks import Rows, TableRunner, model_classes, model_values, outputs_of
from meshnn.online.scores import scores_from
from meshnn.tables.blocks import Position
from meshnn.tables.encoder import Encoded
from meshnn.tables.files import ArrowReader
from meshnn.tables.names import check_names, listed, source
from meshnn.tables.reader import in_blocks, read_table
from meshnn.tables.streams import StreamSchema, parse_column
from meshnn.tables.text import ReadOptions


def load_model(path: Path) -> Any:
    """Return a model that predicts tables."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    if hasattr(model, "learn_one"):
        return _StreamEstimator(path, SavedRun.of(model, path))
    refuse({
        f"{path} holds a bare net, which does not know what its outputs mean; use a model of `meshnn fit`":
        not hasattr(model, "predict"),
        f"{path} holds a model of sequences, and a table has one sample per row; use meshnn.load in Python":
        hasattr(model, "reading_"),
    })  # fmt: skip
    return model


@dataclass
class SavedRun:
    """A run of `meshnn stream` that a model was saved in, to continue from."""

    model: Any
    schema: StreamSchema
    scores: Any
    position: Position
    rows: int  # of all tables so far
    base: int  # of the tables before the last one
    latest: Any  # time of the last row
    predictions: dict[str, Any]  # path and bytes of the file; empty without one
    read: ReadOptions
    source: str
    finished: bool

    @classmethod
    def of(cls, model: Any, path: Path) -> Self:
        """Return the run that is stored with the model of a file."""
        table = getattr(model, "table_", None)
        if table is None:
            raise MeshError(f"{path} was not made by `meshnn stream`, so its table is not known; name a model that was")
        try:
            latest, read = table["latest"], table["read"]
            return cls(
                model, StreamSchema.from_dict(table["recipe"]), scores_from(table["scores"]),
                Position(**table["position"]), int(table["rows"]), int(table["base"]),
                None if latest is None else tuple(latest), dict(table["predictions"] or {}),
                ReadOptions(**read | {"na": tuple(map(str, read["na"]))}), table["source"], bool(table["finished"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path} does not hold a valid stream ({error}); start anew") from None


class _StreamEstimator:
    """A model of `meshnn stream` as an estimator: with an encoder of tables (itself) and sorted classes."""

    def __init__(self, path: Path, saved: SavedRun) -> None:
        model, schema = saved.model, saved.schema
        if model.stream_ is None:
            raise MeshError(f"{path} has not learned from any row yet; go on with meshnn stream --resume {path}")
        self._model, self._schema, self._runner = model, schema, TableRunner(model, schema)
        self.target_, self.encoder_, self.read_ = schema.target, self, saved.read
        self.columns = [SimpleNamespace(name=name) for name in schema.features]
        self.text_columns = list(schema.text)
        self._last: tuple[Any, Any] = (None, None)
        if schema.task == "classify":
            one_type = len({type(label) for label in model.classes_}) == 1
            found = np.array(model.classes_ if one_type else [str(label) for label in model.classes_])
            self._order = np.argsort(found, kind="stable")
            self.classes_ = found[self._order]

    def encode(self, table: Any) -> Encoded:
        """Return rows of features; a column that is not there is missing, as it may be on a stream."""
        notes, features = ["the model as its stream left it; nothing is learned from this table"], self._schema.features
        there = [name for name in features if name in table.column_names]
        if not there:
            what = "none of the columns that the model was learned from is there; they are"
            raise DataError(f"{source(table)}{what} {listed(features)}", code="columns")
        if lost := [name for name in features if name not in there]:
            notes.append(f"{source(table)}there is no column {listed(lost, 5)}: taken as missing")
        parsed = {name: parse_column(table.column(name), name in self._schema.text) for name in there}
        rows = Rows(parsed, None, np.full(table.num_rows, np.nan), None, table.num_rows, None)
        return Encoded(self._runner.matrix(rows, 0, table.num_rows), notes)

    def _outputs(self, table: Any) -> Any:
        if self._last[0] is not table:  # a net with memory must not see the rows twice
            encoded = self.encode(table)
            for note in encoded.notes:
                warnings.warn(note, UserWarning, stacklevel=3)
            self._last = table, outputs_of(self._model, encoded.X)
        return self._last[1]

    def predict(self, X: Any) -> Any:
        if not hasattr(self, "classes_"):
            return model_values(self._model, self._outputs(X))
        return self.classes_[np.argsort(self._order)[model_classes(self._model, self._outputs(X))[0]]]

    def predict_proba(self, X: Any) -> Any:
        return model_classes(self._model, self._outputs(X))[1][:, self._order]


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
        from meshnn.progress import reading

        wanted = None if self._columns is None else {*self._columns, *self.keep, self.target}
        with reading(int(self._shown), self._files.total) as told:
            for table in self._files.tables([name for name in self.names if wanted is None or name in wanted]):
                yield table
                self.rows += table.num_rows
                told(self.rows)

    def samples(self, target: str | None = None) -> tuple[NDArray[np.float64], Any]:
        """Return the features of all rows as a net takes them, before scaling, and the true answers, if there are any.

        Rows without an answer that the model knows are left out; `target` is a column that must be there.
        """
        check_names(self.names, [] if target is None else [target], "--target: ")
        X, y, lost = list[Any](), list[Any](), 0
        for table in self:
            encoded = Encoded(self._matrix(table), []) if self._columns is None else self.model.encoder_.encode(table)
            self._note(encoded.notes)
            truth = self.truth(table)
            there = slice(None) if truth is None else np.isfinite(truth) if self.classes is None else truth >= 0
            X.append(encoded.X[there])
            if truth is not None:
                y.append((truth if self.classes is None else self.classes[truth])[there])
                lost += len(truth) - len(y[-1])
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
        from meshnn.tables.cells import cells_of, first

        columns = [cells_of(table, name) for name in names]
        for cells in columns:
            text = cells.kind in ("categorical", "date")
            if (at := first(cells.gaps | text)) >= 0:
                cells.refuse(at, "text or a date" if text else "no number", "finite numbers")
        return np.stack([cells.numbers for cells in columns], axis=1)

    def truth(self, table: Any) -> NDArray[Any] | None:
        """Return the true answer per row, None if the table has no such column.

        A value, NaN if missing; or the number of a class, -1 if the model does not know it, -2 if missing.
        """
        if self.target is None or self.target not in table.column_names:
            return None
        from meshnn.tables.cells import cells_of, class_numbers

        cells = cells_of(table, self.target)
        if self.classes is not None:
            return np.where(cells.gaps, -2, class_numbers(cells, self.classes))
        return cells.as_numbers("numbers, which the model predicts")
