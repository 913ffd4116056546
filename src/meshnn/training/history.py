"""`HistoryRow` and `History`: how a training run went, row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError

__all__ = ["History", "HistoryRow"]


class HistoryRow(NamedTuple):
    """Where training stands after an epoch (of `lm`: an iteration).

    Loss and accuracy are those at its end; of mini-batches, those met on the way through the epoch.
    """

    epoch: int  # epochs done, in this restart
    loss: float  # training loss with its penalties: what is minimised
    validation: float  # loss of the held-out samples; NaN if there are none
    accuracy: float  # of the held-out samples if there are any, else of the training samples; NaN in regression
    gradient_norm: float
    learning_rate: float  # of `lm`: the damping
    seconds: float  # spent so far, all restarts together
    edges: int
    restart: int  # which start this is, from 0
    note: str = ""  # why it stopped, or what was mended

    def same(self, other: HistoryRow) -> bool:
        """Whether two rows are equal in everything but the time it took."""
        mine, others = self._replace(seconds=0.0), other._replace(seconds=0.0)
        return all(
            a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
            for a, b in zip(mine, others, strict=True)
        )


_NUMBERS = HistoryRow._fields[:-1]


class History(Sequence[HistoryRow]):
    """A table of rows: `history[-1].loss` is a row's entry, `history["loss"]` a column.

    Examples
    --------
    >>> from meshnn.training import History, HistoryRow
    >>> h = History([HistoryRow(1, 0.7, float("nan"), 0.5, 1.0, 0.01, 0.001, 61, 0)])
    >>> len(h), h[0].loss, h["accuracy"].tolist()
    (1, 0.7, [0.5])
    """

    def __init__(self, rows: Iterable[HistoryRow] = ()) -> None:
        self._rows = list(rows)

    def append(self, row: HistoryRow) -> None:
        """Add a row at the end."""
        self._rows.append(row)

    @overload
    def __getitem__(self, key: int) -> HistoryRow: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: str) -> Array: ...
    def __getitem__(self, key: int | slice | str) -> HistoryRow | History | Array:
        if isinstance(key, str):
            if key not in HistoryRow._fields:
                raise MeshError(f"a history has no column {key!r}; it has {', '.join(HistoryRow._fields)}")
            return np.array([getattr(row, key) for row in self._rows])
        if isinstance(key, slice):
            return History(self._rows[key])
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[HistoryRow]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        """Equal rows, whatever time they took."""
        if not isinstance(other, History):
            return NotImplemented
        return len(self) == len(other) and all(a.same(b) for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def notes(self) -> list[str]:
        """What was noted, with the epoch it was noted at."""
        return [f"epoch {row.epoch}: {row.note}" for row in self._rows if row.note]

    def to_tree(self) -> dict[str, Any]:
        """Columns that a file can hold: arrays of numbers, and the notes."""
        numbers = {name: np.array([getattr(row, name) for row in self._rows], np.float64) for name in _NUMBERS}
        return numbers | {"note": [row.note for row in self._rows]}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> History:
        """The inverse, for a tree that may come from anywhere."""
        notes = tree["note"]
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            raise MeshError("the notes of the history are not texts")
        columns = []
        for name in _NUMBERS:
            column = tree[name]
            if column.shape != (len(notes),):
                raise MeshError(f"the history has {len(notes)} notes, but its {name} is of shape {column.shape}")
            columns.append([int(v) if name in ("epoch", "edges", "restart") else float(v) for v in column])
        return cls(HistoryRow(*row) for row in zip(*columns, notes, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, for `pandas.DataFrame(history.to_dict())`."""
        return {name: [getattr(row, name) for row in self._rows] for name in HistoryRow._fields}

    def __repr__(self) -> str:
        return f"History({len(self)} rows)"

    def __str__(self) -> str:
        shown = self._rows if len(self) <= 20 else [*self._rows[:10], None, *self._rows[-10:]]
        lines = [" epoch       loss validation accuracy   gradient       rate  seconds"]
        for row in shown:
            if row is None:
                lines.append("   ...")
                continue
            lines.append(
                f"{row.epoch:6d} {row.loss:10.4g} {row.validation:10.4g} {row.accuracy:8.4f} {row.gradient_norm:10.3g} "
                f"{row.learning_rate:10.3g} {row.seconds:8.3f}  {row.note}".rstrip()
            )
        return "\n".join(lines)
