"""A saved model and a table that is read block by block: what `predict` and `evaluate` see of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from meshnn.cli.rows import Rows
from meshnn.errors import DataError
from meshnn.progress import reading
from meshnn.tables.files import ArrowFiles
from meshnn.tables.names import row_number, shown, source

__all__ = ["RowBlocks"]


class RowBlocks:
    """The rows of Parquet files as a model sees them, a block at a time.

    Parameters
    ----------
    estimator : a fitted model
    data : path
    target : str, optional
    keep : names of columns
        To be copied.
    shown : bool
        Whether it is shown how far it is.

    Attributes
    ----------
    names : list of str
        Columns of the table.
    notes : list of str
        Each once, however many blocks gave it.
    """

    def __init__(
        self, estimator: Any, data: Path, target: str | None = None, keep: Sequence[str] = (), shown: bool = True
    ) -> None:
        self._estimator, self._keep, self._shown, self.table = estimator, keep, shown, ArrowFiles(data)
        self.target: str | None = getattr(estimator, "target_", None) if target is None else target
        self.names = [name for name in self.table.schema.names if not name.startswith("__index_level_")]
        self._notes: dict[str, str] = {}
        if self.table.rows == 0:
            raise DataError(f"{self.table.name} has no rows")

    @property
    def notes(self) -> list[str]:
        """What the user should know."""
        return list(self._notes.values())

    def _columns(self) -> list[str]:
        """Those that are read; what is not there is missed by whoever needs it."""
        encoder = getattr(self._estimator, "encoder_", None)
        if encoder is None and not hasattr(self._estimator, "feature_names_in_"):
            return self.names
        known = self._estimator.feature_names_in_ if encoder is None else [column.name for column in encoder.columns]
        wanted = {*known, *self._keep, self.target}
        return [name for name in self.names if name in wanted]

    def __iter__(self) -> Iterator[Rows]:
        columns = self._columns()
        with reading(int(self._shown), self.table.rows) as told:
            done = 0
            for table in self.table.tables(columns):
                self._check_gaps(table)
                rows = Rows(self._estimator, table, self.target, self._keep)
                for note in rows.notes:  # with other numbers in every block
                    self._notes.setdefault(re.sub(r"\d[\d,]*|e\.g\. .*", "", note.removeprefix(source(table))), note)
                yield rows
                done += table.num_rows
                told(done)

    def _check_gaps(self, table: Any) -> None:
        """Refuse what is missing by its file and row, where the encoder would count it in a block."""
        from meshnn.tables.cells import cells_of, first
        from meshnn.tables.encoder import Encoder

        encoder = getattr(self._estimator, "encoder_", None)
        if not isinstance(encoder, Encoder) or encoder.impute:
            return
        for column in encoder.columns:
            if column.name in table.column_names:
                cells = cells_of(table, column.name)
                if (at := first(cells.gaps)) >= 0:
                    raise DataError(
                        f"{source(table)}row {row_number(table, at):,}: column {shown(column.name)} is missing; "
                        "fill it, leave the row out, or train the model with --impute"
                    )
