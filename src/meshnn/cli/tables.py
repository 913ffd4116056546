"""Tables and models of the command line: how tables are read, and what a model sees of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from meshnn.cli.output import collect_warnings
from meshnn.errors import DataError, MeshError

__all__ = ["Decimal", "Encoding", "ModelTables", "Na", "Sep", "Thousands", "check_columns", "column_list", "load_model",
           "read_options"]  # fmt: skip

Sep = Annotated[
    str | None,
    typer.Option("--sep", help="Separator of the values of a text file; found from its first line by default."),
]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal point of the numbers of a text file.")]
Thousands = Annotated[
    str | None, typer.Option("--thousands", help="Separator of thousands in the numbers of a text file.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Character encoding of a text file.")]
Na = Annotated[
    str | None,
    typer.Option("--na", help="Further spellings of missing values in a text file, as -,?."),
]


def read_options(sep: str | None, decimal: str, thousands: str | None, encoding: str, na: str | None) -> Any:
    """The options of `tables.reader.open_table`."""
    from meshnn.tables.text import MISSING, ReadOptions

    sep = {"\\t": "\t", "tab": "\t"}.get(sep or "", sep)
    missing = tuple(dict.fromkeys([*MISSING, *(na or "").split(",")]))
    return ReadOptions(sep, decimal, thousands, encoding, missing)


def column_list(given: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Columns of an option that is repeated, or has several at once (a,b); a name may hold a comma itself."""
    found = [[text] if text in names else [part.strip() for part in text.split(",")] for text in given or ()]
    return list(dict.fromkeys(name for parts in found for name in parts))


def check_columns(what: str, names: Sequence[str], wanted: Sequence[str | None]) -> None:
    """Refuse names that a table does not have."""
    if missing := [name for name in wanted if name not in names]:
        has = ", ".join(names[:20]) + ", ..." * (len(names) > 20)
        raise DataError(f"{what}: the table has no column {missing[0]!r}; it has {has}", code="columns")


def load_model(path: Path) -> Any:
    """A model that predicts tables."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    if hasattr(model, "learn_one"):
        from meshnn.cli.stream_model import fitted_stream

        return fitted_stream(path, model)
    if not hasattr(model, "predict"):
        raise MeshError(
            f"{path} holds a bare net, which does not know what its outputs mean; use a model of `meshnn fit`"
        )
    if hasattr(model, "reading_"):
        raise MeshError(
            f"{path} holds a model of sequences, and a table has one sample a row; use meshnn.load in Python"
        )
    return model


class ModelTables:
    """A table as a model sees it, block by block; one that fits in memory is one block.

    Parameters
    ----------
    model : a fitted model
    data : path
    read : ReadOptions
    target : str, optional
        Where the true answers are, if the table has them; that of the model if it knows one.
    keep : list of str
        Columns to be copied; as written, where the model does not read them.
    shown : bool
        Whether progress is shown.

    Attributes
    ----------
    in_blocks : bool
    names : list of str
        Columns of the table, once it was opened.
    rows : int
        Rows so far.
    notes : list of str
        What the user should know, each remark once, however many blocks gave it.
    """

    def __init__(
        self, model: Any, data: Path, read: Any, target: str | None = None, keep: Sequence[str] | None = None,
        shown: bool = True,
    ) -> None:  # fmt: skip
        from meshnn.tables.reader import in_blocks

        if hasattr(model, "read_") and read == read_options(None, ".", None, "utf-8", None):
            read = model.read_  # as the stream was written
        self.model, self._data, self._read, self._shown = model, data, read, shown
        self.target: str | None = getattr(model, "target_", None) if target is None else target
        encoder = getattr(model, "encoder_", None)
        self._columns = None if encoder is None else [column.name for column in encoder.columns]
        self._texts = [] if encoder is None else list(encoder.text_columns)
        self.in_blocks, self.rows, self._notes, self._keep = in_blocks(data), 0, dict[str, str](), keep
        if target is not None and target in (self._columns or ()):
            raise DataError(f"--target: {target} is a feature of the model; name the column with the true answers")
        self._open()
        self.keep = column_list(keep, self.names)
        check_columns("--keep", self.names, self.keep)

    def _open(self) -> None:
        from meshnn.tables.files import ArrowFiles
        from meshnn.tables.reader import read_table

        if self.in_blocks:
            self._files = ArrowFiles(self._data)
            self.names = list(self._files.schema.names)
            if self._files.rows == 0:
                raise DataError(f"{self._files.name} has no rows", code="empty")
            return
        texts = [*self._texts, *(part for text in self._keep or () for part in (text, *text.split(",")))]
        classes = getattr(self.model, "classes_", np.zeros(0))
        if self.target is not None and classes.dtype.kind in "UO":
            texts.append(self.target)  # a class 01 is not 1
        read = set(self._columns or ()) - set(self._texts)
        loaded = read_table(self._data, [name for name in texts if name not in read], self._read)
        self._loaded, self.names = loaded.table, loaded.table.column_names
        self._note(loaded.notes)

    def check_target(self) -> None:
        """Refuse a table without the true answers."""
        check_columns("the true answers", self.names, [self.target])

    @property
    def notes(self) -> list[str]:
        """What the user should know."""
        return list(self._notes.values())

    def _note(self, notes: Sequence[str]) -> None:
        for note in notes:  # blocks give the same remarks with other numbers and examples
            self._notes.setdefault(re.sub(r"^[^:]*: |\d[\d,]*|e\.g\. .*", "", note), note)

    def __iter__(self) -> Iterator[Any]:
        if not self.in_blocks:
            self.rows = self._loaded.num_rows
            yield self._loaded
            return
        from meshnn.progress import reading

        wanted = None if self._columns is None else {*self._columns, *self.keep, self.target}
        with reading(int(self._shown), self._files.rows) as told:
            for table in self._files.tables([name for name in self.names if wanted is None or name in wanted]):
                yield table
                self.rows += table.num_rows
                told(self.rows)

    def features(self, table: Any) -> NDArray[np.float64]:
        """The features of a block as a net takes them, before scaling."""
        if self._columns is None:
            return self._matrix(table)
        encoded = self.model.encoder_.encode(table)
        self._note(encoded.notes)
        found: NDArray[np.float64] = encoded.X
        return found

    def ask(self, method: str, table: Any, **options: Any) -> Any:
        """What a method of the model says about a block."""
        caught: list[Warning] = []
        with collect_warnings(caught):
            X = table if self._columns is not None else self._matrix(table)
            found = getattr(self.model, method)(X, **options)
        self._note([str(warning) for warning in caught])
        return found

    def _matrix(self, table: Any) -> NDArray[np.float64]:
        """The features of a model that was fitted to arrays: all columns in order, but for others that are named."""
        from meshnn.tables.cells import cells_of, first

        count = self.model.n_features_in_
        names = [name for name in table.column_names if name != self.target]
        if len(names) != count:
            names = [name for name in names if name not in self.keep]
        if len(names) != count:
            raise DataError(
                f"the model takes {count} features, the table has {len(names)} columns; leave others out",
                code="columns",
            )
        found = []
        for cells in (cells_of(table, name) for name in names):
            if cells.kind in ("categorical", "date") and not cells.gaps.all():
                raise DataError(f"the model takes numbers, but {cells.called} holds text or dates", field=cells.name)
            if (at := first(cells.gaps)) >= 0:
                cells.refuse(at, "no number", "finite numbers")
            found.append(cells.numbers)
        return np.stack(found, axis=1)

    def labels(self, table: Any) -> NDArray[np.int64] | None:
        """Of each row the number of its true class: -1 if the model does not know it, -2 if there is none.

        None if the table does not have the column.
        """
        from meshnn.tables.cells import cells_of, class_numbers

        if self.target is None or self.target not in table.column_names:
            return None
        cells = cells_of(table, self.target)
        return np.where(cells.gaps, -2, class_numbers(cells, self.model.classes_))

    def values(self, table: Any) -> NDArray[np.float64]:
        """Of each row its true value, NaN if there is none."""
        from meshnn.tables.cells import cells_of, first
        from meshnn.tables.names import quoted

        assert self.target is not None
        cells = cells_of(table, self.target)
        if cells.kind in ("categorical", "date"):
            at = first(~cells.gaps)
            cells.refuse(at, f"the text {quoted(cells.values[at])}", "numbers, which the model predicts")
        return cells.numbers
